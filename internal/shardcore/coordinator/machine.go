// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Never is the time of an event that does not happen.
const Never = time.Duration(math.MaxInt64)

// Machine is one coordinator. It gets inputs with the time of the node's monotonic clock and
// returns effects. The same inputs at the same times return the same effects. It is not safe for
// concurrent use. Its results are immutable.
type Machine struct {
	cfg   Config
	phase Phase
	now   time.Duration
	out   Effects
	term  uint64
	state State  // the stored state
	rev   uint64 // number of the last event in state
	view  Members
	ids   uint64
	round uint64

	load        load
	checkTermAt time.Duration // earliest time of the next checkTerm
	save        *saving
	queue       []request
	settleAt    time.Duration

	alive         []identity.Node          // regions that have registered with this coordinator
	instances     map[identity.Node]uint64 // the last instance of each region and proxy that has registered with this coordinator
	invited       []identity.Node          // registered with the previous coordinator, and not yet with this one
	inviteAt      time.Duration
	refused       []identity.Node // regions and proxies with different settings
	leaving       []identity.Node // regions that shut down
	terminating   []termination
	removals      []Removal // members that were removed while this coordinator ran
	enoughRegions bool      // MinRegions have registered
	stopping      bool      // ends when the region of this node has stopped

	requests     allocationRequests
	strategyCall strategyCall
	remembered   []bool // reports for each shard whether it is remembered
	adding       rememberCall
	probe        probe
	silent       []identity.Node  // regions that did not respond to the last probe, sorted
	unstarted    map[Shard]uint64 // the round of the last Host of shards that have not started
	hostCommands []hostCommand

	followed      map[identity.Node]string // of the running probe, with Config.Standbys
	moving        map[Shard]*handOff
	departed      map[Shard]departure       // of Moves
	undecided     map[Shard][]identity.Node // requesters of shards whose home is terminating or has not registered
	handOffs      []*handOff
	handedOff     int    // number of shards whose hand-off has begun
	rebalanceCall uint64 // ID of the running AskRebalance, or 0
	rebalanceAt   time.Duration
	loads         loadTable // empty unless the strategy reads the load
}

// New returns a coordinator. The error matches ErrInvalid and names each invalid field.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Machine{
		cfg: cfg.withDefaults(), ids: cfg.FirstID, load: load{retryAt: Never}, settleAt: Never, rebalanceAt: Never, adding: rememberCall{retryAt: Never}, inviteAt: Never,
		instances: map[identity.Node]uint64{}, unstarted: map[Shard]uint64{}, moving: map[Shard]*handOff{}, departed: map[Shard]departure{}, undecided: map[Shard][]identity.Node{}, followed: map[identity.Node]string{},
		requests: allocationRequests{byShard: map[Shard]*allocationRequest{}, retryAt: Never},
	}, nil
}

// Phase returns the phase.
func (m *Machine) Phase() Phase { return m.phase }

// Term returns the term, or 0 before one is chosen.
func (m *Machine) Term() uint64 { return m.term }

// State returns the stored state as far as it is known, and the number of its last event.
func (m *Machine) State() (State, uint64) { return m.state, m.rev }

// Moving returns the shards that are being handed off, sorted.
func (m *Machine) Moving() []Shard { return slices.Sorted(maps.Keys(m.moving)) }

// Rebalancing reports whether an answer of the strategy to AskRebalance is pending.
func (m *Machine) Rebalancing() bool { return m.rebalanceCall != 0 }

// HandOffs returns the number of shards whose hand-off this coordinator has begun.
func (m *Machine) HandOffs() int { return m.handedOff }

// Step processes an input. The time may start anywhere and never decreases.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	if m.phase == Ended {
		return Effects{}
	}
	switch in := in.(type) {
	case Members:
		m.updateMembers(in)
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
	case HomesChosen:
		m.homesChosen(in)
	case Rebalanced:
		m.rebalanced(in)
	case SetPin:
		m.setPin(in)
	case RebalanceNow:
		m.askRebalance()
	case Terminate:
		m.terminate(in.Now)
	}
	return m.end()
}

// Tick performs all actions that are due.
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
	m.tickRequests()
	m.tickProbe()
	if m.now >= m.rebalanceAt {
		m.rebalanceAt = m.now + m.cfg.RebalanceInterval
		m.askRebalance()
	}
	return m.end()
}

// Next returns the time at which Tick has to be called, or Never. Each Step may change it.
func (m *Machine) Next() time.Duration {
	if m.phase == Ended {
		return Never
	}
	next := min(m.load.retryAt, m.settleAt, m.rebalanceAt, m.requests.retryAt, m.adding.retryAt, m.inviteAt)
	if m.save != nil {
		next = min(next, m.save.checkAt, m.save.retryAt)
	}
	for _, t := range m.terminating {
		if !t.queued {
			next = min(next, t.due)
		}
	}
	if len(m.hostCommands) > 0 {
		next = min(next, m.hostCommands[0].due)
	}
	if len(m.probe.waiting) > 0 {
		next = min(next, m.probe.due)
	}
	for _, h := range m.handOffs {
		next = min(next, h.repeatAt, h.deadline)
	}
	return next
}

