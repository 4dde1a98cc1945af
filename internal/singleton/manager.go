// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// progressRetries is how many retry intervals pass between two requests while a hand-over is in
// progress: the message about its end may have been lost.
const progressRetries = 10

// Manager decides for one node and one singleton when an instance runs there. The same inputs at
// the same times give the same effects. It is not safe for concurrent use.
type Manager struct {
	cfg   Config
	state State

	members   Members
	preparing bool // the whole cluster is about to stop
	exited    bool // this node is about to exit
	order     []identity.Member
	changes   []identity.Node // new oldest members that were not handled yet
	removals  removals

	previous  []identity.Node // nodes that may have an instance, the last oldest member first
	newOldest identity.Node
	peer      identity.Node // the node to which an instance is handed over
	peerRound uint64
	soleHost  bool   // only this node had an instance
	round     uint64 // of this node's requests

	retries      int
	retryAt      time.Duration
	handOverRuns bool // the previous oldest is handing over
	stuck        bool // restart when the instance has ended

	instance, instances     uint64
	ending                  bool
	suspended, disconnected bool            // no instance is started in either state
	startPending            bool            // start an instance when both states have ended
	watchers                []identity.Node // nodes whose proxies have located the instance on this node

	lease leaseState
}

// New returns a manager. The error matches ErrInvalid and lists the invalid fields.
func New(cfg Config) (*Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Manager{cfg: cfg.withDefaults(), state: Start}, nil
}

// State returns the state of the manager.
func (m *Manager) State() State { return m.state }

// Instance returns the instance that runs or is being stopped. 0 means none.
func (m *Manager) Instance() uint64 { return m.instance }

// Step handles an input at a time. The origin of time is arbitrary. Time must not decrease.
func (m *Manager) Step(now time.Duration, in Input) Effects {
	var out Effects
	if m.state == End && !m.isHandledAtEnd(in) {
		return out
	}
	switch in := in.(type) {
	case Members:
		m.updateMembers(now, in, &out)
	case Received:
		m.receive(now, in.From, in.Message, &out)
	case InstanceEnded:
		m.instanceEnded(now, in.Instance, &out)
	case LeaseAnswer:
		m.leaseAnswered(now, in.Held, &out)
	case LeaseReleased:
		if m.state == HandingOver && m.instance == 0 {
			m.handOverDone(now, &out)
		}
	case LeaseLost:
		m.leaseLost(&out)
	case SelfExiting:
		m.selfExiting(&out)
	case Suspend:
		m.suspend(&out)
	case Resume:
		m.suspended = false
		m.startIfPending(&out)
	case Link:
		m.disconnected = !in.Up
		m.startIfPending(&out)
	}
	m.handleOldestChanges(now, &out)
	return out
}

// Tick handles what is due. It must be called at least once a second.
func (m *Manager) Tick(now time.Duration) Effects {
	var out Effects
	for _, n := range m.removals.due(now) {
		m.gone(now, n, &out)
	}
	m.removals = slices.DeleteFunc(m.removals, func(d removal) bool { return d.gone && now >= d.at+remembered })
	switch m.state {
	case BecomingOldest:
		if now >= m.retryAt {
			m.retryHandOver(now, &out)
		}
	case WasOldest:
		if now >= m.retryAt {
			m.retryTakeOver(now, &out)
		}
	case AcquiringLease:
		if m.instance == 0 && m.lease.asked == 0 && now >= m.lease.retryAt {
			m.acquire(&out)
		}
	case Start, Younger, Oldest, HandingOver, Stopping, End:
	}
	m.handleOldestChanges(now, &out)
	return out
}

func (m *Manager) become(s State, out *Effects) {
	out.Notes = append(out.Notes, Note{Kind: Became, State: s, From: m.state})
	m.state = s
}

func (m *Manager) send(to identity.Node, msg Message, out *Effects) {
	msg.Singleton = m.cfg.Name
	out.Send = append(out.Send, Outgoing{To: to, Message: msg})
}

