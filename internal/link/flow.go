// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// Flush appends the next frame of a lane to dst and returns its receiver, an incarnation or a bare
// name. The links of a lane take turns. The result ok is false if there is nothing to send. The
// sequence number of the frame is used up even if the caller does not send it.
func (m *Machine) Flush(now time.Duration, lane Lane, dst []byte) (to identity.Node, frame []byte, ok bool) {
	if lane == Control && len(m.notices) > 0 {
		to = m.notices[0]
		m.notices = slices.Delete(m.notices, 0, 1)
		m.stats.Notices++
		dst = AppendFrame(dst, Frame{Lane: Control, From: m.cfg.Self, To: to.UID})
		return to, m.sent(lane, appendEntry(dst, entry{Message: Message{Type: notice, Correlation: to.UID}})), true
	}
	for len(m.ready[lane]) > 0 {
		o := m.ready[lane][0]
		o.ready = false
		m.ready[lane] = slices.Delete(m.ready[lane], 0, 1)
		if o.to.UID == 0 {
			frame, ok = m.flushName(o, dst)
		} else {
			frame, ok = m.flushLink(now, o, dst)
		}
		if ok {
			return o.to, m.sent(lane, frame), true
		}
	}
	return identity.Node{}, dst, false
}

func (m *Machine) sent(lane Lane, frame []byte) []byte {
	m.stats.Lanes[lane].FramesOut++
	m.stats.Lanes[lane].BytesOut += uint64(len(frame))
	return frame
}

func (m *Machine) flushName(o *outgoing, dst []byte) ([]byte, bool) {
	if o.count() == 0 {
		return dst, false
	}
	e := o.nextEntry(m.cfg.MaxFrame)
	if o.count() > 0 {
		m.schedule(o)
	} else {
		delete(m.named, o.to.Name)
	}
	m.stats.Lanes[o.lane].MessagesOut++
	return appendEntry(AppendFrame(dst, Frame{Lane: o.lane, From: m.cfg.Self}), e), true
}

func (m *Machine) flushLink(now time.Duration, o *outgoing, dst []byte) ([]byte, bool) {
	if o.peer == nil {
		return dst, false // the peer was forgotten after o was scheduled
	}
	begin := len(dst)
	f := Frame{
		Lane: o.lane, From: m.cfg.Self, To: o.to.UID,
		Sequenced: true, Epoch: o.epoch, Number: o.number + 1, Offset: o.offset,
		RequestsCredit: o.probe || o.lane.Credited() && !o.requested,
	}
	dst = AppendFrame(dst, f)
	body := len(dst)
	if o.lane == Control {
		dst = m.appendGrants(o.peer, dst)
	}
	for o.count() > 0 {
		left := len(o.queue[o.head].Payload) - o.sentBytes
		room := m.cfg.MaxFrame - (len(dst) - begin) - maxPrefix
		if len(dst) > body && (left > room || len(dst)-begin+maxPrefix+left > m.cfg.FrameSize) {
			break
		}
		part := cost(min(left, room))
		if !o.hasCredit(part) {
			break
		}
		o.offset += uint64(part) //nolint:gosec // a size
		e := o.nextEntry(room)
		dst = appendEntry(dst, e)
		if e.rest > 0 {
			break
		}
		m.stats.Lanes[o.lane].MessagesOut++
	}
	if len(dst) == body && !f.RequestsCredit {
		m.wait(now, o)
		return dst[:begin], false
	}
	o.number++
	o.requested, o.probe = o.requested || f.RequestsCredit, false
	if o.count() > 0 {
		m.schedule(o) // for its next turn, even if the credit is used up
	}
	return dst, true
}

func (m *Machine) wait(now time.Duration, o *outgoing) {
	if o.count() == 0 || o.waiting {
		return
	}
	m.stats.Lanes[o.lane].Stalls++
	o.waiting = true
	o.backoff = m.cfg.ProbeInterval
	o.probeAt = now + o.backoff
	m.waiting = append(m.waiting, o)
}

func (m *Machine) applyGrant(p *peer, e entry) {
	limit, size := binary.Uvarint(e.Payload)
	lane := Lane(min(e.Kind, Lanes))
	if size <= 0 || lane >= Lanes || e.Correlation != p.out[lane].epoch {
		return
	}
	o := &p.out[lane]
	// The cap only prevents overflow of sums.
	if limit = min(limit, o.offset+1<<30); limit <= o.limit {
		return
	}
	o.limit = limit
	if o.waiting {
		o.waiting = false
		m.waiting = slices.DeleteFunc(m.waiting, func(other *outgoing) bool { return other == o })
		m.schedule(o)
	}
}

