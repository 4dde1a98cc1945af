// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// Config configures a Machine.
type Config struct {
	// Self is the node. Required.
	Self identity.Node
	// Roles are the roles of the node.
	Roles []string
	// Version is the version of the application. With VersionPending, the node waits for the input
	// SetVersion, which sets the version, before it joins.
	Version        identity.Version
	VersionPending bool
	// Check are the settings that must be the same on all nodes. An optional setting is compared
	// only if both nodes have it. The settings are sent to any node that tries to join, so they
	// must not contain secrets.
	Check []Setting
	// Settings tune the protocol.
	Settings Settings
	// Limits returns the limits for a number of members, which replace those of Settings. Only
	// members that may host are counted. The limits must not decrease with the number. Nil means that
	// the limits of Settings apply to all sizes.
	Limits func(members int) Limits
	// Started is the wall time of machine time 0. Only tombstones have wall times.
	Started time.Time
	// Rand is the source of random numbers. Required, so that runs can be repeated.
	Rand *rand.Rand
}

// Never is the time of an event that does not occur.
const Never = time.Duration(math.MaxInt64)

type phase uint8

const (
	idle        phase = iota // not joining
	askingSeeds              // querying seeds whether the node could join
	joining                  // requesting to join through one node
	member                   // is a member
	stopped
)

// Machine runs the protocol for one node. Inputs come with the time on the node's monotonic clock.
// It is not safe for concurrent use. Its results are immutable.
type Machine struct {
	cfg  Config
	s    Settings
	self identity.Node
	rand *rand.Rand

	now    time.Duration
	out    Effects
	timers [timers]time.Duration
	count  Counters

	phase  phase
	gossip Gossip
	cache  cache

	join      join
	waiting   []waiting                       // requests that wait until this node is a member
	welcomed  map[identity.Node]time.Duration // time of the welcome
	sweep     time.Duration                   // when old entries of welcomed are removed
	quiet     map[string]time.Duration        // when the lines of logCaused may be written again
	names     []contested
	lone      bool // the node has founded a cluster and accepted no other node; it ends if another node with its name replies
	link      link
	doubts    livenessCheck
	undecided undecided
	hosting   int // number of members for which the limits were computed
	watch     watch
	attempts  int // leader actions in sequence without convergence, while this node is the leader

	exiting         bool                        // the caller hands over singletons and shards
	exited          bool                        // the hand-over is done
	wasUp           bool                        // BecameUp was reported
	known           time.Duration               // when a member last sent gossip to this node, which it does only if it knows this node
	downTicks       int                         // ticks since the node is Down
	confirmed       map[identity.Node]bool      // members that are ready to be removed
	quarantine      map[identity.Node]*excluded // nodes with which no messages are exchanged
	quarantineOrder []identity.Node             // the keys of quarantine, the oldest first
	removed         []removedNode               // removed nodes that will be quarantined
	accuser         string                      // the member that first reported that this node was removed
}

// timer is a kind of time-out. Timers that are due together fire in this order.
type timer uint8

const (
	timerEcho timer = iota
	timerLink
	timerUndecided
	timerGiveUp
	timerExpect
	timerHeartbeat
	timerReaper
	timerGossip
	timerGossipTwice
	timerGossipThrice
	timerLeave
	timerLeader
	timerJoin
	timerJoining
	timerName
	timerGrave
	timers
)

// New returns the machine of a node that is not a member yet. The error matches ErrInvalid.
func New(cfg Config) (*Machine, error) {
	cfg.Settings = cfg.Settings.withDefaults()
	errs := cfg.Settings.validate()
	if err := identity.CheckName(cfg.Self.Name); err != nil {
		errs.Add("Config.Self", err)
	} else if cfg.Self.UID == 0 {
		errs.Addf("Config.Self", "is %q without a UID", cfg.Self.Name)
	}
	if cfg.Rand == nil {
		errs.Addf("Config.Rand", "is missing")
	}
	var err error
	cfg.Roles, err = CheckRoles(cfg.Roles)
	errs.Add("Config.Roles", err)
	cfg.Check, err = checkSettings(cfg.Check)
	errs.Add("Config.Check", err)
	if err := errs.Err(ErrInvalid); err != nil {
		return nil, err
	}
	m := &Machine{
		cfg: cfg, s: cfg.Settings, self: cfg.Self, rand: cfg.Rand,
		welcomed:   map[identity.Node]time.Duration{},
		quiet:      map[string]time.Duration{},
		confirmed:  map[identity.Node]bool{},
		quarantine: map[identity.Node]*excluded{},
		undecided:  undecided{since: Never},
	}
	for i := range m.timers {
		m.timers[i] = Never
	}
	return m, nil
}