// end decides pending requests and returns the effects.
func (m *Machine) end() Effects {
	if m.phase != Ended {
		m.decide()
		m.askHomes()
	}
	out := m.out
	m.out = Effects{}
	if m.phase == Ended { // messages of an ended coordinator must not be sent
		return Effects{Notes: out.Notes, Stop: out.Stop}
	}
	return out
}

func (m *Machine) enterPhase(p Phase) {
	m.phase = p
	m.note(Note{Kind: PhaseChanged})
}

func (m *Machine) stop(why Reason) {
	m.phase, m.out.Stop = Ended, why
	m.note(Note{Kind: PhaseChanged, Reason: why})
}

func (m *Machine) note(n Note) {
	n.Phase, n.Term = m.phase, m.term
	m.out.Notes = append(m.out.Notes, n)
}

func (m *Machine) send(to identity.Node, msg Message) {
	msg.Type, msg.Term, msg.Instance = m.cfg.Type, m.term, m.instances[to]
	m.out.Send = append(m.out.Send, Outgoing{to, msg})
}

// sendShards sends a message about any number of shards.
func (m *Machine) sendShards(to identity.Node, kind Kind, round uint64, shards []Shard) {
	for part := range slices.Chunk(shards, Batch) {
		m.send(to, Message{Kind: kind, Round: round, Shards: slices.Clone(part)})
	}
}

func (m *Machine) id() uint64 {
	m.ids++
	return m.ids
}

func (m *Machine) nextRound() uint64 {
	m.round++
	return m.round
}

func (m *Machine) member(n identity.Node) *identity.Member {
	i, found := membership.Find(m.view.Members, n)
	if !found {
		return nil
	}
	return &m.view.Members[i]
}

func (m *Machine) clusterIsStopping() bool {
	return slices.ContainsFunc(m.view.Members, func(o identity.Member) bool {
		return o.Status == identity.PreparingForShutdown || o.Status == identity.ReadyForShutdown
	})
}

// receive processes a message of a member. Messages to another coordinator are ignored. If that
// coordinator has a higher term, this one loads the state, and ends if the store has that term: a
// member may have received a term that nobody has claimed.
func (m *Machine) receive(from identity.Node, msg Message) {
	heeded := msg.Type == m.cfg.Type && m.phase >= Settling && m.member(from) != nil
	if heeded && msg.Term > m.term {
		heeded = false
		m.checkTerm()
	}
	if heeded {
		heeded = m.handle(from, msg)
	}
	if !heeded {
		m.note(Note{Kind: Ignored, Node: from, Message: msg.Kind})
	}
}

func (m *Machine) handle(from identity.Node, msg Message) bool {
	switch msg.Kind {
	case Register, RegisterProxy:
		return m.register(from, msg)
	case GracefulShutdown:
		return m.gracefulShutdown(from, msg)
	case RegionStopped:
		return m.regionStopped(from, msg)
	case GetHomes, Hosted, BeginHandOffAck, Stopped:
		if msg.Term < m.term || !m.isRegistered(from) || msg.Instance != m.instances[from] {
			if m.member(from) != nil {
				m.invite(from)
			}
			return false
		}
	case retired, Fenced, RegisterAck, Homes, Host, BeginHandOff, HandOff, RegisterAgain, Refused, kinds:
		return false
	}
	m.regionResponded(from, &msg)
	switch msg.Kind {
	case GetHomes:
		m.getHomes(from, msg.Shards)
	case Hosted:
		m.hosted(from, msg)
		m.loadReported(from, msg.Load)
	case BeginHandOffAck:
		return m.handOffAcked(from, msg.Round)
	case Stopped:
		return m.shardsStopped(from, msg)
	default:
		return false
	}
	return true
}

func (m *Machine) isRegistered(n identity.Node) bool {
	_, region := m.state.Region(n)
	return region || m.state.HasProxy(n)
}

// isInvited reports whether a response to an invitation is expected.
func (m *Machine) isInvited(n identity.Node) bool { return m.member(n) != nil && m.isRegistered(n) }

func (m *Machine) invite(n identity.Node) {
	m.send(n, Message{Kind: RegisterAgain, Round: m.round})
}

// tickInvitations invites all regions and proxies that were registered with the previous
// coordinator.
func (m *Machine) tickInvitations() {
	if m.now < m.inviteAt {
		return
	}
	m.invited = slices.DeleteFunc(m.invited, func(n identity.Node) bool { return !m.isInvited(n) })
	for _, n := range m.invited {
		m.invite(n)
	}
	if m.inviteAt = m.now + m.cfg.RetryInterval; len(m.invited) == 0 {
		m.inviteAt = Never
	}
}