// begin determines the older members and the next state. It is called at the start, and when the
// manager restarts because it is stuck.
func (m *Manager) begin(now time.Duration, out *Effects) {
	self := m.find(m.cfg.Self)
	m.changes, m.previous = nil, nil
	m.order = m.candidates()
	safe := true
	for i := range m.order {
		c := &m.order[i]
		if c.UpNumber > self.UpNumber {
			break
		}
		safe = safe && c.Status != identity.Down && c.Status != identity.Exiting && c.Status != identity.Leaving
		if c.Node != m.cfg.Self {
			m.previous = append(m.previous, c.Node)
		}
	}
	// A recently removed member may still run an instance.
	for _, n := range m.removals.waiting(self) {
		m.previous = append(m.previous, n)
		safe = false
	}
	// A leaving member sends no requests; it waits for HandOverToMe.
	m.order = slices.DeleteFunc(m.order, func(o identity.Member) bool { return o.Status == identity.Exiting && o.Node != m.cfg.Self })
	switch {
	case m.oldest() != m.cfg.Self:
		m.become(Younger, out)
		out.ExitDone = out.ExitDone || m.exited
	case safe:
		m.becomeOldest(true, out)
	default:
		m.becoming(now, out)
	}
}

// handleOldestChanges handles the changes of the oldest member one at a time, in the states in
// which that is possible.
func (m *Manager) handleOldestChanges(now time.Duration, out *Effects) {
	for len(m.changes) > 0 && (m.state == Younger || m.state == Oldest || m.state == AcquiringLease) {
		oldest := m.changes[0]
		m.changes = slices.Delete(m.changes, 0, 1)
		switch {
		case m.preparing: // no instance is handed over
		case m.state == Younger:
			m.youngerTold(now, oldest, out)
		default:
			m.handOverToNext(now, oldest, out)
		}
	}
}

func (m *Manager) youngerTold(now time.Duration, oldest identity.Node, out *Effects) {
	switch {
	case oldest.IsZero():
	case oldest != m.cfg.Self:
		m.previous = slices.DeleteFunc(m.previous, func(n identity.Node) bool { return n == oldest })
		m.previous = slices.Insert(m.previous, 0, oldest)
	case m.allGone():
		m.becomeOldest(false, out)
	default:
		m.becoming(now, out)
	}
}

func (m *Manager) becoming(now time.Duration, out *Effects) {
	m.become(BecomingOldest, out)
	m.round++
	m.retries, m.handOverRuns = 0, false
	m.askPrevious(now, out)
}

func (m *Manager) askPrevious(now time.Duration, out *Effects) {
	m.retries++
	m.retryAt = now + m.cfg.RetryInterval
	if m.handOverRuns {
		m.retryAt = now + progressRetries*m.cfg.RetryInterval
	}
	if len(m.previous) > 0 {
		m.send(m.previous[0], Message{Kind: HandOverToMe, Round: m.round}, out)
	}
}

func (m *Manager) retryHandOver(now time.Duration, out *Effects) {
	switch {
	case m.handOverRuns || m.retries <= m.cfg.handOverRetries():
		m.askPrevious(now, out)
	case m.allGone():
		m.becomeOldest(false, out)
	default:
		out.Notes = append(out.Notes, Note{Kind: Stuck, State: m.state, Peer: m.previous[0], Message: HandOverToMe})
		m.begin(now, out)
	}
}

// allGone reports whether no node is left that may have an instance.
func (m *Manager) allGone() bool {
	return !slices.ContainsFunc(m.previous, func(n identity.Node) bool { return !m.removals.gone(n) })
}

// gone records that a removed member no longer has an instance.
func (m *Manager) gone(now time.Duration, n identity.Node, out *Effects) {
	i := slices.Index(m.previous, n)
	if i < 0 {
		return
	}
	m.previous = slices.Delete(m.previous, i, i+1)
	if m.state != BecomingOldest {
		return
	}
	if m.allGone() {
		m.becomeOldest(false, out)
	} else if i == 0 { // the next one may have newer information
		m.handOverRuns = false
		m.askPrevious(now, out)
	}
}

