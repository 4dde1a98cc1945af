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
