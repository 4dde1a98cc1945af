// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Never is the time of something that is not going to happen.
const Never = time.Duration(math.MaxInt64)

// Machine is one coordinator. It is told what happens, with the time on the node's
// monotonic clock, and answers what is to be done. The same inputs at the same times give the same effects. It is
// not safe for concurrent use; what it hands out is immutable.
type Machine struct {
	cfg   Config
	phase Phase
	now   time.Duration
	out   Effects
	term  uint64
	state State  // what is stored
	rev   uint64 // number of its last event
	view  Members
	ids   uint64
	round uint64

	load     load
	save     *saving
	queue    []request
	settleAt time.Duration

	alive       []identity.Node          // regions that registered with this coordinator
	instances   map[identity.Node]uint64 // the last one of each, and of proxies, that registered with this coordinator
	invited     []identity.Node          // who was registered with the one before, and is not yet again
	inviteAt    time.Duration
	refused     []identity.Node // whose settings are others
	leaving     []identity.Node // regions that shut down
	terminating []termination
	removals    []Removal // of members that this coordinator has seen
	enough      bool      // regions have registered
	stopping    bool      // once the region of this node is gone

	wants      wants
	ask        asking
	remembered []bool // by shard
	adding     adding
	probe      probe
	silent     []identity.Node  // regions that have not answered the last probe, sorted
	unstarted  map[Shard]uint64 // rounds of Host
	hosting    []hosting

	moving      map[Shard]*handOff
	handOffs    []*handOff
	begun       int                       // shards to hand off
	stopFor     map[Shard][]identity.Node // who asked to stop shards
	rebalance   uint64                    // the strategy is being asked
	rebalanceAt time.Duration
}

// New returns a coordinator. The error matches ErrInvalid and names each field that is
// wrong.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Machine{
		cfg: cfg.withDefaults(), load: load{retryAt: Never}, settleAt: Never, rebalanceAt: Never, adding: adding{retryAt: Never}, inviteAt: Never,
		instances: map[identity.Node]uint64{}, unstarted: map[Shard]uint64{}, moving: map[Shard]*handOff{}, stopFor: map[Shard][]identity.Node{},
		wants: wants{by: map[Shard]*want{}, wakeAt: Never},
	}, nil
}

// Phase returns where the coordinator stands.
func (m *Machine) Phase() Phase { return m.phase }

// Term returns its term, 0 before it has chosen one.
func (m *Machine) Term() uint64 { return m.term }

// State returns what it knows to be stored, and the number of the last event.
func (m *Machine) State() (State, uint64) { return m.state, m.rev }

// Moving returns the shards that are being handed off, sorted.
func (m *Machine) Moving() []Shard {
	moving := make([]Shard, 0, len(m.moving))
	for s := range m.moving {
		moving = append(moving, s)
	}
	slices.Sort(moving)
	return moving
}

// Rebalancing reports whether the strategy is being asked which shards should move.
func (m *Machine) Rebalancing() bool { return m.rebalance != 0 }

// HandOffs returns how many shards this coordinator has begun to hand off.
func (m *Machine) HandOffs() int { return m.begun }

// Step takes an input at a time, which is counted from anywhere and never goes
// back.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	if m.phase == Ended {
		return Effects{}
	}
	switch in := in.(type) {
	case Members:
		m.see(in)
	case Received:
		m.receive(in.From, in.Message)
	case Loaded:
		m.loaded(in)
	case LoadFailed:
		m.loadFailed(in.ID)
	case Saved:
		if m.save != nil && in.ID == m.save.ID {
			m.stored(m.save.Rev + uint64(len(m.save.Events)))
		}
	case SaveFailed:
		m.saveFailed(in)
	case ShardsAdded:
		m.shardsAdded(in)
	case Placed:
		m.placed(in)
	case Rebalanced:
		m.rebalanced(in)
	case RebalanceNow:
		m.askRebalance()
	case Terminate:
		m.terminate(in.Now)
	}
	return m.end()
}

// Tick does what is due.
func (m *Machine) Tick(now time.Duration) Effects {
	m.now = max(m.now, now)
	if m.phase == Ended {
		return Effects{}
	}
	m.tickStore()
	if m.now >= m.settleAt {
		m.activate()
	}
	m.tickInvitations()
	m.tickTerminations()
	m.tickHosting()
	m.tickHandOffs()
	m.tickWants()
	m.tickProbe()
	if m.now >= m.rebalanceAt {
		m.rebalanceAt = m.now + m.cfg.RebalanceInterval
		m.askRebalance()
	}
	return m.end()
}

// Next returns when Tick is to be called next; Never if not at all. Every step may change
// it.
func (m *Machine) Next() time.Duration {
	if m.phase == Ended {
		return Never
	}
	next := min(m.load.retryAt, m.settleAt, m.rebalanceAt, m.wants.wakeAt, m.adding.retryAt, m.inviteAt)
	if m.save != nil {
		next = min(next, m.save.lookAt, m.save.retryAt)
	}
	for _, t := range m.terminating {
		if !t.queued {
			next = min(next, t.due)
		}
	}
	if len(m.hosting) > 0 {
		next = min(next, m.hosting[0].due)
	}
	if len(m.probe.waiting) > 0 {
		next = min(next, m.probe.due)
	}
	for _, h := range m.handOffs {
		next = min(next, h.repeatAt, h.deadline)
	}
	return next
}

