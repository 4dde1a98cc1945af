// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"iter"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// Never is the time of something that is not going to happen.
const Never = coordinator.Never

// Machine is what a node runs of an entity type. It is told what happens, with the time on the node's monotonic clock, and
// answers what is to be done. The same inputs at the same times give the same effects. It is not safe for concurrent use;
// what it hands out is immutable.
type Machine struct {
	cfg   Config
	self  identity.Node
	now   time.Duration
	out   Effects
	queue []func() // what the machines have to say to each other

	members  coordinator.Members
	joined   bool // this node has been a member
	removals []coordinator.Removal

	region       *region.Machine
	routeVersion uint64             // see Turn
	waiting      map[uint64]message // by token
	tokens       uint64
	runs         map[Shard]*shardRun
	shared       int          // by how many runs the limits are shared
	limited      shard.Limits // what each of them has got, unless they are uneven
	uneven       bool
	runsAt       time.Duration // when the next run has something to do, or earlier
	recovery     recovery
	coordinator  coordinatorSlot
}

// message is one that a machine has the token of.
type message struct {
	shard Shard
	since time.Duration
	Message
}

// New returns the machine of an entity type. The error names each field that is wrong.
func New(cfg Config) (*Machine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r, err := region.New(cfg.Region)
	if err != nil {
		return nil, err
	}
	return &Machine{
		cfg: cfg, self: cfg.Region.Self, region: r, waiting: map[uint64]message{}, runs: map[Shard]*shardRun{}, runsAt: Never, coordinator: coordinatorSlot{retryAt: Never}, recovery: recovery{at: Never},
	}, nil
}

// Step handles what happened at a time, which is counted from anywhere and never goes back.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	switch in := in.(type) {
	case Members:
		m.updateMembers(in.Members)
	case Send:
		m.send(in)
	case Received:
		m.receive(in)
	case StartCoordinator:
		m.requestCoordinator()
	case StopCoordinator:
		m.stopCoordinator(in.Now)
	case CoordinatorReply:
		m.deliverReply(in.Input)
	case Rebalance:
		m.stepCoordinator(coordinator.RebalanceNow{})
	case ShardInput:
		if at := m.runs[in.Shard]; at != nil && at.Generation == in.Generation {
			m.runStep(at, in.Input)
		}
	case Drop:
		m.regionStep(region.Drop{Tokens: in.Tokens})
	case Leave:
		m.regionStep(region.Leave{KeepRouting: in.KeepRouting})
	case Undrain:
		m.regionStep(region.Undrain{})
	case Stop:
		m.stop()
	}
	return m.finishStep()
}

// Tick does what is due.
func (m *Machine) Tick(now time.Duration) Effects {
	m.now = max(m.now, now)
	m.tickCoordinator()
	if m.now >= m.region.Next() {
		m.routeVersion++
		m.regionEffects(m.region.Tick(m.now))
	}
	if m.now >= m.runsAt {
		m.tickRuns()
	}
	if m.now >= m.recovery.at {
		m.recover()
	}
	return m.finishStep()
}

// Next returns when Tick is to be called next. Every step may change it.
func (m *Machine) Next() time.Duration {
	return min(m.region.Next(), m.runsAt, m.recovery.at, m.coordinator.next())
}

// end lets the machines say to each other what they have to say, and hands out the effects.
func (m *Machine) finishStep() Effects {
	for {
		for len(m.queue) > 0 {
			say := m.queue[0]
			m.queue = m.queue[1:]
			say()
		}
		if m.shared == len(m.runs) && !m.uneven {
			break
		}
		m.shareLimits()
	}
	m.queue = nil
	out := m.out
	m.out = Effects{}
	return out
}

// see takes the members.
func (m *Machine) updateMembers(in coordinator.Members) {
	for _, n := range membership.Gone(m.members.Members, in.Members) {
		m.removals = append(m.removals, coordinator.Removal{Node: n, At: m.now})
	}
	m.members = in
	m.forgetRemovals()
	i, self := membership.Find(in.Members, m.self)
	down := self && in.Members[i].Status == membership.Down
	if down || m.joined && !self {
		m.stop()
		return
	}
	m.joined = m.joined || self
	m.regionStep(region.Members{Members: in.Members})
	m.stepCoordinator(m.view())
}

