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

// Never is the time of an event that does not occur.
const Never = coordinator.Never

// Machine is the state machine of an entity type on a node. Each step gets the time of the node's
// monotonic clock and returns effects. The same inputs at the same times have the same effects. It
// is not safe for concurrent use. Its results are immutable.
type Machine struct {
	cfg   Config
	self  identity.Node
	now   time.Duration
	out   Effects
	queue []func() // messages between the machines

	members   coordinator.Members
	joined    bool // this node was a member
	removals  []coordinator.Removal
	suspended bool // the node is suspended
	halted    bool // stopped because the node was suspended; ends with the restart
	stopped   bool // the region has no running entities and accepts no messages
	ending    bool // the region ends and does not start again
	drained   bool // hosts nothing until Undrain

	region       *region.Machine
	routeVersion uint64             // see RouteVersion
	waiting      map[uint64]message // waiting messages by token
	tokens       uint64
	runs         map[Shard]*shardRun
	shared       int          // number of runs that share the limits
	limited      shard.Limits // share of each run, unless uneven
	uneven       bool
	runsAt       time.Duration // lower bound of the next time of all runs
	recovery     recovery
	coordinator  coordinatorSlot
}

type message struct {
	shard Shard
	since time.Duration
	Message
}

// New returns a machine. The error names each invalid field.
func New(cfg Config) (*Machine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r, _ := region.New(cfg.Region) // the configuration was checked
	return &Machine{
		cfg: cfg, self: cfg.Region.Self, region: r, waiting: map[uint64]message{}, runs: map[Shard]*shardRun{}, runsAt: Never, coordinator: coordinatorSlot{retryAt: Never}, recovery: recovery{at: Never},
	}, nil
}

// Step handles an input. The time has any origin and never decreases.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	switch in := in.(type) {
	case Members:
		m.updateMembers(in)
	case Send:
		m.send(in)
	case Received:
		m.receive(in)
	case Forwarded:
		m.forwarded(in)
	case StartCoordinator:
		m.coordinator.requested = true
		m.beginCoordinator()
	case StopCoordinator:
		m.coordinator.requested = false
		m.out.CoordinatorStopped = !m.coordinator.runs
		m.stopCoordinator(in.Now)
	case CoordinatorReply:
		m.stepCoordinator(in.Input)
	case TermChecked:
		m.regionStep(region.TermChecked(in))
	case SetPin:
		m.stepCoordinator(coordinator.SetPin(in))
	case Rebalance:
		m.stepCoordinator(coordinator.RebalanceNow{})
	case ShardInput:
		if at := m.runs[in.Shard]; at != nil && at.Generation == in.Generation {
			m.runStep(at, in.Input)
		}
	case Drop:
		m.regionStep(region.Drop{Tokens: in.Tokens})
	case Leave:
		m.leave(in.KeepRouting)
	case Undrain:
		if m.drained = false; !m.halted && !m.ending {
			m.regionStep(region.Undrain{})
		}
	case ReportLoad:
		m.reportLoad(in.Load)
	case Stop:
		if m.ending = true; !m.stopped {
			m.stop()
		}
	}
	return m.finishStep()
}

// Tick runs everything that is due.
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

// Next returns the time of the next call of Tick. Each step may change it.
func (m *Machine) Next() time.Duration {
	return min(m.region.Next(), m.runsAt, m.recovery.at, m.coordinator.next())
}

func (m *Machine) finishStep() Effects {
	m.deliverQueue()
	if m.halted && m.stopped && !m.suspended && !m.ending {
		m.restart()
		m.deliverQueue()
	}
	m.out.Stopped = m.stopped && (m.ending || !m.halted)
	out := m.out
	m.out = Effects{}
	return out
}

func (m *Machine) deliverQueue() {
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
}

// updateMembers handles a new membership. A suspended node stops everything at once, because other
// nodes may take its shards.
func (m *Machine) updateMembers(in Members) {
	if m.suspended = in.Suspended; m.suspended {
		if !m.halted {
			m.halted = true
			m.stop()
		}
		return
	}
	m.removals = append(m.removals, coordinator.Removals(m.now, m.members.Members, in.Members.Members, m.cfg.Coordinator.RemovalMargin)...)
	m.members = in.Members
	m.forgetRemovals()
	i, self := membership.Find(m.members.Members, m.self)
	down := self && m.members.Members[i].Status == identity.Down
	if down || m.joined && !self {
		m.ending = true
		m.stop()
		return
	}
	m.joined = m.joined || self
	if !m.halted || !m.stopped { // if both are true, restart passes the membership to the next region
		m.regionStep(region.Members{Members: m.members.Members})
	}
	m.stepCoordinator(m.view())
}

// restart starts the next region of a node that is no longer suspended. The membership is kept:
// nodes that were removed since the stop may still host entities, so their shards must wait for the
// removal margin.
func (m *Machine) restart() {
	m.region = m.region.Successor()
	m.halted, m.stopped, m.out.Restarted = false, false, true
	m.regionStep(region.Members{Members: m.members.Members})
	if m.coordinator.requested {
		m.beginCoordinator()
	}
	if m.drained {
		m.regionStep(region.Leave{KeepRouting: true})
	}
}