// becomeOldest starts the instance. With a lease, it acquires the lease first. soleHost reports
// that no other node has an instance: the previous node handed over, or there was no previous node.
// If soleHost is false, the previous nodes are gone. They may have handed over to another node
// while this node was leaving, because the other nodes do not count a leaving node. Therefore a
// node that is Exiting starts no instance and only hands over to the next node.
func (m *Manager) becomeOldest(soleHost bool, out *Effects) {
	m.previous, m.soleHost = nil, soleHost
	switch {
	case m.preparing || m.exited || m.find(m.cfg.Self).Status == identity.Exiting:
		m.become(Oldest, out)
	case m.cfg.UseLease:
		m.acquire(out)
	default:
		m.become(Oldest, out)
		m.start(out)
	}
}

func (m *Manager) start(out *Effects) {
	if m.startBlocked() {
		m.startPending = true
		return
	}
	m.instances++
	m.instance, m.ending, m.startPending, m.soleHost = m.instances, false, false, true
	out.Start = m.instance
}

func (m *Manager) stop(out *Effects) {
	if m.instance != 0 && !m.ending {
		m.ending = true
		out.Stop = m.instance
		m.notifyProxies(out)
	}
}

func (m *Manager) instanceEnded(now time.Duration, instance uint64, out *Effects) {
	if instance != m.instance || instance == 0 {
		return
	}
	m.instance, m.ending = 0, false
	m.notifyProxies(out)
	switch m.state {
	case Oldest:
		// The instance is not started again, unless this manager has stopped it.
		m.startIfPending(out)
	case AcquiringLease:
		if m.lease.asked == 0 {
			m.acquire(out)
		}
	case HandingOver:
		if !m.dropLease(out) {
			m.handOverDone(now, out)
		}
	case Stopping:
		m.finish(out)
	case Start, Younger, BecomingOldest, WasOldest, End:
	}
}

// suspend stops the instance. The node remains the oldest.
func (m *Manager) suspend(out *Effects) {
	m.suspended = true
	if m.instance != 0 && m.state == Oldest {
		m.startPending = true
	}
	m.stop(out)
}

func (m *Manager) startBlocked() bool { return m.suspended || m.disconnected }

func (m *Manager) startIfPending(out *Effects) {
	if m.state == Oldest && m.startPending && m.instance == 0 && !m.startBlocked() {
		m.startPending = false
		if m.cfg.UseLease {
			m.acquire(out) // the lease may have been lost unnoticed
			return
		}
		m.start(out)
	}
}

// end stops everything: this node is no longer a member.
func (m *Manager) end(out *Effects) {
	if m.instance == 0 {
		m.finish(out)
		return
	}
	if m.state != Stopping {
		m.become(Stopping, out)
	}
	m.stop(out)
}

func (m *Manager) finish(out *Effects) {
	m.dropLease(out)
	m.peer = identity.Node{}
	if m.state != End {
		m.become(End, out)
	}
	out.ExitDone, out.Ended = true, true
}

type leaseState struct {
	asked   int // unanswered requests
	held    bool
	retryAt time.Duration
}

func (m *Manager) acquire(out *Effects) {
	if m.state != AcquiringLease {
		m.become(AcquiringLease, out)
	}
	m.lease.asked++
	out.AskLease = true
}

func (m *Manager) leaseAnswered(now time.Duration, held bool, out *Effects) {
	l := &m.lease
	if l.asked == 0 {
		return
	}
	l.asked--
	if l.asked > 0 || m.state != AcquiringLease {
		return // the lease was released after this request
	}
	l.held = held
	if !held {
		l.retryAt = now + m.cfg.LeaseRetryInterval
	} else if m.instance == 0 {
		m.become(Oldest, out)
		m.start(out)
	}
}

// leaseLost ends the instance. The oldest member then acquires the lease again, unless it has no
// instance to run.
func (m *Manager) leaseLost(out *Effects) {
	if !m.lease.held {
		return
	}
	m.lease.held = false
	m.stop(out)
	if m.state != Oldest {
		return
	}
	if m.instance == 0 || m.suspended {
		m.startIfPending(out)
		return
	}
	m.startPending = false
	m.become(AcquiringLease, out)
}

