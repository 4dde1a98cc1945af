// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// Machine is the state machine of a region or a proxy. Each step gets the time of the node's
// monotonic clock and returns effects. It is not safe for concurrent use. Its results are
// immutable.
type Machine struct {
	cfg     Config
	now     time.Duration
	out     Effects
	members []identity.Member

	followed string // see SetFollowed

	term             uint64
	coordinatorNode  identity.Node   // the sender of the last message of that term
	checkTermAt      time.Duration   // earliest time of the next CheckTerm
	candidates       []identity.Node // the nodes that may run the coordinator
	registered       bool
	refusal          *coordinator.Settings // settings of the coordinator that rejected this region
	registerAt       time.Duration
	pause            time.Duration // between registrations
	repeatAt         time.Duration
	waitingSince     time.Duration // time of the first request after the last message of a coordinator
	registeringSince time.Duration // start of the current search for the coordinator
	verifying        bool          // the registration is being verified
	leaving          bool
	keepsRouting     bool // continues to route after leaving
	stopping         bool // the region was stopped by force
	stopped          bool

	lastHeard   map[Shard]messageClock
	homes       map[Shard]identity.Node // homes on other nodes
	hosted      map[Shard]*hostedShard
	generations uint64
	restartAt   time.Duration // next start of a failed shard
	buffers     map[Shard]*buffer
	buffered    int

	inFlight    [2]map[Shard]identity.Node // receivers of messages that may be in flight, by hop
	flushes     []*flush
	flushing    [2]map[Shard]*flush
	flushIDs    uint64
	pendingAcks []pendingAck
}

// messageClock orders the messages of coordinators.
type messageClock struct{ term, round uint64 }

type hostedShard struct {
	generation uint64
	running    bool
	restartAt  time.Duration
	moving     bool // local messages wait, forwarded ones are accepted
	stopping   bool
	replyDue   bool // a Stopped reply is due
	replyTo    identity.Node
	replyClock messageClock
	startAgain bool // start it again after it has stopped
}

// New returns a machine. The error matches ErrInvalid and names each invalid field.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return newMachine(cfg.withDefaults()), nil
}

// Successor returns the next instance of a region that has stopped. It has no members yet. Its
// generations continue.
func (m *Machine) Successor() *Machine {
	next := newMachine(m.cfg)
	next.cfg.Instance++
	next.generations = m.generations
	return next
}

func newMachine(cfg Config) *Machine {
	return &Machine{
		cfg: cfg, pause: firstPause(cfg), restartAt: coordinator.Never, waitingSince: coordinator.Never, lastHeard: map[Shard]messageClock{}, homes: map[Shard]identity.Node{}, hosted: map[Shard]*hostedShard{}, buffers: map[Shard]*buffer{},
		inFlight: [2]map[Shard]identity.Node{{}, {}}, flushing: [2]map[Shard]*flush{{}, {}},
	}
}

// Step handles an input. The time has any origin and never decreases.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	switch in := in.(type) {
	case Members:
		m.updateMembers(in.Members)
	case CoordinatorMessage:
		m.receiveMessage(in.From, in.Message)
	case TermChecked:
		m.termChecked(in)
	case Send:
		m.sendLocal(in)
	case FrameReceived:
		m.receiveFrame(in.From, in.Frame)
	case ShardDone:
		m.shardDone(in)
	case Drop:
		m.dropAbandoned(in.Tokens)
	case Leave:
		m.leave(in.KeepRouting)
	case Undrain:
		m.undrain()
	case ReportLoad:
		if m.registered && !m.stopped {
			m.send(m.coordinatorNode, coordinator.Message{Kind: coordinator.Hosted, Term: m.term, Load: in.Load})
		}
	case Stop:
		m.stop()
	}
	return m.takeEffects()
}

// Tick repeats unanswered requests and starts everything that is due.
func (m *Machine) Tick(now time.Duration) Effects {
	m.now = max(m.now, now)
	if m.registering() && m.now >= m.registerAt {
		m.register()
	}
	if m.now >= m.restartAt {
		m.restart()
	}
	if m.now >= m.repeatAt {
		m.repeatAt = m.now + m.cfg.RetryInterval
		m.requestHomes(slices.Sorted(maps.Keys(m.buffers)))
		for _, f := range m.flushes {
			m.sendFlush(f)
		}
		if m.leaving && !m.stopped && (m.keepsRouting || !m.preparing()) {
			m.sendToCandidates(coordinator.Message{Kind: coordinator.GracefulShutdown})
		}
		m.verifyCoordinator()
	}
	return m.takeEffects()
}

// Next returns the time of the next call of Tick. Each step may change it.
func (m *Machine) Next() time.Duration {
	next := min(m.repeatAt, m.restartAt)
	if m.registering() {
		next = min(next, m.registerAt)
	}
	if at := m.giveUpAt(); at > m.now { // if the time has passed, all messages that still wait have a home
		next = min(next, at)
	}
	return next
}

// restart starts failed shards of remembered entities that are due.
func (m *Machine) restart() {
	m.restartAt = coordinator.Never
	for _, s := range slices.Sorted(maps.Keys(m.hosted)) {
		h := m.hosted[s]
		switch {
		case h.running:
		case m.now >= h.restartAt:
			m.drain(s)
		default:
			m.restartAt = min(m.restartAt, h.restartAt)
		}
	}
}

// Registered reports whether the region is registered with a coordinator.
func (m *Machine) Registered() bool { return m.registered }

// Refused returns the node and the settings of the coordinator that rejects this region, nil if
// none does.
func (m *Machine) Refused() (identity.Node, *coordinator.Settings) {
	return m.coordinatorNode, m.refusal
}

