// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

// Config configures a Machine.
type Config struct {
	// Self is the node. Required.
	Self identity.Node
	// Roles are what it is for.
	Roles []string
	// Version is that of its application. If VersionPending, another one follows by
	// SetVersion, and joining waits for it.
	Version        Version
	VersionPending bool
	// Check are the settings that have to be the same on all nodes. Nothing secret
	// belongs there: they are sent to whoever joins.
	Check []Setting
	// Settings are the rest.
	Settings Settings
	// Started is the wall time at which now is 0. Only tombstones have wall times.
	Started time.Time
	// Rand is where random numbers come from. Required: a machine never seeds itself.
	Rand *rand.Rand
}

// Never is the time of something that is not going to happen.
const Never = time.Duration(math.MaxInt64)

// phase is where a node stands before and after it is a member.
type phase uint8

const (
	idle    phase = iota // nothing was asked for
	seeking              // asks seeds whether it could join
	trying               // asks one node to join
	member               // is a member
	stopped
)

// Machine is one node's part of the protocol. It is told what happens, with the
// time on the node's monotonic clock, and answers what is to be done. It is not
// safe for concurrent use; what it hands out is immutable.
type Machine struct {
	cfg      Config
	s        Settings
	self     identity.Node
	phi      PhiConfig
	minimums []minimum
	rand     *rand.Rand

	now    time.Duration
	out    Effects
	timers [timers]time.Duration
	count  Counters

	phase  phase
	gossip Gossip
	cache  cache

	join      join
	waiting   []waiting                       // until this node is a member
	welcomed  map[identity.Node]time.Duration // when
	sweep     time.Duration                   // when the old ones of them are forgotten
	away      time.Duration                   // when a log line may tell again who can't join
	names     []contested
	lone      bool // it has founded a cluster and let nobody in: another with its name may make it go
	link      link
	doubts    doubts
	undecided undecided
	watch     watch
	leading   leading

	exiting    bool                        // tasks are running
	exited     bool                        // and are done
	wasUp      bool                        // BecameUp was said
	downTicks  int                         // since it is Down
	confirmed  map[identity.Node]bool      // who is ready to be removed
	quarantine map[identity.Node]*excluded // who is not talked to
	buried     []identity.Node             // the keys of quarantine, the oldest first
	graves     []grave                     // who is going to be quarantined
}

// timer is one of the things that a machine waits for. When several are due they
// are handled in this order.
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

// New returns the machine of a node that is no member yet.
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
	s := cfg.Settings
	m := &Machine{
		cfg: cfg, s: s, self: cfg.Self, rand: cfg.Rand, minimums: minimums(s.MinMembersOfRole),
		phi:        PhiConfig{Threshold: s.Threshold, MaxSamples: s.MaxSamples, MinStdDev: s.MinStdDeviation, AcceptablePause: s.AcceptablePause, FirstEstimate: s.HeartbeatInterval},
		welcomed:   map[identity.Node]time.Duration{},
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
			return nil, fmt.Errorf("a key is empty or stands twice: %q", s.Key)
		case len(s.Key) > maxSetting || len(s.Value) > maxSetting:
			return nil, fmt.Errorf("%.64q is longer than %d bytes", s.Key, maxSetting)
		}
	}
	return settings, nil
}

// minimum is how many members with a role there must be.
type minimum struct {
	role  string
	least int
}

func minimums(roles map[string]int) (all []minimum) {
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		all = append(all, minimum{role, roles[role]})
	}
	return all
}

// Step handles what happened at a time, which never goes back.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.begin(now)
	if m.phase != stopped {
		m.handle(in)
	}
	return m.end()
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

// Next returns when Tick is to be called next; Never if not at all. Every step
// may change it.
func (m *Machine) Next() time.Duration {
	next := Never
	for _, due := range m.timers {
		next = min(next, due)
	}
	return next
}

// Tick handles all that is due.
func (m *Machine) Tick(now time.Duration) Effects {
	m.begin(now)
	for t := range timers {
		if m.timers[t] <= now && m.phase != stopped {
			m.timers[t] = Never
			m.fire(t)
		}
	}
	return m.end()
}

func (m *Machine) fire(t timer) {
	switch t {
	case timerEcho:
		m.echo()
	case timerLink:
		m.checkLink()
	case timerUndecided:
		m.checkUndecided()
	case timerGiveUp:
		m.giveUp()
	case timerExpect:
		m.expect()
	case timerHeartbeat:
		m.heartbeat()
	case timerReaper:
		m.again(timerReaper, m.s.ReaperInterval)
		m.reap()
	case timerGossip:
		m.again(timerGossip, m.s.GossipInterval)
		m.gossipRound()
	case timerGossipTwice, timerGossipThrice:
		m.speedUp()
	case timerLeave:
		m.leaveAfterOthers()
	case timerLeader:
		m.again(timerLeader, m.s.LeaderInterval)
		m.lead()
	case timerJoin:
		m.joinLate()
	case timerJoining:
		m.joinTooLate()
	case timerName:
		m.checkNames()
	case timerGrave:
		m.bury()
	case timers:
	}
}

// again sets a timer.
func (m *Machine) again(t timer, after time.Duration) { m.timers[t] = m.now + after }