// InheritMembers lets a machine, which has taken no step yet, know whom the one before it saw last: who was removed since that stopped may still host
// something, so that its shards wait for the margin.
func (m *Machine) InheritMembers(before *Machine) {
	m.members, m.removals = before.members, before.removals
}

// forget drops removals that are of no matter any more.
func (m *Machine) forgetRemovals() {
	for len(m.removals) > 0 && m.now-m.removals[0].At > m.cfg.Coordinator.RemovalMargin {
		m.removals = m.removals[1:]
	}
}

// view is what a coordinator has to know about the members.
func (m *Machine) view() coordinator.Members {
	m.forgetRemovals()
	view := m.members
	view.Removed = slices.Concat(view.Removed, m.removals)
	return view
}

func (m *Machine) stop() {
	m.regionStep(region.Stop{})
	m.stopCoordinator(true)
}

// Registered reports whether a coordinator knows the region.
func (m *Machine) Registered() bool { return m.region.Registered() }

// Refused returns the node and the settings of the coordinator that does not let the region register, since it has others; nil if there is
// none.
func (m *Machine) Refused() (identity.Node, *coordinator.Settings) { return m.region.Refused() }

// Instance counts the regions of the node, and how often they have come back.
func (m *Machine) Instance() uint64 { return m.region.Instance() }

// Leaving reports whether the region takes no shards any more.
func (m *Machine) Leaving() bool { return m.region.Leaving() }

// Coordinator returns the node whose coordinator the region is registered with.
func (m *Machine) Coordinator() (identity.Node, bool) { return m.region.Coordinator() }

// Candidates returns the nodes that may have the coordinator. It must not be changed.
func (m *Machine) Candidates() []identity.Node { return m.region.Candidates() }

// Silence returns how long no coordinator has said anything, since one was asked: see region.Machine.
func (m *Machine) Silence() time.Duration { return m.region.Silence() }

// Home returns where a shard is, if that is known.
func (m *Machine) Home(s Shard) (identity.Node, bool) { return m.region.Home(s) }

// Hosted returns the shards of this node, sorted, also those that don't run at the moment.
func (m *Machine) Hosted() []Shard { return m.region.Hosted() }

// Running returns the entities of a shard that run on this node, sorted.
func (m *Machine) Running(s Shard) []string {
	if at := m.runs[s]; at != nil {
		return at.m.Running()
	}
	return nil
}

// Tracked returns how many entities a shard on this node knows: those that run, and those that will.
func (m *Machine) Tracked(s Shard) int {
	if at := m.runs[s]; at != nil {
		return at.m.Len()
	}
	return 0
}

// Waiting returns how many messages wait on this node, for homes, shards or entities.
func (m *Machine) Waiting() int { return len(m.waiting) }

// Buffered is a message that waits for a home, or for a shard.
type Buffered struct {
	Message

	Token  uint64
	Waited time.Duration // since it came to this node
}

// Buffered returns those that wait in the region.
func (m *Machine) Buffered(now time.Duration) iter.Seq[Buffered] {
	return func(yield func(Buffered) bool) {
		for token := range m.region.Tokens() {
			if msg := m.waiting[token]; !yield(Buffered{msg.Message, token, now - msg.since}) {
				return
			}
		}
	}
}

// LocalCoordinator returns the coordinator if it is on this node. It must not be told anything.
func (m *Machine) LocalCoordinator() *coordinator.Machine { return m.coordinator.machine }

// DirectRoute returns where messages for a shard go, and whose go there at once, past the machine: to another node, or to an entity that runs
// here. Whoever lets them go there tells by Touch.
func (m *Machine) DirectRoute(s Shard) region.DirectRoute { return m.region.DirectRoute(s) }

// RouteVersion changes when the way of any shard may have changed, but for that of the shard of a Send, or of a message that was received.
func (m *Machine) RouteVersion() uint64 { return m.routeVersion }

// Touch tells that entities of a shard have been needed.
func (m *Machine) Touch(now time.Duration, s Shard, entities []string) Effects {
	m.now = max(m.now, now)
	if at := m.runs[s]; at != nil {
		m.runEffects(at, at.m.Touch(m.now, entities))
	}
	return m.finishStep()
}

// turns reports whether an input may change the way of another shard than its own.
func changesRoutes(in region.Input) bool {
	switch in := in.(type) {
	case region.Send:
		return false
	case region.FrameReceived:
		return in.Frame.Kind != region.Forward
	}
	return true
}
