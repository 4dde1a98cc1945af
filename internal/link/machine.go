// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// Machine is one node's end of all its links. Times are durations since an arbitrary start and
// never decrease.
type Machine struct {
	cfg   Config
	peers map[identity.Node]*peer
	// names holds the peers of each name, and the names of which bytes are held.
	names map[string]*sender
	// unheard holds the peers that have sent nothing, the oldest one first. They are evicted first:
	// their names may be invented.
	unheard []*peer
	// named holds the queues of messages to bare names.
	named       map[string]*outgoing
	quarantined map[identity.Node]*quarantine
	uses        uint64 // of quarantines

	// ready holds the links with something to send, in the order of their turns.
	ready [Lanes][]*outgoing
	// notices are the incarnations that will be sent a quarantine notice.
	notices []identity.Node
	// waiting holds the links without credit, the longest waiting first.
	waiting []*outgoing
	// epochs is the last epoch that was assigned to a link.
	epochs uint64

	// queued and held are the costs of all messages that wait to be sent and to be consumed. budget
	// is the limit of held for all lanes together.
	queued, held [Lanes]int
	budget       int

	deliver []Delivery // reused
	stats   Stats
}

// sender is a name that a carrier has authenticated, or to which messages are sent.
type sender struct {
	peers []*peer    // the most recently active one last
	held  [Lanes]int // costs of all its messages that wait to be consumed
}

type peer struct {
	node  identity.Node
	name  *sender
	heard bool // it has sent a frame
	out   [Lanes]outgoing
	in    [Lanes]incoming
}

// New returns a machine without links. The error matches ErrInvalid and lists all mistakes.
func New(cfg Config) (*Machine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Machine{
		cfg:         cfg,
		peers:       make(map[identity.Node]*peer),
		names:       make(map[string]*sender),
		budget:      cfg.Budget,
		named:       make(map[string]*outgoing),
		quarantined: make(map[identity.Node]*quarantine),
	}, nil
}

// Send queues a message for an incarnation or, on the lane Control, for a bare name, which is a
// node with the UID 0. The payload must not change after the call. The error matches ErrInvalid,
// ErrTooLarge, ErrQuarantined, ErrTooManyPeers or ErrBackpressure.
func (m *Machine) Send(to identity.Node, lane Lane, msg Message) error {
	if len(msg.Payload) > m.cfg.MaxMessage {
		return fmt.Errorf("%w: %d bytes to %v, limit %d", ErrTooLarge, len(msg.Payload), to, m.cfg.MaxMessage)
	}
	if lane >= Lanes || msg.Type < Tell || msg.Type > Reply {
		return fmt.Errorf("%w: message type %d on lane %d", ErrInvalid, msg.Type, lane)
	}
	o, err := m.outgoing(to, lane, msg)
	if err != nil {
		return err
	}
	if o.queued > 0 && o.queued+cost(len(msg.Payload)) > m.cfg.MaxQueue {
		m.stats.Refused++
		return fmt.Errorf("%w: %d bytes queued for %v on lane %v", ErrBackpressure, o.queued, to, lane)
	}
	if all := m.queued[lane]; all > 0 && all+cost(len(msg.Payload)) > m.cfg.MaxQueueAll {
		m.stats.Refused++
		if o.peer == nil && o.count() == 0 {
			delete(m.named, to.Name)
		}
		return fmt.Errorf("%w: %d bytes queued for all peers on lane %v", ErrBackpressure, all, lane)
	}
	o.queue = append(o.queue, msg)
	o.queued += cost(len(msg.Payload))
	*o.total += cost(len(msg.Payload))
	m.schedule(o)
	return nil
}

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
	p := m.addPeer(to)
	if p == nil {
		return nil, fmt.Errorf("%w: cannot add %v, limit %d", ErrTooManyPeers, to, m.cfg.MaxPeers)
	}
	return &p.out[lane], nil
}