// dropLease releases the lease if it is held or requested, and reports whether it did. It is called
// only when no instance runs.
func (m *Manager) dropLease(out *Effects) bool {
	if !m.lease.held && m.lease.asked == 0 {
		return false
	}
	m.lease.held = false
	out.ReleaseLease = true
	return true
}

// Input is an input of a manager.
type Input interface{ input() }

// Members are all members of the cluster, sorted by node. The slice is immutable. A slice with the
// same start and length is taken as unchanged.
type Members []identity.Member

// Received is a message from another manager.
type Received struct {
	From    identity.Node
	Message Message
}

// InstanceEnded reports that an instance has ended, whether or not it was asked to stop.
type InstanceEnded struct{ Instance uint64 }

// LeaseAnswer answers AskLease. Each AskLease must have exactly one LeaseAnswer. After an error the
// lease is not held.
type LeaseAnswer struct{ Held bool }

// LeaseReleased answers ReleaseLease, even if the release failed.
type LeaseReleased struct{}

// LeaseLost reports the loss of the held lease.
type LeaseLost struct{}

// SelfExiting reports that the shutdown of the node has reached the phase in which it hands over
// its singletons.
type SelfExiting struct{}

// Suspend reports that other nodes may take over, because the node was disconnected for too long:
// the instance is stopped and none is started.
type Suspend struct{}

// Resume ends Suspend. The node must still be a member.
type Resume struct{}

// Link reports whether the node receives its own heartbeats through the network. While it does not,
// no instance is started, because the node may have been downed. The initial state is connected.
type Link struct{ Up bool }

func (Members) input()       {}
func (Received) input()      {}
func (InstanceEnded) input() {}
func (LeaseAnswer) input()   {}
func (LeaseReleased) input() {}
func (LeaseLost) input()     {}
func (SelfExiting) input()   {}
func (Suspend) input()       {}
func (Resume) input()        {}
func (Link) input()          {}

// Effects are the effects of a manager, in the order of the fields.
type Effects struct {
	// Notes are for the log and the counters.
	Notes []Note
	// Stop asks this instance to end. InstanceEnded reports its end. 0 means none.
	Stop uint64
	// ReleaseLease releases the lease. LeaseReleased is the answer. Operations on the lease run one
	// after another.
	ReleaseLease bool
	// AskLease acquires the lease in the name of this node. LeaseAnswer is the answer. LeaseLost
	// reports a later loss of the lease, but not before the answer.
	AskLease bool
	// Start starts this instance. 0 means none.
	Start uint64
	// Send are messages to the managers of other nodes.
	Send []Outgoing
	// ExitDone reports that this singleton no longer prevents the node from exiting.
	ExitDone bool
	// Ended reports that the manager has ended.
	Ended bool
}

// Outgoing is a message to send.
type Outgoing struct {
	To      identity.Node
	Message Message
}

// NoteKind is the kind of a note.
type NoteKind uint8

const (
	// Became means that the manager has changed its state.
	Became NoteKind = 1 + iota
	// Ignored means that a message was ignored, because its sender is not part of the hand-over or
	// because it was late.
	Ignored
	// Stuck means that the manager restarts, because it received no reply.
	Stuck
)

func (k NoteKind) String() string {
	return enum.Name(k, "note", "", "became", "ignored", "stuck")
}

// Note describes an action of a manager.
type Note struct {
	Kind NoteKind
	// State and From are the new and the old state, in Became.
	State, From State
	// Peer and Message are the ignored message, or the peer that did not reply.
	Peer    identity.Node
	Message Kind
}

// State is the state of a manager.
type State uint8

// The states. A manager begins in Start and ends in End.
const (
	Start State = 1 + iota
	Younger
	BecomingOldest
	AcquiringLease
	Oldest
	WasOldest
	HandingOver
	Stopping
	End
)

func (s State) String() string {
	return enum.Name(s, "state",
		"", "start", "younger", "becoming oldest", "acquiring lease", "oldest", "was oldest", "handing over",
		"stopping", "end")
}
