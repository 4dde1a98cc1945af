// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// Machine is one node's end of all its links. Times are counted from any moment
// and never go back.
type Machine struct {
	cfg    Config
	silent map[Kind]bool

	peers map[identity.Node]*peer
	// names holds the incarnations of a name that there are links with, the one
	// that was heard of last at the end.
	names map[string][]*peer
	// named holds what is on its way to bare names.
	named       map[string]*outgoing
	quarantined map[identity.Node]*quarantine

	// ready holds what has something to send, in the order in which it is its
	// turn.
	ready [Lanes][]*outgoing
	// notices are the incarnations to be told that they are quarantined.
	notices []identity.Node
	// waiting holds what has no credit, the one that waits longest first.
	waiting []*outgoing
	// epochs is the last one that a link was given.
	epochs uint64

	// queued and held are what waits on a lane to be sent and to be consumed, as
	// cost.
	queued, held [Lanes]int

	deliver []Delivery // reused
	stats   Stats
}

// peer is an incarnation that there are links with.
type peer struct {
	node identity.Node
	out  [Lanes]outgoing
	in   [Lanes]incoming
}

// New returns a machine without links. The error matches ErrInvalid and names
// all that is wrong.
func New(cfg Config) (*Machine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Machine{
		cfg:         cfg,
		silent:      make(map[Kind]bool),
		peers:       make(map[identity.Node]*peer),
		names:       make(map[string][]*peer),
		named:       make(map[string]*outgoing),
		quarantined: make(map[identity.Node]*quarantine),
	}
	for _, kind := range cfg.Silent {
		m.silent[kind] = true
	}
	return m, nil
}

// Send queues a message for an incarnation, or on the lane Control for a bare
// name: a node with the UID 0. The payload must not be changed any more. The
// error matches ErrInvalid, ErrTooLarge, ErrQuarantined, ErrTooManyPeers or
// ErrBackpressure.
func (m *Machine) Send(to identity.Node, lane Lane, msg Message) error {
	if len(msg.Payload) > m.cfg.MaxMessage {
		return fmt.Errorf("%w: %d bytes to %v, %d are allowed", ErrTooLarge, len(msg.Payload), to, m.cfg.MaxMessage)
	}
	if lane >= Lanes || msg.Type < Tell || msg.Type > Reply {
		return fmt.Errorf("%w: a message of type %d on lane %d", ErrInvalid, msg.Type, lane)
	}
	o, err := m.outgoing(to, lane, msg)
	if err != nil {
		return err
	}
	if o.queued > 0 && o.queued+cost(len(msg.Payload)) > m.cfg.MaxQueue {
		m.stats.Refused++
		return fmt.Errorf("%w: %d bytes to %v on lane %v", ErrBackpressure, o.queued, to, lane)
	}
	if all := m.queued[lane]; all > 0 && all+cost(len(msg.Payload)) > m.cfg.MaxQueueAll {
		m.stats.Refused++
		if o.peer == nil && o.count() == 0 {
			delete(m.named, to.Name)
		}
		return fmt.Errorf("%w: %d bytes to all peers on lane %v", ErrBackpressure, all, lane)
	}
	o.push(msg)
	m.wake(o)
	return nil
}

