// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// Machine is the region or the proxy of a node. It is told what happens, with the time on the node's monotonic clock, and
// answers what is to be done. It is not safe for concurrent use; what it hands out is not changed any more.
type Machine struct {
	cfg     Config
	now     time.Duration
	out     Effects
	members []membership.Member

	term             uint64
	coordinatorNode  identity.Node   // who has said something with that term
	candidates       []identity.Node // who may have the coordinator
	registered       bool
	refusal          *coordinator.Settings // of the coordinator that has refused this region
	registerAt       time.Duration
	pause            time.Duration // until it registers again
	repeatAt         time.Duration
	waitingSince     time.Duration // when a coordinator was asked first, if none has said anything since
	registeringSince time.Duration // when it began to look for one
	verifying        bool          // that the one it is registered with is still there
	leaving          bool
	keepsRouting     bool // when it has left
	stopping         bool // by force
	stopped          bool

	lastHeard   map[Shard]messageClock
	homes       map[Shard]identity.Node // of others
	hosted      map[Shard]*hostedShard
	generations uint64
	restartAt   time.Duration // when the next shard that failed is due
	buffers     map[Shard]*buffer
	buffered    int

	inFlight    [2]map[Shard]identity.Node // where messages went to that may be under way
	flushes     []*flush
	flushing    [2]map[Shard]*flush
	flushIDs    uint64
	pendingAcks []pendingAck
}

// said orders what coordinators said.
type messageClock struct{ term, round uint64 }

func (s messageClock) before(other messageClock) bool {
	return s.term < other.term || s.term == other.term && s.round < other.round
}

// host is a shard on this node.
type hostedShard struct {
	generation uint64
	running    bool
	restartAt  time.Duration
	moving     bool // what is sent here waits; what others forward is taken
	stopping   bool
	replyDue   bool // to the last HandOff
	replyTo    identity.Node
	replyClock messageClock
	startAgain bool // it is to be started afterwards
}

// New returns a region. The error matches ErrInvalid and names each field that is wrong.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Machine{
		cfg: cfg, pause: firstPause(cfg), restartAt: coordinator.Never, waitingSince: coordinator.Never, lastHeard: map[Shard]messageClock{}, homes: map[Shard]identity.Node{}, hosted: map[Shard]*hostedShard{}, buffers: map[Shard]*buffer{},
		inFlight: [2]map[Shard]identity.Node{{}, {}}, flushing: [2]map[Shard]*flush{{}, {}},
	}, nil
}

// Step takes an input at a time, which is counted from anywhere and never goes back.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	switch in := in.(type) {
	case Members:
		m.updateMembers(in.Members)
	case CoordinatorMessage:
		m.receiveMessage(in.From, in.Message)
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
	case Stop:
		m.stop()
	}
	return m.takeEffects()
}

// Tick repeats what was not answered.
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
			m.sendToCandidates(coordinator.GracefulShutdown)
		}
		m.verifyCoordinator()
	}
	return m.takeEffects()
}

// Next returns when Tick is to be called next. Every step may change it.
func (m *Machine) Next() time.Duration {
	next := min(m.repeatAt, m.restartAt)
	if m.registering() {
		next = min(next, m.registerAt)
	}
	if at := m.giveUpAt(); at > m.now { // else what waits has a home
		next = min(next, at)
	}
	return next
}

// restart starts remembered shards again that failed, when their time has come.
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

// Registered reports whether the coordinator knows the region.
func (m *Machine) Registered() bool { return m.registered }

// Refused returns the node and the settings of the coordinator that does not let this region register, since it has others; nil if there
// is none.
func (m *Machine) Refused() (identity.Node, *coordinator.Settings) {
	return m.coordinatorNode, m.refusal
}

// Coordinator returns the node whose coordinator the region is registered with.
func (m *Machine) Coordinator() (identity.Node, bool) { return m.coordinatorNode, m.registered }

// Candidates returns the nodes that may have the coordinator, as far as this one knows: those that are asked. It must not be changed.
func (m *Machine) Candidates() []identity.Node { return m.candidates }

// Leaving reports whether the region takes no shards any more.
func (m *Machine) Leaving() bool { return m.leaving || m.stopping }