func checkSettings(settings []Setting) ([]Setting, error) {
	settings = slices.Clone(settings)
	slices.SortFunc(settings, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	if len(settings) > maxSettings {
		return nil, fmt.Errorf("%d settings, at most %d are allowed", len(settings), maxSettings)
	}
	for i, s := range settings {
		switch {
		case s.Key == "" || i > 0 && settings[i-1].Key == s.Key:
			return nil, fmt.Errorf("a key is empty or duplicated: %q", s.Key)
		case len(s.Key) > maxSetting || len(s.Value) > maxSetting:
			return nil, fmt.Errorf("%.64q is longer than %d bytes", s.Key, maxSetting)
		}
	}
	return settings, nil
}

// Step handles one input that arrives at the time now. Time must not decrease.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.begin(now)
	if m.phase != stopped {
		m.handle(in)
	}
	return m.out
}

func (m *Machine) handle(in Input) {
	switch in := in.(type) {
	case Received:
		m.receive(in)
	case JoinSeeds:
		m.joinSeeds(in.Seeds)
	case JoinNode:
		m.joinNode(in.Name)
	case Leave:
		m.leave(in.Node)
	case DownNode:
		m.down(in.Node)
	case PrepareForShutdown:
		m.prepare()
	case ExitingDone:
		m.exitingDone()
	case Quarantine:
		m.exclude(in.Node)
	case LinkLost:
		if m.link.state == linkUp {
			m.disconnect("the connection to the broker is lost")
		}
	case LinkRestored:
		if m.timers[timerEcho] != Never {
			m.echo()
		}
	case SetVersion:
		m.setVersion(in.Version)
	case Shutdown:
		m.stop(Asked)
	}
}

// Next returns the time of the next Tick, or Never. Every step may change it.
func (m *Machine) Next() time.Duration {
	next := Never
	for _, due := range m.timers {
		next = min(next, due)
	}
	return next
}

// Tick fires all due timers.
func (m *Machine) Tick(now time.Duration) Effects {
	m.begin(now)
	for t := range timers {
		if m.timers[t] <= now && m.phase != stopped {
			m.timers[t] = Never
			t.handler()(m)
		}
	}
	return m.out
}

func (t timer) handler() func(*Machine) {
	return [timers]func(*Machine){
		timerEcho: (*Machine).echo, timerLink: (*Machine).checkLink, timerUndecided: (*Machine).checkUndecided, timerGiveUp: (*Machine).giveUp,
		timerExpect: (*Machine).expect, timerHeartbeat: (*Machine).heartbeat, timerReaper: (*Machine).reap,
		timerGossip: (*Machine).gossipRound, timerGossipTwice: (*Machine).speedUp, timerGossipThrice: (*Machine).speedUp,
		timerLeave: (*Machine).leaveAfterOthers, timerLeader: (*Machine).lead, timerJoin: (*Machine).joinLate, timerJoining: (*Machine).joinTooLate,
		timerName: (*Machine).checkNames, timerGrave: (*Machine).quarantineRemoved,
	}[t]
}

func (m *Machine) again(t timer, after time.Duration) { m.timers[t] = m.now + after }

func (m *Machine) soon(t timer, at time.Duration) { m.timers[t] = min(m.timers[t], at) }

// begin starts a step. If the step is late because the process was paused, begin disconnects the
// node. The node may have been downed during the pause, so pending inputs are not evidence of its
// membership.
func (m *Machine) begin(now time.Duration) {
	m.out = Effects{}
	late := max(m.now, now) - m.Next()
	m.now = max(m.now, now)
	if m.link.state == linkUp && late > m.s.AcceptablePause {
		m.count.TimedOut[TimeoutLate]++
		m.disconnect("the process was paused", Attr{"late", late})
		m.checkLink()
		m.checkUndecided()
	}
}

// send sends a message. A quarantined destination receives only Quarantined messages.
func (m *Machine) send(to identity.Node, msg Message) {
	m.sendData(to, KindOf(msg), AppendMessage(nil, msg))
}

func (m *Machine) sendData(to identity.Node, kind Kind, data []byte) {
	if _, excluded := m.quarantine[to]; excluded && kind != KindQuarantined {
		return
	}
	m.count.Sent[kind]++
	m.out.Send = append(m.out.Send, Send{To: to, Kind: kind, Data: data})
}

