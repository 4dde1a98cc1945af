// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

// Never is the time of something that is not going to happen.
const Never = membership.Never

// second is how often those machines are called that look for themselves what is due.
const second = time.Second

// Machine is one node. It is told what happens, with the time on the node's
// monotonic clock, and answers what is to be done. The same inputs at the same times give the
// same effects. It is not safe for concurrent use; what it hands out is immutable.
type Machine struct {
	cfg        Config
	self       identity.Node
	members    *membership.Machine
	resolver   *splitbrain.Resolver
	singletons []*hosted // sorted by name
	proxies    []*proxy  // sorted by name

	now     time.Duration
	out     Effects
	tickAt  time.Duration
	stopped bool
	cut     bool // it does not hear itself
	mute    bool // it must not decide who goes on
	exit    exit
	count   Counters
}

// exit is where a node stands that leaves.
type exit struct {
	begun, done bool
	by          time.Duration // when the singletons are waited for no more
}

// New returns the machine of a node that is no member yet. The error names each field that is
// wrong.
func New(cfg Config) (*Machine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	members, err := membership.New(cfg.Membership)
	if err != nil {
		return nil, fielderror.Rename(ErrInvalid, err, "Config.", "Config.Membership.")
	}
	resolver, err := splitbrain.New(cfg.Membership.Self, cfg.Downing)
	if err != nil {
		return nil, err
	}
	return &Machine{cfg: cfg, self: cfg.Membership.Self, members: members, resolver: resolver, tickAt: second}, nil
}

// Step handles what happened at a time, which never goes back.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	if _, received := in.(Received); !received && m.now >= m.members.Next() {
		// A node that was not running learns that first: it may have been given up since.
		m.absorb(m.members.Tick(m.now))
	}
	switch in := in.(type) {
	case Membership:
		m.absorb(m.members.Step(m.now, in.Input))
	case Received:
		m.receive(in)
	case Exit:
		m.beginExit()
	case InstanceEnded:
		m.hostedStep(m.find(in.Instance.Singleton), singleton.InstanceEnded{Instance: in.Instance.Nr})
	case LeaseAnswer:
		m.leaseAnswered(in)
	case LeaseReleased:
		m.leaseReleased(in)
	case LeaseLost:
		m.leaseLost(in)
	case Forward:
		m.forward(in)
	}
	return m.end()
}

// Next returns when Tick is to be called next; Never if not at all. Every step
// may change it.
func (m *Machine) Next() time.Duration {
	if m.stopped && !m.hosts() {
		return Never
	}
	return min(m.members.Next(), m.tickAt)
}

// Tick handles all that is due.
func (m *Machine) Tick(now time.Duration) Effects {
	m.now = max(m.now, now)
	m.absorb(m.members.Tick(m.now))
	if m.now >= m.tickAt {
		m.tickAt = m.now + second
		if !m.stopped {
			m.decide(m.resolver.Tick(m.now))
		}
		for _, h := range m.singletons {
			m.hostedEffects(h, h.manager.Tick(m.now))
		}
		for _, p := range m.proxies {
			m.proxyEffects(p, p.machine.Tick(m.now))
		}
		m.checkExit()
	}
	return m.end()
}

func (m *Machine) end() Effects {
	out := m.out
	m.out = Effects{}
	return out
}

// receive hands a message to the machine that it is for.
func (m *Machine) receive(in Received) {
	if in.Kind < KindSingleton {
		m.absorb(m.members.Step(m.now, membership.Received{From: in.From, To: in.To, Arrived: in.Arrived, Data: in.Data}))
		return
	}
	if m.now >= m.members.Next() {
		m.absorb(m.members.Tick(m.now))
	}
	if in.Kind != KindSingleton || in.To != m.self || in.From.UID == 0 || m.members.Gone(in.From) {
		m.count.Refused++
		return
	}
	msg, err := singleton.DecodeMessage(in.Data)
	if err != nil {
		m.count.Malformed++
		m.log(membership.Debug, "cannot decode a message", membership.Attr{Key: "from", Value: in.From}, membership.Attr{Key: "error", Value: err})
		return
	}
	m.singletonReceive(in.From, msg)
}

// absorb takes over what the membership wants done, and tells the others what
// follows for them.
func (m *Machine) absorb(e membership.Effects) {
	m.out.Log = append(m.out.Log, e.Log...)
	m.out.Quarantine = append(m.out.Quarantine, e.Quarantine...)
	for _, s := range e.Send {
		m.out.Send = append(m.out.Send, Send{To: s.To, Kind: Kind(s.Kind), Data: s.Data})
	}
	m.out.Events = append(m.out.Events, e.Events...)
	m.out.Life = append(m.out.Life, e.Life...)
	for _, l := range e.Life {
		m.lives(l)
	}
	m.stand()
	if len(e.Events) > 0 {
		m.see()
	}
}

// lives tells the others what became of this node.
func (m *Machine) lives(l membership.Life) {
	switch l.Kind {
	case membership.Disconnected:
		m.cut = true
		m.eachHosted(singleton.Link{Up: false})
	case membership.Connected:
		m.cut = false
		m.eachHosted(singleton.Link{Up: true})
	case membership.Suspended:
		m.eachHosted(singleton.Suspend{})
	case membership.Resumed:
		m.eachHosted(singleton.Resume{})
	case membership.Stopped:
		m.stopped = true
	case membership.Joined, membership.BecameUp, membership.Exits, membership.Downed:
	}
}

