// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

// Never is the time of an event that does not occur.
const Never = membership.Never

// Machine is one node of a cluster. Inputs come with the time on the node's monotonic clock. The
// same inputs at the same times give the same effects. It is not safe for concurrent use. Its
// results are immutable.
type Machine struct {
	cfg        Config
	self       identity.Node
	members    *membership.Machine
	resolver   *splitbrain.Resolver
	singletons []*hosted // sorted by name
	proxies    []*proxy  // sorted by name

	now          time.Duration
	out          Effects
	tickAt       time.Duration // the next tick of the machines that have no Next; each second
	stopped      bool
	disconnected bool // the node does not receive its own heartbeats
	noVote       bool // the node must not take downing decisions
	exit         exit
	count        Counters
}

type exit struct {
	begun, done bool
	by          time.Duration // when the node stops waiting for its singletons
}

// New returns the machine of a node that is not a member yet. The error matches ErrInvalid and
// lists the invalid fields.
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
	return &Machine{cfg: cfg, self: cfg.Membership.Self, members: members, resolver: resolver, tickAt: time.Second}, nil
}

// Step handles an input at a time. Time must not decrease.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	if _, received := in.(Received); !received && m.now >= m.members.Next() {
		// After a pause of the process, the membership is handled first, because this node may have
		// been downed since.
		m.collectMembership(m.members.Tick(m.now))
	}
	switch in := in.(type) {
	case Membership:
		m.collectMembership(m.members.Step(m.now, in.Input))
	case Received:
		m.receive(in)
	case Exit:
		m.beginExit()
	case InstanceEnded:
		m.hostedStep(m.find(in.Instance.Singleton), singleton.InstanceEnded{Instance: in.Instance.Nr})
	case LeaseAnswer:
		m.leaseAnswered(in)
	case LeaseReleased:
		m.leaseStep(in.Lease, splitbrain.LeaseReleased{Done: in.Done}, singleton.LeaseReleased{})
	case LeaseLost:
		m.count.LeasesLost++
		m.leaseStep(in.Lease, splitbrain.LeaseLost{}, singleton.LeaseLost{})
	case Forward:
		m.forward(in)
	}
	return m.end()
}

// Next returns the time of the next Tick, or Never. Every step may change it.
func (m *Machine) Next() time.Duration {
	if m.stopped && !slices.ContainsFunc(m.singletons, func(h *hosted) bool { return h.manager.Instance() != 0 }) {
		return Never
	}
	return min(m.members.Next(), m.tickAt)
}