func (m *Machine) log(level Level, message string, attrs ...Attr) {
	m.out.Log = append(m.out.Log, Line{level, message, attrs})
}

func (m *Machine) live(kind LifeKind) { m.out.Life = append(m.out.Life, Life{Kind: kind}) }

func (m *Machine) wall() int64 { return m.cfg.Started.Add(m.now).Unix() }

// Self returns the node.
func (m *Machine) Self() identity.Node { return m.self }

// Gossip returns the state of the node.
func (m *Machine) Gossip() Gossip { return m.gossip }

// Member reports whether the node is a member.
func (m *Machine) Member() bool { return m.phase == member }

// Counters returns the counters.
func (m *Machine) Counters() Counters {
	c := m.count
	c.ClockSize, c.SeenBy = len(m.gossip.Clock()), m.gossip.seen.count()
	return c
}

func (m *Machine) stop(why Reason) { m.stopFor(why, "") }

func (m *Machine) stopFor(why Reason, detail string) {
	if m.phase == member {
		m.out.Events = append(m.out.Events, Event{Kind: ShuttingDown})
		for _, old := range m.gossip.Members() {
			m.out.Events = append(m.out.Events, Event{Kind: MemberRemoved, Member: withStatus(old, identity.Removed), Previous: old.Status})
		}
	}
	m.log(Info, "membership of this node has ended", Attr{"reason", why.String()})
	m.phase = stopped
	m.gossip, m.cache = Gossip{}, cache{}
	for i := range m.timers {
		m.timers[i] = Never
	}
	m.out.Life = append(m.out.Life, Life{Kind: Stopped, Reason: why, Detail: detail})
}

// Drop is the reason why a message was dropped.
type Drop uint8

// The reasons for dropping a message.
const (
	DropMalformed   Drop = iota // the message cannot be decoded
	DropOther                   // the destination is another incarnation
	DropStranger                // the sender is not a member
	DropUnreachable             // this node finds the sender unreachable
	DropQuarantined             // the sender is quarantined
	DropExpired                 // the message was too old when it was handled
	DropUnknown                 // this node is not a member in the sender's state
	DropEarly                   // this node is not a member
	DropUnexpected              // this node does not wait for the message
	DropRemoved                 // the sender was removed
	DropUnconfirmed             // no other member confirms the report
	DropAhead                   // a number in the gossip is too high
	// Drops is the number of reasons.
	Drops
)

func (d Drop) String() string {
	return enum.Name(d, "drop",
		"malformed", "other", "stranger", "unreachable", "quarantined", "expired", "unknown", "early",
		"unexpected", "removed", "unconfirmed", "ahead")
}

// Timeout is a time-out of the protocol.
type Timeout uint8

// The time-outs.
const (
	TimeoutSeeds         Timeout = iota // no seed has accepted the node
	TimeoutJoin                         // no Welcome was received
	TimeoutJoining                      // no cluster was found
	TimeoutFirstResponse                // a monitored member has never replied
	TimeoutHeartbeat                    // a member became unreachable
	TimeoutName                         // an old incarnation has not replied
	TimeoutEcho                         // the node does not receive its own heartbeats
	TimeoutSuspend                      // the node was suspended after TimeoutEcho
	TimeoutUndecided                    // no downing decision about unreachable members
	TimeoutLiveness                     // no confirmation of the membership after a disconnection
	TimeoutConvergence                  // Joining members became WeaklyUp
	TimeoutLate                         // the process of this node was paused
	// Timeouts is the number of time-outs.
	Timeouts
)

func (t Timeout) String() string {
	return enum.Name(t, "timeout",
		"seeds", "join", "joining", "first-response", "heartbeat", "name", "echo", "suspend", "undecided",
		"liveness", "convergence", "late")
}

// Counters are counts since the start of the machine.
type Counters struct {
	// Sent and Received count messages. The index is a Kind, such as KindHeartbeat.
	Sent, Received [Kinds]uint64
	// Dropped counts messages that were not handled. The index is a Drop, such as DropExpired.
	Dropped [Drops]uint64
	// TimedOut counts time-outs. The index is a Timeout, such as TimeoutHeartbeat.
	TimedOut [Timeouts]uint64
	// Gossip counts received gossip by its order to the state of this node. The index is an Order,
	// such as Concurrent.
	Gossip [Concurrent + 1]uint64
	// Became counts changes of members' statuses. The index is the new Status.
	Became [identity.ReadyForShutdown + 1]uint64
	// ClockSize is the number of entries of the clock. SeenBy is the number of members that have
	// seen the state of this node.
	ClockSize, SeenBy int
}
