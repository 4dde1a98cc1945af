// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// Flush returns the next frame that a lane has to send, appended to dst, and
// where to: an incarnation, or a bare name. The links of a lane take turns. ok is
// false if there is nothing to send. The number of a frame is used up even if it
// is then not sent.
func (m *Machine) Flush(now time.Duration, lane Lane, dst []byte) (to identity.Node, frame []byte, ok bool) {
	if lane == Control && len(m.notices) > 0 {
		to = m.notices[0]
		m.notices = slices.Delete(m.notices, 0, 1)
		m.stats.Notices++
		return to, m.sent(lane, m.notice(to, dst)), true
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

// flushName sends one message to a bare name.
func (m *Machine) flushName(o *outgoing, dst []byte) ([]byte, bool) {
	if o.count() == 0 {
		return dst, false
	}
	e := o.next(m.cfg.MaxFrame)
	if o.count() > 0 {
		m.wake(o)
	} else {
		delete(m.named, o.to.Name)
	}
	m.stats.Lanes[o.lane].MessagesOut++
	return appendEntry(AppendFrame(dst, Frame{Lane: o.lane, From: m.cfg.Self}), e), true
}

// flushLink sends as many messages as fit a frame and have credit.
func (m *Machine) flushLink(now time.Duration, o *outgoing, dst []byte) ([]byte, bool) {
	if o.peer == nil {
		return dst, false // forgotten meanwhile
	}
	begin := len(dst)
	f := Frame{
		Lane: o.lane, From: m.cfg.Self, To: o.to.UID,
		Sequenced: true, Epoch: o.epoch, Number: o.number + 1, Offset: o.offset,
		Asks: o.probe || o.lane.Credited() && !o.asked,
	}
	dst = AppendFrame(dst, f)
	body := len(dst)
	if o.lane == Control {
		dst = m.appendGrants(o.peer, dst)
	}
	for o.count() > 0 {
		left := len(o.queue[o.head].Payload) - o.gone
		room := m.cfg.MaxFrame - (len(dst) - begin) - maxPrefix
		if len(dst) > body && (left > room || len(dst)-begin+maxPrefix+left > m.cfg.FrameSize) {
			break
		}
		if part := cost(min(left, room)); o.affords(part) {
			o.offset += uint64(part) //nolint:gosec // a size
		} else {
			break
		}
		e := o.next(room)
		dst = appendEntry(dst, e)
		if e.rest > 0 {
			break
		}
		m.stats.Lanes[o.lane].MessagesOut++
	}
	if len(dst) == body && !f.Asks {
		m.wait(now, o)
		return dst[:begin], false
	}
	o.number++
	o.asked, o.probe = o.asked || f.Asks, false
	if o.count() > 0 {
		m.wake(o) // for its next turn, or to find that it has no credit
	}
	return dst, true
}

// wait notes that a link has no credit for what is queued.
func (m *Machine) wait(now time.Duration, o *outgoing) {
	if o.count() == 0 || o.waits {
		return
	}
	m.stats.Lanes[o.lane].Stalls++
	o.waits = true
	o.backoff = m.cfg.ProbeInterval
	o.probeAt = now + o.backoff
	m.waiting = append(m.waiting, o)
}

// grantTo takes a grant for the lane it names.
func (m *Machine) grantTo(p *peer, e entry) {
	limit, size := binary.Uvarint(e.Payload)
	lane := Lane(min(e.Kind, Lanes))
	if size <= 0 || lane >= Lanes || e.Correlation != p.out[lane].epoch {
		return
	}
	o := &p.out[lane]
	// What a peer may grant is bounded only so that sums can't overflow.
	if limit = min(limit, o.offset+1<<30); limit <= o.limit {
		return
	}
	o.limit = limit
	if o.waits {
		o.waits = false
		m.waiting = slices.DeleteFunc(m.waiting, func(other *outgoing) bool { return other == o })
		m.wake(o)
	}
}

// appendGrants tells a peer how far it may go, where that is due.
func (m *Machine) appendGrants(p *peer, dst []byte) []byte {
	for lane := range p.in {
		in := &p.in[lane]
		if !in.grantDue {
			continue
		}
		in.grantDue = false
		in.told = max(in.told, in.limit(m.window(Lane(lane))))
		var payload [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(payload[:], in.told)
		dst = appendEntry(dst, entry{Message: Message{Type: grant, Kind: Kind(lane), Correlation: in.epoch, Payload: payload[:n]}})
	}
	return dst
}

// outgoing is the sender's end of a link.
type outgoing struct {
	to   identity.Node
	lane Lane
	peer *peer // nil if it is a bare name

	queue  []Message
	head   int  // of the queue
	gone   int  // bytes of the first message that were sent already
	queued int  // cost of the queue
	total  *int // of all links on the lane

	epoch, number uint64
	offset, limit uint64 // in bytes of credit: used, and granted

	asked   bool // for credit, in the first frame
	ready   bool // stands in Machine.ready
	waits   bool // stands in Machine.waiting
	probe   bool // has to ask
	probeAt time.Duration
	backoff time.Duration
}

func (o *outgoing) push(msg Message) {
	o.queue = append(o.queue, msg)
	o.queued += cost(len(msg.Payload))
	*o.total += cost(len(msg.Payload))
}

func (o *outgoing) count() int { return len(o.queue) - o.head }

// pop removes the first message.
func (o *outgoing) pop() {
	price := cost(len(o.queue[o.head].Payload))
	o.queued -= price
	*o.total -= price
	o.queue[o.head] = Message{} // not kept alive
	o.gone = 0
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

func (o *outgoing) clear() {
	*o.total -= o.queued
	*o = outgoing{to: o.to, lane: o.lane, ready: o.ready, total: o.total}
}

// affords reports whether there is credit for so many bytes.
func (o *outgoing) affords(n int) bool {
	return !o.lane.Credited() || o.offset+uint64(n) <= o.limit //nolint:gosec // a size
}

// next returns what goes into the frame next: a message, or as much of it as
// there is room for. It takes it off the queue.
func (o *outgoing) next(room int) entry {
	msg := o.queue[o.head]
	payload := msg.Payload[o.gone:]
	part := min(len(payload), room)
	e := entry{Message: msg, rest: uint64(len(payload) - part)} //nolint:gosec // a size
	e.Payload = payload[:part]
	if o.gone > 0 {
		e.Type, e.Kind, e.Correlation, e.Compressed = continuation, 0, 0, false
	}
	if e.rest > 0 {
		o.gone += part
	} else {
		o.pop()
	}
	return e
}

// noRoom returns why a frame can't be taken, or 0.
func (m *Machine) noRoom(in *incoming, lane Lane, size int) Reason {
	switch {
	case in.held+size > m.cfg.Window:
		return OverCredit
	case m.held[lane]+size > m.cfg.MaxHeldAll:
		return Overload
	}
	return 0
}

// hold notes that a message, or a part of one, is kept until it is consumed.
func (m *Machine) hold(in *incoming, lane Lane, cost int) {
	in.held += cost
	m.held[lane] += cost
}

// giveUp drops what can't be completed any more.
func (m *Machine) giveUp(lane Lane, in *incoming) {
	if p := in.partial; p != nil {
		m.held[lane] -= p.cost
		in.giveUp()
		m.drop(Incomplete, 1)
	}
}

// Consume gives back the cost of messages that were handled.
func (m *Machine) Consume(from identity.Node, lane Lane, cost int) {
	m.held[lane] -= min(m.held[lane], cost) // also of peers that were forgotten: it was in memory
	p := m.peers[from]
	if p == nil {
		return
	}
	in := &p.in[lane]
	in.held -= min(in.held, cost)
	m.regain(p, lane)
}

// window returns how much of what a peer has sent on a lane may be unconsumed now:
// less, when there is much of all peers together.
func (m *Machine) window(lane Lane) int {
	if m.held[lane] > m.cfg.MaxHeldAll/2 {
		return min(m.cfg.Window, m.cfg.leastWindow())
	}
	return m.cfg.Window
}

// regain lets a sender go on when it can go a good deal further than it was told.
func (m *Machine) regain(p *peer, lane Lane) {
	in, window := &p.in[lane], m.window(lane)
	if in.limit(window) >= in.told+uint64(window/4) { //nolint:gosec // a size
		m.grant(p, lane)
	}
}

// grant lets the next control frame to a peer carry a grant.
func (m *Machine) grant(p *peer, lane Lane) {
	if lane.Credited() {
		p.in[lane].grantDue = true
		m.wake(&p.out[Control])
	}
}