// Stopping reports whether the region was ended by force.
func (m *Machine) Stopping() bool { return m.stopping }

// Hosted returns the shards on this node, sorted.
func (m *Machine) Hosted() []Shard { return slices.Sorted(maps.Keys(m.hosted)) }

// Home returns where a shard is, if that is known.
func (m *Machine) Home(s Shard) (identity.Node, bool) {
	if m.hosted[s] != nil {
		return m.cfg.Self, true
	}
	n, found := m.homes[s]
	return n, found
}

// Buffered returns how many messages wait.
func (m *Machine) Buffered() int { return m.buffered }

// Tokens returns those of the messages that wait, by shards, in the order in which each line of a shard goes on.
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

// flush hands out the effects.
func (m *Machine) takeEffects() Effects {
	m.giveUp()
	if (m.willStop() && m.buffered == 0 || m.stopping) && len(m.hosted) == 0 && !m.stopped && (m.stopping || m.allArrived()) {
		m.stopped, m.out.Stopped = true, true
		m.sendToCandidates(coordinator.RegionStopped)
	}
	out := m.out
	m.out = Effects{}
	return out
}

// leave gives all shards away. Who stops will not stay.
func (m *Machine) leave(stay bool) {
	m.keepsRouting = stay && (m.keepsRouting || !m.leaving)
	if !m.leaving {
		m.leaving = true
		m.registeringSince = m.now // a coordinator that did not answer while the node was Joining is asked as one that leaves now
		if m.preparing() && !m.keepsRouting {
			m.stopAll()
			return
		}
		m.sendToCandidates(coordinator.GracefulShutdown)
	}
	m.verifyCoordinator()
}

// undrain takes shards again, as another instance: for the coordinator, the one before leaves.
func (m *Machine) undrain() {
	if !m.leaving || !m.keepsRouting || m.stopping || m.stopped {
		return
	}
	m.leaving, m.keepsRouting = false, false
	m.cfg.Instance++
	m.unregister()
}

// Instance counts the regions of the node, and how often they have come back.
func (m *Machine) Instance() uint64 { return m.cfg.Instance }

// preparing reports whether the whole cluster is about to stop.
func (m *Machine) preparing() bool {
	return slices.ContainsFunc(m.members, func(at membership.Member) bool {
		return at.Node == m.cfg.Self && (at.Status == membership.PreparingForShutdown || at.Status == membership.ReadyForShutdown)
	})
}

// stopAll stops all shards in order, without giving them to anybody: all others are about to stop as well.
func (m *Machine) stopAll() {
	for _, s := range slices.Sorted(maps.Keys(m.hosted)) {
		if h := m.hosted[s]; !h.stopping {
			h.startAgain = false
			m.stopShard(s)
		}
	}
	m.refuseWaiting()
}

// stop ends all by force.
func (m *Machine) stop() {
	m.stopping = true
	for _, s := range slices.Sorted(maps.Keys(m.hosted)) {
		m.abort(s)
	}
	m.refuseWaiting()
}

// refuseWaiting refuses all that waits.
func (m *Machine) refuseWaiting() {
	for _, s := range slices.Sorted(maps.Keys(m.buffers)) {
		for _, line := range m.buffers[s].queues() {
			m.refuseAll(s, line, RegionStopped, anyMessage)
		}
		m.deleteIfEmpty(s)
	}
}

// DirectRoute says where messages for a shard go, and whose go there at once: nothing waits before them, and that they go changes
// nothing in the region.
type DirectRoute struct {
	// Home is the node.
	Home identity.Node
	// Own says that messages of this node do.
	Own bool
	// Peers says that messages of other nodes do, to this one.
	Peers bool
}

// DirectRoute returns that of a shard. It is as it was until the next step, but for what a Send or a forwarded message does to the way of its own
// shard.
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
			Home: m.cfg.Self, Own: b == nil && !h.moving && !used && m.flushing[sent][s] == nil,
			Peers: b == nil || len(b.first)+len(b.second) == 0,
		}
	}
	n, found := m.homes[s]
	if !found || b != nil || m.inFlight[sent][s] != n || m.flushing[sent][s] != nil {
		return DirectRoute{}
	}
	return DirectRoute{Home: n, Own: true}
}