// soon sets a timer unless it is due before.
func (m *Machine) soon(t timer, at time.Duration) { m.timers[t] = min(m.timers[t], at) }

// begin begins a step. A node that was not running when it should have been may
// have been given up since, whatever waits to be handled.
func (m *Machine) begin(now time.Duration) {
	m.out = Effects{}
	late := max(m.now, now) - m.Next()
	m.now = max(m.now, now)
	if m.link.state == linkUp && late > m.s.AcceptablePause {
		m.count.TimedOut[TimeoutLate]++
		m.disconnect("this node was not running", Attr{"late", late})
		m.checkLink()
		m.checkUndecided()
	}
}

func (m *Machine) end() Effects {
	out := m.out
	m.out = Effects{}
	return out
}

// send sends a message, unless nothing must be sent there.
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

// wall is the present time in seconds of Unix time.
func (m *Machine) wall() int64 { return m.cfg.Started.Add(m.now).Unix() }

// Self returns the node.
func (m *Machine) Self() identity.Node { return m.self }

// Gossip returns what the node knows.
func (m *Machine) Gossip() Gossip { return m.gossip }

// Member reports whether the node is a member.
func (m *Machine) Member() bool { return m.phase == member }

// Counters returns what was counted.
func (m *Machine) Counters() Counters {
	c := m.count
	c.ClockSize, c.SeenBy = len(m.gossip.Clock()), m.gossip.seen.count()
	return c
}

// stop ends the membership: all members are gone for this node.
func (m *Machine) stop(why Reason) { m.stopFor(why, "") }

func (m *Machine) stopFor(why Reason, detail string) {
	if m.phase == member {
		m.out.Events = append(m.out.Events, Event{Kind: ShuttingDown})
		for _, old := range m.gossip.Members() {
			m.out.Events = append(m.out.Events, Event{Kind: MemberRemoved, Member: withStatus(old, Removed), Previous: old.Status})
		}
	}
	m.log(Info, "the membership of this node ends", Attr{"reason", why.String()})
	m.phase = stopped
	m.gossip, m.cache = Gossip{}, cache{}
	for i := range m.timers {
		m.timers[i] = Never
	}
	m.out.Life = append(m.out.Life, Life{Kind: Stopped, Reason: why, Detail: detail})
}

// Drop is why a message was dropped.
type Drop uint8

// The reasons.
const (
	DropMalformed   Drop = iota // it can't be decoded
	DropOther                   // it is for another incarnation
	DropStranger                // its sender is no member
	DropUnreachable             // its sender is unreachable, as this node finds
	DropQuarantined             // its sender is quarantined
	DropExpired                 // it was too old when it was handled
	DropUnknown                 // its sender does not know this node
	DropEarly                   // this node is no member yet, or no more
	DropUnexpected              // nothing waits for it
	DropRemoved                 // its sender was removed
	// Drops is one more than the last.
	Drops
)

func (d Drop) String() string {
	names := []string{"malformed", "other", "stranger", "unreachable", "quarantined", "expired", "unknown", "early", "unexpected", "removed"}
	if int(d) >= len(names) {
		return fmt.Sprintf("drop(%d)", uint8(d))
	}
	return names[d]
}

// Timeout is something that was waited for in vain.
type Timeout uint8

// The time-outs.
const (
	TimeoutSeeds         Timeout = iota // no seed has let a node in
	TimeoutJoin                         // no Welcome has come
	TimeoutJoining                      // no cluster was found in all
	TimeoutFirstResponse                // a monitored member has never answered
	TimeoutHeartbeat                    // a member became unreachable
	TimeoutName                         // an old incarnation has not answered
	TimeoutEcho                         // the node does not hear itself
	TimeoutSuspend                      // and has not for long
	TimeoutUndecided                    // nobody has decided about who can't be reached
	TimeoutDoubt                        // nobody has vouched for the node, which was away
	TimeoutConvergence                  // Joining members became WeaklyUp
	TimeoutLate                         // the node itself was paused
	// Timeouts is one more than the last.
	Timeouts
)

func (t Timeout) String() string {
	names := []string{"seeds", "join", "joining", "first-response", "heartbeat", "name", "echo", "suspend", "undecided", "doubt", "convergence", "late"}
	if int(t) >= len(names) {
		return fmt.Sprintf("timeout(%d)", uint8(t))
	}
	return names[t]
}

// Counters are what a machine has counted since it was made.
type Counters struct {
	// Sent and Received count messages. The index is a Kind, such as KindHeartbeat.
	Sent, Received [Kinds]uint64
	// Dropped counts messages that were not handled. The index is a Drop, such as DropExpired.
	Dropped [Drops]uint64
	// TimedOut counts what was waited for in vain. The index is a Timeout, such as TimeoutHeartbeat.
	TimedOut [Timeouts]uint64
	// Gossip counts what a received gossip was, compared with what the node knew. The index is an
	// Order, such as Concurrent.
	Gossip [Concurrent + 1]uint64
	// Became counts the statuses that the node has seen members take. The index is a Status.
	Became [ReadyForShutdown + 1]uint64
	// ClockSize is the number of entries of the clock, SeenBy that of members that
	// have seen what the node knows.
	ClockSize, SeenBy int
}