// Coordinator returns the node whose coordinator the region is registered with.
func (m *Machine) Coordinator() (identity.Node, bool) { return m.coordinatorNode, m.registered }

// Candidates returns the nodes that may run the coordinator, to which the region sends its
// requests. The caller must not modify the slice.
func (m *Machine) Candidates() []identity.Node { return m.candidates }

// Leaving reports whether the region accepts no shards.
func (m *Machine) Leaving() bool { return m.leaving || m.stopping }

// Stopping reports whether the region was stopped by force.
func (m *Machine) Stopping() bool { return m.stopping }

// SetFollowed sets the position that the standbys of this node have reached, see
// coordinator.Message.Followed.
func (m *Machine) SetFollowed(position string) { m.followed = position }

// Hosted returns the shards on this node, sorted.
func (m *Machine) Hosted() []Shard { return slices.Sorted(maps.Keys(m.hosted)) }

// Home returns the home of a shard, if it is known.
func (m *Machine) Home(s Shard) (identity.Node, bool) {
	if m.hosted[s] != nil {
		return m.cfg.Self, true
	}
	n, found := m.homes[s]
	return n, found
}

// Tokens returns the tokens of the waiting messages by shard, in the order of each queue.
func (m *Machine) Tokens() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, s := range slices.Sorted(maps.Keys(m.buffers)) {
			for _, line := range m.buffers[s].queues() {
				for _, msg := range *line {
					if !yield(msg.token) {
						return
					}
				}
			}
		}
	}
}

func (m *Machine) takeEffects() Effects {
	m.giveUp()
	if (m.willStop() && m.buffered == 0 || m.stopping) && len(m.hosted) == 0 && !m.stopped && (m.stopping || m.allArrived()) {
		m.stopped, m.out.Stopped = true, true
		m.sendToCandidates(coordinator.Message{Kind: coordinator.RegionStopped})
	}
	out := m.out
	m.out = Effects{}
	return out
}

// leave hands off all shards. After a Leave that stops the region, stay has no effect.
func (m *Machine) leave(stay bool) {
	m.keepsRouting = stay && (m.keepsRouting || !m.leaving)
	if !m.leaving {
		m.leaving = true
		m.registeringSince = m.now // a coordinator that did not reply to a Joining node replies to a leaving one
		if m.preparing() && !m.keepsRouting {
			m.stopAll()
			return
		}
		m.sendToCandidates(coordinator.Message{Kind: coordinator.GracefulShutdown})
	}
	m.verifyCoordinator()
}

// undrain accepts shards again as another instance, because the coordinator regards the old
// instance as leaving.
func (m *Machine) undrain() {
	if !m.leaving || !m.keepsRouting || m.stopping || m.stopped {
		return
	}
	m.leaving, m.keepsRouting = false, false
	m.cfg.Instance++
	m.unregister()
}

// Instance returns the number of this region on the node. Each Undrain increments it.
func (m *Machine) Instance() uint64 { return m.cfg.Instance }

// preparing reports whether the whole cluster is about to stop.
func (m *Machine) preparing() bool {
	return slices.ContainsFunc(m.members, func(at identity.Member) bool {
		return at.Node == m.cfg.Self && (at.Status == identity.PreparingForShutdown || at.Status == identity.ReadyForShutdown)
	})
}

// stopAll stops all shards without a hand-off, because all other nodes are about to stop, too.
func (m *Machine) stopAll() {
	for _, s := range slices.Sorted(maps.Keys(m.hosted)) {
		if h := m.hosted[s]; !h.stopping {
			h.startAgain = false
			m.stopShard(s)
		}
	}
	m.refuseWaiting(func(Shard) bool { return true })
}

func (m *Machine) stop() {
	m.stopping = true
	for _, s := range slices.Sorted(maps.Keys(m.hosted)) {
		m.abort(s)
	}
	m.refuseWaiting(func(Shard) bool { return true })
}

// refuseWaiting refuses the waiting messages of the shards that match.
func (m *Machine) refuseWaiting(which func(Shard) bool) {
	for _, s := range slices.Sorted(maps.Keys(m.buffers)) {
		if which(s) {
			m.refuseShard(s, shard.Stopped, anyMessage)
		}
	}
}

// DirectRoute is the route of messages that may bypass the machine: no earlier message waits, and
// the messages do not change the state of the region.
type DirectRoute struct {
	// Home is the receiving node, and Here reports whether that is this node.
	Home identity.Node
	Here bool
	// Own is set if messages of local senders may use the route.
	Own bool
	// Peers is set if messages of other nodes may use it. In this case, Home is this node.
	Peers bool
}

// DirectRoute returns the direct route of a shard. It is valid until the next step; a Send or
// Forward changes only the route of its own shard.
func (m *Machine) DirectRoute(s Shard) DirectRoute {
	if m.stopped || m.stopping || m.willStop() {
		return DirectRoute{}
	}
	b := m.buffers[s]
	if h := m.hosted[s]; h != nil {
		if !h.running || h.stopping {
			return DirectRoute{}
		}
		_, used := m.inFlight[sent][s]
		return DirectRoute{
			Home: m.cfg.Self, Here: true, Own: b == nil && !h.moving && !used && m.flushing[sent][s] == nil,
			Peers: b == nil || len(b.first)+len(b.second) == 0,
		}
	}
	n, found := m.homes[s]
	if !found || b != nil || m.inFlight[sent][s] != n || m.flushing[sent][s] != nil {
		return DirectRoute{}
	}
	return DirectRoute{Home: n, Own: true}
}