// Tick handles everything that is due.
func (m *Machine) Tick(now time.Duration) Effects {
	m.now = max(m.now, now)
	m.collectMembership(m.members.Tick(m.now))
	if m.now >= m.tickAt {
		m.tickAt = m.now + time.Second
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

func (m *Machine) receive(in Received) {
	if in.Kind < KindSingleton {
		m.collectMembership(m.members.Step(m.now, membership.Received{From: in.From, To: in.To, Arrived: in.Arrived, Data: in.Data}))
		return
	}
	if m.now >= m.members.Next() {
		m.collectMembership(m.members.Tick(m.now))
	}
	if in.Kind != KindSingleton || in.To != m.self || m.members.Gossip().Member(in.From) == nil {
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

func (m *Machine) collectMembership(e membership.Effects) {
	m.out.Log = append(m.out.Log, e.Log...)
	m.out.Quarantine = append(m.out.Quarantine, e.Quarantine...)
	m.out.Send = append(m.out.Send, e.Send...)
	m.out.Events = append(m.out.Events, e.Events...)
	m.out.Life = append(m.out.Life, e.Life...)
	for _, l := range e.Life {
		m.shareLife(l)
	}
	m.updateVote()
	if len(e.Events) > 0 {
		m.shareView()
	}
}

func (m *Machine) shareLife(l membership.Life) {
	switch l.Kind {
	case membership.Disconnected:
		m.disconnected = true
		m.eachHosted(singleton.Link{Up: false})
	case membership.Connected:
		m.disconnected = false
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

func (m *Machine) shareView() {
	v := m.members.View()
	if !m.stopped {
		m.decide(m.resolver.Step(m.now, splitbrain.View(v)))
	}
	m.eachHosted(singleton.Members(v.Members))
	for _, p := range m.proxies {
		m.proxyEffects(p, p.machine.See(m.now, v.Members))
	}
	m.checkExit()
}

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
	m.collectMembership(m.members.Step(m.now, membership.ExitingDone{}))
}

func (m *Machine) log(level membership.Level, message string, attrs ...membership.Attr) {
	m.out.Log = append(m.out.Log, membership.Line{Level: level, Message: message, Attrs: attrs})
}

// Counters are counts since the start of the machine.
type Counters struct {
	Membership membership.Counters
	// Downing counts the notes of the resolver by kind.
	Downing [splitbrain.LeftToOwner + 1]uint64
	// Became counts the states that managers have entered.
	Became                           [singleton.End + 1]uint64
	SingletonSent, SingletonReceived [singleton.InstanceGone + 1]uint64
	// Ignored counts messages that managers ignored. Stuck counts how often a manager restarted.
	Ignored, Stuck uint64
	// Malformed counts messages that could not be decoded. Refused counts messages for which this
	// node has no machine, and messages from nodes that are not members.
	Malformed, Refused uint64
	// LeasesHeld, LeasesNotHeld and LeasesLost count results of lease operations.
	LeasesHeld, LeasesNotHeld, LeasesLost uint64
	// ExitTimeouts counts time-outs of hand-overs while leaving.
	ExitTimeouts uint64
}

// Counters returns the counters.
func (m *Machine) Counters() Counters {
	c := m.count
	c.Membership = m.members.Counters()
	return c
}

// Self returns the node.
func (m *Machine) Self() identity.Node { return m.self }

// Config returns the configuration with its defaults.
func (m *Machine) Config() Config { return m.cfg }

// RemovalMargin returns the time between the removal of a member, from a cluster with a number of
// members, and the start of its work on other nodes.
func (m *Machine) RemovalMargin(members int) time.Duration {
	return m.cfg.Downing.For(members).RemovalMargin
}

// View returns the node's view of the cluster.
func (m *Machine) View() membership.View { return m.members.View() }

// Gossip returns the state of the membership.
func (m *Machine) Gossip() membership.Gossip { return m.members.Gossip() }

// Member reports whether the node is a member.
func (m *Machine) Member() bool { return m.members.Member() }

// Stopped reports whether the membership has ended permanently.
func (m *Machine) Stopped() bool { return m.stopped }

// Suspended reports whether the node must not host.
func (m *Machine) Suspended() bool { return m.members.Suspended() }

// Phi returns the suspicion level of each monitored member.
func (m *Machine) Phi() map[identity.Node]float64 { return m.members.Phi() }

// Singleton is the state of a singleton's manager.
type Singleton struct {
	Name  string
	State singleton.State
	// Instance is the instance that runs or is being stopped. 0 means none.
	Instance uint64
}

// Singletons returns the states of the managers, sorted by name.
func (m *Machine) Singletons() []Singleton {
	all := make([]Singleton, len(m.singletons))
	for i, h := range m.singletons {
		all[i] = Singleton{h.name, h.manager.State(), h.manager.Instance()}
	}
	return all
}

// Oldest returns the member that runs a singleton or will run it, according to its proxy, and
// whether the instance is known to run. Without such a member or without a proxy it returns the
// zero node.
func (m *Machine) Oldest(name string) (identity.Node, bool) {
	if p := m.findProxy(name); p != nil {
		return p.machine.Oldest()
	}
	return identity.Node{}, false
}

// updateVote enables or disables the downing resolver. It is disabled while this node is
// disconnected, and afterwards until a reachable member can confirm its membership. Members that
// lost their connections together may decide, except with a lease: another side may have held the
// lease and released it since.
func (m *Machine) updateVote() {
	if m.stopped {
		return
	}
	s := m.members.Connectivity()
	noVote := s != membership.Confirmed && (s != membership.LostTogether || m.cfg.Downing.Strategy == downing.LeaseMajority)
	if noVote != m.noVote {
		m.noVote = noVote
		m.decide(m.resolver.Step(m.now, splitbrain.Link{Up: !noVote}))
	}
}