func (m *Machine) appendGrants(p *peer, dst []byte) []byte {
	for lane := range p.in {
		in := &p.in[lane]
		if !in.grantDue {
			continue
		}
		in.grantDue = false
		in.granted = max(in.granted, in.limit(m.window()))
		var payload [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(payload[:], in.granted)
		dst = appendEntry(dst, entry{Message: Message{Type: grant, Kind: Kind(lane), Correlation: in.epoch, Payload: payload[:n]}})
	}
	return dst
}

type outgoing struct {
	to   identity.Node
	lane Lane
	peer *peer // nil for a bare name

	queue     []Message
	head      int  // of the queue
	sentBytes int  // bytes of the first message that were already sent
	queued    int  // cost of the queue
	total     *int // cost of the queues of all links on the lane

	epoch, number uint64
	offset, limit uint64 // bytes of credit used, and granted

	requested bool // the first frame has requested credit
	ready     bool // is in Machine.ready
	waiting   bool // is in Machine.waiting
	probe     bool // the next frame requests credit
	probeAt   time.Duration
	backoff   time.Duration
}

func (o *outgoing) count() int { return len(o.queue) - o.head }

func (o *outgoing) pop() {
	price := cost(len(o.queue[o.head].Payload))
	o.queued -= price
	*o.total -= price
	o.queue[o.head] = Message{} // release the payload
	o.sentBytes = 0
	if o.head++; o.head == len(o.queue) {
		if cap(o.queue) > 1024 {
			o.queue = nil // the burst is over
		}
		o.queue, o.head = o.queue[:0], 0
	} else if o.head >= 256 && o.head*2 >= len(o.queue) {
		n := copy(o.queue, o.queue[o.head:])
		clear(o.queue[n:])
		o.queue, o.head = o.queue[:n], 0
	}
}

func (o *outgoing) hasCredit(n int) bool {
	return !o.lane.Credited() || o.offset+uint64(n) <= o.limit //nolint:gosec // a size
}

// nextEntry removes the next entry from the queue: a message, or a part of one that fits into room.
func (o *outgoing) nextEntry(room int) entry {
	msg := o.queue[o.head]
	payload := msg.Payload[o.sentBytes:]
	part := min(len(payload), room)
	e := entry{Message: msg, rest: uint64(len(payload) - part)} //nolint:gosec // a size
	e.Payload = payload[:part]
	if o.sentBytes > 0 {
		e.Type, e.Kind, e.Correlation, e.Compressed = continuation, 0, 0, false
	}
	if e.rest > 0 {
		o.sentBytes += part
	} else {
		o.pop()
	}
	return e
}

// rejection returns the reason to reject a frame of the given cost, or 0. All incarnations of a name
// together may hold as many bytes as are free: see loop.Budget.
func (m *Machine) rejection(p *peer, lane Lane, size int) Reason {
	switch {
	case p.in[lane].held+size > m.cfg.Window:
		return OverCredit
	case !m.fits(p.name, lane, size):
		return Overload
	}
	return 0
}

// fits reports whether a name may hold further bytes. Only the lane Control counts for itself, so that
// the other messages of a name do not displace its heartbeats.
func (m *Machine) fits(name *sender, lane Lane, size int) bool {
	held := name.held[Control]
	if lane != Control {
		held += name.held[Data] + name.held[Bulk]
	}
	return size == 0 || held+size <= m.budget-m.Held()-size
}

func (m *Machine) hold(p *peer, lane Lane, cost int) {
	p.in[lane].held += cost
	p.name.held[lane] += cost
	m.held[lane] += cost
}

// dropPartial drops a message that cannot be completed.
func (m *Machine) dropPartial(p *peer, lane Lane) {
	in := &p.in[lane]
	if part := in.partial; part != nil {
		in.held -= min(in.held, part.cost)
		p.name.held[lane] -= part.cost
		m.held[lane] -= part.cost
		in.partial = nil
		m.drop(Incomplete, 1)
	}
}

// Consume releases the cost of handled messages.
func (m *Machine) Consume(from identity.Node, lane Lane, cost int) {
	if name := m.names[from.Name]; name != nil { // also for a forgotten peer, whose messages still took memory
		cost = min(cost, name.held[lane])
		name.held[lane] -= cost
		m.held[lane] -= cost
		m.forgetName(from.Name)
	}
	p := m.peers[from]
	if p == nil {
		return
	}
	in := &p.in[lane]
	in.held -= min(in.held, cost)
	m.grantProgress(p, lane)
}

// Held returns the cost of all messages that wait to be consumed.
func (m *Machine) Held() int { return m.held[Control] + m.held[Data] + m.held[Bulk] }

// SetBudget sets the limit of Held, when other parts of the node use more or less of the budget.
func (m *Machine) SetBudget(bytes int) { m.budget = bytes }

// window returns how many bytes of a peer on a lane may be unconsumed. It shrinks while all peers
// together hold many bytes.
func (m *Machine) window() int {
	if m.Held() > m.budget/2 {
		return min(m.cfg.Window, m.cfg.leastWindow())
	}
	return m.cfg.Window
}

// grantProgress schedules a grant when the sender may send much more than its last grant allows.
func (m *Machine) grantProgress(p *peer, lane Lane) {
	in, window := &p.in[lane], m.window()
	if in.limit(window) >= in.granted+uint64(window/4) { //nolint:gosec // a size
		m.grant(p, lane)
	}
}

// grant makes the next control frame to a peer carry a grant.
func (m *Machine) grant(p *peer, lane Lane) {
	if lane.Credited() {
		p.in[lane].grantDue = true
		m.schedule(&p.out[Control])
	}
}