// leave hands off all shards, then ends the region unless it keeps routing.
func (m *Machine) leave(keepRouting bool) {
	if keepRouting {
		m.drained = true
	} else {
		m.ending = true
	}
	if !m.stopped && (!m.halted || !keepRouting) {
		m.regionStep(region.Leave{KeepRouting: keepRouting})
	}
}

func (m *Machine) forgetRemovals() {
	m.removals = slices.DeleteFunc(m.removals, func(r coordinator.Removal) bool { return m.now > r.Until })
}

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

// Registered reports whether the region is registered with a coordinator.
func (m *Machine) Registered() bool { return m.region.Registered() }

// Refused returns the node and the settings of the coordinator that rejects the region, nil if none
// does.
func (m *Machine) Refused() (identity.Node, *coordinator.Settings) { return m.region.Refused() }

// Instance returns the number of this region on the node: see region.Machine.Instance.
func (m *Machine) Instance() uint64 { return m.region.Instance() }

// Halted reports whether the region has stopped, or stops because its node is suspended.
func (m *Machine) Halted() bool { return m.halted || m.stopped }

// Ending reports whether the region ends and does not start again.
func (m *Machine) Ending() bool { return m.ending }

// Drained reports whether the region hosts nothing until Undrain.
func (m *Machine) Drained() bool { return m.drained }

// Leaving reports whether the region accepts no shards.
func (m *Machine) Leaving() bool { return m.region.Leaving() }

// Coordinator returns the node whose coordinator the region is registered with.
func (m *Machine) Coordinator() (identity.Node, bool) { return m.region.Coordinator() }

// Candidates returns the nodes that may run the coordinator. The caller must not modify the slice.
func (m *Machine) Candidates() []identity.Node { return m.region.Candidates() }

// Silence returns for how long no coordinator has replied: see region.Machine.Silence.
func (m *Machine) Silence() time.Duration { return m.region.Silence() }

// Home returns the home of a shard, if it is known.
func (m *Machine) Home(s Shard) (identity.Node, bool) { return m.region.Home(s) }

// SetFollowed is region.Machine.SetFollowed.
func (m *Machine) SetFollowed(position string) { m.region.SetFollowed(position) }

// Hosted returns the shards of this node, sorted, including failed ones.
func (m *Machine) Hosted() []Shard { return m.region.Hosted() }

// Running returns the running entities of a shard on this node, sorted.
func (m *Machine) Running(s Shard) []string {
	if at := m.runs[s]; at != nil {
		return at.m.Running()
	}
	return nil
}

// Starts reports whether an entity of this node does not run, and starts without another message.
func (m *Machine) Starts(s Shard, entity string) bool {
	at := m.runs[s]
	return at != nil && at.m.Starts(entity)
}

// Tracked returns the number of running and starting entities of a shard on this node.
func (m *Machine) Tracked(s Shard) int {
	if at := m.runs[s]; at != nil {
		return at.m.Len()
	}
	return 0
}

// Waiting returns how many messages wait on this node for homes, shards or entities.
func (m *Machine) Waiting() int { return len(m.waiting) }

// Messages returns the messages that wait on this node, in any order. The driver refuses them if the
// machine has failed.
func (m *Machine) Messages() iter.Seq[Message] {
	return func(yield func(Message) bool) {
		for _, msg := range m.waiting {
			if !yield(msg.Message) {
				return
			}
		}
	}
}

// Buffered is a message that waits for a home or for a shard.
type Buffered struct {
	Message

	Token  uint64
	Waited time.Duration // since its arrival on this node
}

// Buffered returns the messages that wait in the region.
func (m *Machine) Buffered(now time.Duration) iter.Seq[Buffered] {
	return func(yield func(Buffered) bool) {
		for token := range m.region.Tokens() {
			if msg := m.waiting[token]; !yield(Buffered{msg.Message, token, now - msg.since}) {
				return
			}
		}
	}
}

// LocalCoordinator returns the coordinator, nil if this node does not run it. The caller must not
// step it.
func (m *Machine) LocalCoordinator() *coordinator.Machine { return m.coordinator.machine }

// DirectRoute returns the route of messages that may bypass the machine: to another node, or to a
// running entity of this node. The driver reports the receiving entities with Touch.
func (m *Machine) DirectRoute(s Shard) region.DirectRoute { return m.region.DirectRoute(s) }

// RouteVersion changes when direct routes may have changed, except for the route of the shard of a
// Send or of a received message.
func (m *Machine) RouteVersion() uint64 { return m.routeVersion }

// Touch reports entities of a shard that received messages on the direct route.
func (m *Machine) Touch(now time.Duration, s Shard, entities []string) Effects {
	m.now = max(m.now, now)
	if at := m.runs[s]; at != nil {
		m.runEffects(at, at.m.Touch(m.now, entities))
	}
	return m.finishStep()
}

// changesRoutes reports whether an input may change the route of a shard other than its own.
func changesRoutes(in region.Input) bool {
	switch in := in.(type) {
	case region.Send, region.ReportLoad:
		return false
	case region.FrameReceived:
		return in.Frame.Kind != region.Forward
	}
	return true
}