// end decides what can be decided, and returns the effects.
func (m *Machine) end() Effects {
	if m.phase != Ended {
		m.decide()
		m.askHomes()
	}
	out := m.out
	m.out = Effects{}
	if m.phase == Ended { // nobody may act on what a coordinator says that is none
		return Effects{Notes: out.Notes, Stop: out.Stop}
	}
	return out
}

func (m *Machine) become(p Phase) {
	m.phase = p
	m.note(Note{Kind: Became})
}

func (m *Machine) stop(why Reason) {
	m.phase, m.out.Stop = Ended, why
	m.note(Note{Kind: Became, Reason: why})
}

func (m *Machine) note(n Note) {
	n.Phase, n.Term = m.phase, m.term
	m.out.Notes = append(m.out.Notes, n)
}

func (m *Machine) send(to identity.Node, msg Message) {
	msg.Type, msg.Term, msg.Instance = m.cfg.Type, m.term, m.instances[to]
	m.out.Send = append(m.out.Send, Outgoing{to, msg})
}

// sendShards sends a message that is about any number of shards.
func (m *Machine) sendShards(to identity.Node, kind Kind, round uint64, shards []Shard) {
	for part := range slices.Chunk(shards, Batch) {
		m.send(to, Message{Kind: kind, Round: round, Shards: slices.Clone(part)})
	}
}

// id returns a number for a question.
func (m *Machine) id() uint64 {
	m.ids++
	return m.ids
}

// nextRound returns a number above all that were said before.
func (m *Machine) nextRound() uint64 {
	m.round++
	return m.round
}

func (m *Machine) member(n identity.Node) *membership.Member {
	i, found := membership.Find(m.view.Members, n)
	if !found {
		return nil
	}
	return &m.view.Members[i]
}

// preparing reports whether the whole cluster is about to stop.
func (m *Machine) preparing() bool {
	return slices.ContainsFunc(m.view.Members, func(o membership.Member) bool {
		return o.Status == membership.PreparingForShutdown || o.Status == membership.ReadyForShutdown
	})
}

// receive takes a message. Those of regions that talk to another coordinator are not
// heeded, and if that one has a higher term, this one is none any more.
func (m *Machine) receive(from identity.Node, msg Message) {
	heeded := msg.Type == m.cfg.Type && m.phase >= Claiming
	if heeded && msg.Term > m.term {
		m.stop(SupersededByTerm)
		return
	}
	if heeded = heeded && m.phase >= Settling; heeded {
		heeded = m.heed(from, msg)
	}
	if !heeded {
		m.note(Note{Kind: Ignored, Node: from, Message: msg.Kind})
	}
}

func (m *Machine) heed(from identity.Node, msg Message) bool {
	switch msg.Kind {
	case Register, RegisterProxy:
		return m.register(from, msg)
	case GracefulShutdown:
		return m.gracefulShutdown(from, msg)
	case RegionStopped:
		return m.regionStopped(from, msg)
	case StopShards:
		return m.stopShards(from, msg.Shards)
	case GetHomes, Hosted, BeginHandOffAck, Stopped:
		if msg.Term < m.term || !m.knows(from) || msg.Instance != m.instances[from] {
			if m.member(from) != nil {
				m.invite(from)
			}
			return false
		}
	case Fenced, RegisterAck, Homes, Host, BeginHandOff, HandOff, RegisterAgain, Refused, kinds:
		return false
	}
	m.heard(from, &msg)
	switch msg.Kind {
	case GetHomes:
		m.getHomes(from, msg.Shards)
	case Hosted:
		m.hosted(from, msg)
	case BeginHandOffAck:
		return m.handOffAcked(from, msg.Round)
	case Stopped:
		return m.shardsStopped(from, msg)
	default:
		return false
	}
	return true
}

// knows reports whether a region or a proxy is registered.
func (m *Machine) knows(n identity.Node) bool {
	_, region := m.state.Region(n)
	return region || m.state.HasProxy(n)
}

// invite asks a member to register.
func (m *Machine) invite(n identity.Node) {
	m.send(n, Message{Kind: RegisterAgain, Round: m.round})
}

// tickInvitations asks those to register that were registered with the one before.
func (m *Machine) tickInvitations() {
	if m.now < m.inviteAt {
		return
	}
	m.invited = slices.DeleteFunc(m.invited, func(n identity.Node) bool { return m.member(n) == nil || !m.knows(n) })
	for _, n := range m.invited {
		m.invite(n)
	}
	if m.inviteAt = m.now + m.cfg.RetryInterval; len(m.invited) == 0 {
		m.inviteAt = Never
	}
}