// see shows the others what this node knows now.
func (m *Machine) see() {
	v := m.members.View()
	if !m.stopped {
		m.decide(m.resolver.Step(m.now, splitbrain.View{
			Leader: v.Leader, Members: v.Members, Unreachable: v.Unreachable, Reachability: v.Reachability, Seen: v.Seen,
		}))
	}
	m.eachHosted(singleton.Members(v.Members))
	for _, p := range m.proxies {
		m.proxyEffects(p, p.machine.See(m.now, v.Members))
	}
	m.checkExit()
}

// beginExit gives away the singletons, and ends the membership when that is done.
func (m *Machine) beginExit() {
	if m.exit.begun {
		return
	}
	m.exit.begun, m.exit.by = true, m.now+m.cfg.ExitTimeout
	m.eachHosted(singleton.SelfExiting{})
	m.checkExit()
}

func (m *Machine) checkExit() {
	if !m.exit.begun || m.exit.done || m.stopped {
		return
	}
	waits := slices.IndexFunc(m.singletons, func(h *hosted) bool { return !h.exitDone })
	if waits >= 0 && m.now < m.exit.by {
		return
	}
	if waits >= 0 {
		m.count.ExitTimeouts++
		m.log(membership.Warn, "singleton: hand-over timed out", membership.Attr{Key: "singleton", Value: m.singletons[waits].name})
	}
	m.exit.done = true
	m.absorb(m.members.Step(m.now, membership.ExitingDone{}))
}

func (m *Machine) log(level membership.Level, message string, attrs ...membership.Attr) {
	m.out.Log = append(m.out.Log, membership.Line{Level: level, Message: message, Attrs: attrs})
}

// Counters are what a machine has counted since it was made.
type Counters struct {
	Membership membership.Counters
	// Downing counts the notes of the resolver.
	Downing [splitbrain.LeftToOwner + 1]uint64
	// Became counts the states that managers took.
	Became                           [singleton.End + 1]uint64
	SingletonSent, SingletonReceived [singleton.InstanceGone + 1]uint64
	// Ignored counts messages that a manager did not heed, Stuck how often one started over.
	Ignored, Stuck uint64
	// Malformed counts messages that can't be decoded, Refused what is for no machine here or from
	// a node that is gone.
	Malformed, Refused uint64
	// LeasesHeld, LeasesNotHeld and LeasesLost count what was said about leases.
	LeasesHeld, LeasesNotHeld, LeasesLost uint64
	// ExitTimeouts counts nodes that did not wait for a singleton any more.
	ExitTimeouts uint64
}

// Counters returns what was counted.
func (m *Machine) Counters() Counters {
	c := m.count
	c.Membership = m.members.Counters()
	return c
}

// Self returns the node.
func (m *Machine) Self() identity.Node { return m.self }

// Config returns the configuration with its defaults.
func (m *Machine) Config() Config { return m.cfg }

// View returns what the node knows of the cluster.
func (m *Machine) View() membership.View { return m.members.View() }

// Snapshot returns what a subscriber to events has to know before the next one.
func (m *Machine) Snapshot() membership.Snapshot { return m.members.Snapshot() }

// Gossip returns the state that the membership shares.
func (m *Machine) Gossip() membership.Gossip { return m.members.Gossip() }

// Member reports whether the node is a member.
func (m *Machine) Member() bool { return m.members.Member() }

// Stopped reports whether the node is no member any more and never will be.
func (m *Machine) Stopped() bool { return m.stopped }

// Suspended reports whether the node must not host anything now.
func (m *Machine) Suspended() bool { return m.members.Suspended() }

// Phi returns how much each monitored member is suspected.
func (m *Machine) Phi() map[identity.Node]float64 { return m.members.Phi() }

// Singleton is where the manager of a singleton stands.
type Singleton struct {
	Name  string
	State singleton.State
	// Instance is the one that runs, or is being stopped. 0 is none.
	Instance uint64
}

// Singletons returns where the managers stand, sorted by name.
func (m *Machine) Singletons() []Singleton {
	all := make([]Singleton, len(m.singletons))
	for i, h := range m.singletons {
		all[i] = Singleton{h.name, h.manager.State(), h.manager.Instance()}
	}
	return all
}

// Oldest returns the member that hosts a singleton or will, as its proxy finds, and whether the
// instance is known to be there. It is the zero node if there is none, or no proxy.
func (m *Machine) Oldest(name string) (identity.Node, bool) {
	if p := m.findProxy(name); p != nil {
		return p.machine.Oldest()
	}
	return identity.Node{}, false
}

// stand lets this node decide who goes on, or not: it has no say while it is cut off, nor after that as long as the others that it
// can reach know no more about who is a member than it does. All that lost their links together may decide, but not by
// lease: any side may have had that, and released it since.
func (m *Machine) stand() {
	if m.stopped {
		return
	}
	s := m.members.Standing()
	mute := s != membership.Sure && (s != membership.Together || m.cfg.Downing.Strategy == splitbrain.LeaseMajority)
	if mute != m.mute {
		m.mute = mute
		m.decide(m.resolver.Step(m.now, splitbrain.Link{Up: !mute}))
	}
}