// outgoing finds or begins the link that a message goes to.
func (m *Machine) outgoing(to identity.Node, lane Lane, msg Message) (*outgoing, error) {
	if to.UID == 0 {
		return m.toName(to, lane, msg)
	}
	if m.quarantined[to] != nil {
		m.drop(Quarantined, 1)
		return nil, fmt.Errorf("%w: %v", ErrQuarantined, to)
	}
	if p := m.peers[to]; p != nil {
		return &p.out[lane], nil
	}
	if err := identity.CheckName(to.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p := m.join(to)
	if p == nil {
		return nil, fmt.Errorf("%w: %v is one more than %d", ErrTooManyPeers, to, m.cfg.MaxPeers)
	}
	return &p.out[lane], nil
}

func (m *Machine) toName(to identity.Node, lane Lane, msg Message) (*outgoing, error) {
	if err := identity.CheckName(to.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if lane != Control || msg.Type != Tell {
		return nil, fmt.Errorf("%w: only control messages go to a bare name", ErrInvalid)
	}
	if most := m.cfg.MaxFrame - maxHeader - maxPrefix; len(msg.Payload) > most {
		return nil, fmt.Errorf("%w: %d bytes to the name %q, %d fit one frame", ErrTooLarge, len(msg.Payload), to.Name, most)
	}
	o := m.named[to.Name]
	if o == nil {
		if len(m.named) >= m.cfg.MaxPeers {
			return nil, fmt.Errorf("%w: the name %q is one more than %d", ErrTooManyPeers, to.Name, m.cfg.MaxPeers)
		}
		o = &outgoing{to: to, lane: Control, total: &m.queued[Control]}
		m.named[to.Name] = o
	}
	return o, nil
}

// join begins links with an incarnation, unless there are too many.
func (m *Machine) join(node identity.Node) *peer {
	if same := m.names[node.Name]; len(same) >= maxIncarnations {
		m.Forget(same[0].node)
	}
	if len(m.peers) >= m.cfg.MaxPeers {
		return nil
	}
	p := &peer{node: node}
	for lane := range Lane(Lanes) {
		m.epochs++
		p.out[lane] = outgoing{to: node, lane: lane, epoch: m.epochs, limit: firstCredit, peer: p, total: &m.queued[lane]}
		p.in[lane] = incoming{told: firstCredit}
	}
	m.peers[node] = p
	m.names[node.Name] = append(m.names[node.Name], p)
	return p
}

// Forget ends the links with an incarnation and drops what is queued for it.
// When it is heard of again, the links begin anew.
func (m *Machine) Forget(node identity.Node) { m.leave(node, Forgotten) }

func (m *Machine) leave(node identity.Node, why Reason) {
	p := m.peers[node]
	if p == nil {
		return
	}
	delete(m.peers, node)
	same := slices.DeleteFunc(m.names[node.Name], func(q *peer) bool { return q == p })
	if m.names[node.Name] = same; len(same) == 0 {
		delete(m.names, node.Name)
	}
	for lane := range p.out {
		o := &p.out[lane]
		m.drop(why, o.count())
		o.clear()
		m.giveUp(Lane(lane), &p.in[lane])
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(o *outgoing) bool { return o.peer == p })
}

// Tick lets senders that have waited long enough ask for credit. It is due at
// the time that Due returns.
func (m *Machine) Tick(now time.Duration) {
	for _, o := range m.waiting {
		if o.probeAt <= now {
			o.probe = true
			o.backoff = min(2*o.backoff, maxProbeInterval)
			o.probeAt = now + o.backoff
			m.wake(o)
		}
	}
}

// Due returns when Tick has something to do, if it has.
func (m *Machine) Due() (time.Duration, bool) {
	if len(m.waiting) == 0 {
		return 0, false
	}
	due := m.waiting[0].probeAt
	for _, o := range m.waiting[1:] {
		due = min(due, o.probeAt)
	}
	return due, true
}

// Pending reports whether Flush has something to send on a lane.
func (m *Machine) Pending(lane Lane) bool {
	return len(m.ready[lane]) > 0 || lane == Control && len(m.notices) > 0
}

// Stats returns the counters.
func (m *Machine) Stats() Stats {
	s := m.stats
	s.Peers = len(m.peers)
	for lane := range s.Lanes {
		s.Lanes[lane].Queued, s.Lanes[lane].Held = m.queued[lane], m.held[lane]
	}
	return s
}

func (m *Machine) drop(why Reason, n int) {
	m.stats.Dropped[why] += uint64(n) //nolint:gosec // a count
}

// wake lines a link up to be flushed.
func (m *Machine) wake(o *outgoing) {
	if !o.ready {
		o.ready = true
		m.ready[o.lane] = append(m.ready[o.lane], o)
	}
}

// quarantine is what is known about a quarantined incarnation.
type quarantine struct {
	quiet    bool // without notices
	notified bool
	last     time.Duration // notice
}

// Quarantine ends all traffic with an incarnation, both ways and for good, and
// drops what is queued for it. Unless it is quiet, an incarnation that goes on
// sending is told. A later call can make a quiet quarantine a loud one, not the
// other way round. Nobody can quarantine itself.
func (m *Machine) Quarantine(node identity.Node, quiet bool) {
	if node.UID == 0 || node == m.cfg.Self {
		return
	}
	m.leave(node, Quarantined)
	if q := m.quarantined[node]; q != nil {
		q.quiet = q.quiet && quiet
		return
	}
	m.quarantined[node] = &quarantine{quiet: quiet}
}

// IsQuarantined reports whether there is no traffic with an incarnation.
func (m *Machine) IsQuarantined(node identity.Node) bool { return m.quarantined[node] != nil }

// answer lets a quarantined sender know, not too often, and never in answer to
// something that is silent: two nodes that quarantined each other would go on for
// ever.
func (m *Machine) answer(now time.Duration, f Frame) {
	q := m.quarantined[f.From]
	if q.quiet || q.notified && now < q.last+m.cfg.NoticeInterval {
		return
	}
	for r := (reader{b: f.Body}); len(r.b) > 0; {
		if e, _ := r.entry(); e.Type >= Tell && e.Type <= continuation && !m.silent[e.Kind] {
			q.notified, q.last = true, now
			m.notices = append(m.notices, f.From)
			return
		}
	}
}

func (m *Machine) notice(to identity.Node, dst []byte) []byte {
	dst = AppendFrame(dst, Frame{Lane: Control, From: m.cfg.Self, To: to.UID})
	return appendEntry(dst, entry{Message: Message{Type: notice, Correlation: to.UID}})
}

// Stats counts since the machine began.
type Stats struct {
	Lanes [Lanes]LaneStats
	// Dropped counts what was dropped, by Reason. Frames and messages count as
	// one each.
	Dropped [Reasons]uint64
	// Refused counts messages that Send did not take for want of room.
	Refused uint64
	// Notices counts the Quarantined notices that were sent.
	Notices uint64
	// Peers is how many incarnations there are links with now.
	Peers int
}

// LaneStats counts on one lane.
type LaneStats struct {
	FramesOut, FramesIn, MessagesOut, MessagesIn, BytesOut, BytesIn uint64
	// Gaps is how often frames were missing, Lost how many in all.
	Gaps, Lost uint64
	// Stalls is how often a link ran out of credit.
	Stalls uint64
	// Queued and Held are how many bytes wait now to be sent, and were received and
	// are not consumed yet.
	Queued, Held int
}