func (m *Machine) toName(to identity.Node, lane Lane, msg Message) (*outgoing, error) {
	if err := identity.CheckName(to.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if lane != Control || msg.Type != Tell {
		return nil, fmt.Errorf("%w: a bare name accepts one-way messages on the control lane only", ErrInvalid)
	}
	if most := m.cfg.MaxFrame - maxHeader - maxPrefix; len(msg.Payload) > most {
		return nil, fmt.Errorf("%w: %d bytes to the name %q, limit %d", ErrTooLarge, len(msg.Payload), to.Name, most)
	}
	o := m.named[to.Name]
	if o == nil {
		if len(m.named) >= m.cfg.MaxPeers {
			return nil, fmt.Errorf("%w: cannot add the name %q, limit %d", ErrTooManyPeers, to.Name, m.cfg.MaxPeers)
		}
		o = &outgoing{to: to, lane: Control, total: &m.queued[Control]}
		m.named[to.Name] = o
	}
	return o, nil
}

// addPeer creates the links with an incarnation. It returns nil if the number of peers is at its
// limit and all of them have sent frames.
func (m *Machine) addPeer(node identity.Node) *peer {
	if name := m.names[node.Name]; name != nil && len(name.peers) >= maxIncarnations {
		m.Forget(name.peers[max(0, slices.IndexFunc(name.peers, func(p *peer) bool { return !p.heard }))].node)
	}
	if len(m.peers) >= m.cfg.MaxPeers {
		if len(m.unheard) == 0 {
			return nil
		}
		m.Forget(m.unheard[0].node)
	}
	name := m.sender(node.Name)
	p := &peer{node: node, name: name}
	for lane := range Lane(Lanes) {
		m.epochs++
		p.out[lane] = outgoing{to: node, lane: lane, epoch: m.epochs, limit: initialCredit, peer: p, total: &m.queued[lane]}
		p.in[lane] = incoming{granted: initialCredit}
	}
	m.peers[node] = p
	name.peers = append(name.peers, p)
	m.unheard = append(m.unheard, p)
	return p
}

// Forget ends the links with an incarnation and drops its queued messages. New links, with higher
// epochs, begin with the next message or frame.
func (m *Machine) Forget(node identity.Node) { m.removePeer(node, Forgotten) }

func (m *Machine) removePeer(node identity.Node, why Reason) {
	p := m.peers[node]
	if p == nil {
		return
	}
	delete(m.peers, node)
	m.markHeard(p)
	p.name.peers = slices.DeleteFunc(p.name.peers, func(q *peer) bool { return q == p })
	for lane := range p.out {
		o := &p.out[lane]
		m.drop(why, o.count())
		*o.total -= o.queued
		*o = outgoing{to: o.to, lane: o.lane, ready: o.ready, total: o.total}
		m.dropPartial(p, Lane(lane))
	}
	m.forgetName(node.Name)
	m.waiting = slices.DeleteFunc(m.waiting, func(o *outgoing) bool { return o.peer == p })
}

func (m *Machine) sender(name string) *sender {
	if m.names[name] == nil {
		m.names[name] = new(sender)
	}
	return m.names[name]
}

// forgetName removes a name without peers and without held bytes.
func (m *Machine) forgetName(name string) {
	if at := m.names[name]; at != nil && len(at.peers) == 0 && at.held == [Lanes]int{} {
		delete(m.names, name)
	}
}

// Tick makes each link request credit if it has waited for its interval. Due returns the time of
// the next call.
func (m *Machine) Tick(now time.Duration) {
	for _, o := range m.waiting {
		if o.probeAt <= now {
			o.probe = true
			o.backoff = min(2*o.backoff, maxProbeInterval)
			o.probeAt = now + o.backoff
			m.schedule(o)
		}
	}
}

// Due returns when Tick has to be called next, or false if no link waits.
func (m *Machine) Due() (time.Duration, bool) {
	if len(m.waiting) == 0 {
		return 0, false
	}
	return slices.MinFunc(m.waiting, func(a, b *outgoing) int { return cmp.Compare(a.probeAt, b.probeAt) }).probeAt, true
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

func (m *Machine) schedule(o *outgoing) {
	if !o.ready {
		o.ready = true
		m.ready[o.lane] = append(m.ready[o.lane], o)
	}
}

type quarantine struct {
	used     uint64 // increases with the last frame or call
	quiet    bool   // send no notices
	notified bool
	last     time.Duration // time of the last notice
}

// Quarantine ends all traffic with an incarnation, in both directions, and drops its queued
// messages. It is permanent, except that the machine forgets the incarnation that has been silent
// for longest when more than MaxPeers are quarantined. Unless quiet is set, the machine sends the
// incarnation a notice when it continues to send. A later call can turn a quiet quarantine into one
// with notices, but not the reverse. Calls for the local incarnation have no effect.
func (m *Machine) Quarantine(node identity.Node, quiet bool) {
	if node.UID == 0 || node == m.cfg.Self {
		return
	}
	m.removePeer(node, Quarantined)
	m.uses++
	if q := m.quarantined[node]; q != nil {
		q.quiet, q.used = q.quiet && quiet, m.uses
		return
	}
	m.quarantined[node] = &quarantine{quiet: quiet, used: m.uses}
	if len(m.quarantined) > m.cfg.MaxPeers {
		oldest := node
		for other, q := range m.quarantined { // the order does not matter: each use is different
			if q.used < m.quarantined[oldest].used {
				oldest = other
			}
		}
		delete(m.quarantined, oldest)
	}
}

// IsQuarantined reports whether an incarnation is quarantined.
func (m *Machine) IsQuarantined(node identity.Node) bool { return m.quarantined[node] != nil }

// queueNotice schedules a notice to a quarantined sender, at most one per NoticeInterval. It
// ignores frames that hold only silent messages or notices. If notices were answered, two nodes
// that quarantined each other would exchange notices without end.
func (m *Machine) queueNotice(now time.Duration, f Frame) {
	q := m.quarantined[f.From]
	m.uses++
	q.used = m.uses
	if q.quiet || q.notified && now < q.last+m.cfg.NoticeInterval {
		return
	}
	for r := (reader{b: f.Body}); len(r.b) > 0; {
		if e, _ := r.entry(); e.Type >= Tell && e.Type <= continuation && !slices.Contains(m.cfg.Silent, e.Kind) {
			q.notified, q.last = true, now
			m.notices = append(m.notices, f.From)
			return
		}
	}
}

// Stats holds counters since the machine was created; see transport.Stats.
type Stats struct {
	Lanes   [Lanes]LaneStats
	Dropped [Reasons]uint64
	Refused uint64
	Notices uint64
	Peers   int
}

// LaneStats holds the counters of one lane; see transport.LaneStats.
type LaneStats struct {
	FramesOut, FramesIn, MessagesOut, MessagesIn, BytesOut, BytesIn uint64
	Gaps, Lost, Stalls                                              uint64
	Queued, Held                                                    int
}
