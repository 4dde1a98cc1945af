// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// Effects are the results of a received frame, in the order in which to apply them.
type Effects struct {
	// From is the sender. It is zero if the sender could not be authenticated.
	From identity.Node
	// Dropped is the reason for dropping the frame, or 0. If it is set, Deliver and Quarantined are
	// empty.
	Dropped Reason
	// Lost is the number of frames missing before this one. Report it before handling any message
	// of this frame.
	Lost uint64
	// Deliver are the messages to handle, in this order. The slice is valid until the next call of
	// the machine; the payloads stay valid. Each message with a cost has to be consumed.
	Deliver []Delivery
	// Quarantined reports that the sender has quarantined the local incarnation.
	Quarantined bool
}

// Delivery is a received message.
type Delivery struct {
	Message

	// Cost is the argument of Consume after the message was handled. Consume takes the bare name of
	// the sender of a Named message.
	Cost int
	// Named marks a message to the bare name. Its sender need not have seen this incarnation.
	Named bool
}

// Receive processes a frame that arrived on a lane. The argument from is the name of the sender,
// which the carrier has authenticated. The machine keeps parts of the frame, so the caller must not
// change the frame afterwards.
func (m *Machine) Receive(now time.Duration, lane Lane, from string, frame []byte) Effects {
	m.stats.Lanes[lane].FramesIn++
	m.stats.Lanes[lane].BytesIn += uint64(len(frame))
	f, err := DecodeFrame(frame)
	switch {
	case errors.Is(err, ErrVersion):
		return m.reject(identity.Node{}, Version)
	case err != nil:
		return m.reject(identity.Node{}, Malformed)
	case f.From.Name != from:
		return m.reject(identity.Node{}, Forged)
	case f.Lane != lane:
		return m.reject(f.From, WrongLane)
	case f.To != m.cfg.Self.UID && (f.To != 0 || f.Sequenced):
		return m.reject(f.From, WrongReceiver)
	case m.quarantined[f.From] != nil:
		m.queueNotice(now, f)
		return m.reject(f.From, Quarantined)
	case !f.Sequenced:
		return m.receiveDatagram(f, frame)
	}
	return m.receiveLink(f, frame)
}

func (m *Machine) reject(from identity.Node, why Reason) Effects {
	m.drop(why, 1)
	return Effects{From: from, Dropped: why}
}

// receiveDatagram processes a frame without a link: messages to the bare name, or a notice.
func (m *Machine) receiveDatagram(f Frame, frame []byte) Effects {
	if f.Lane != Control {
		return m.reject(f.From, Malformed)
	}
	name, size := m.sender(f.From.Name), bodyCost(f.Body)
	defer m.forgetName(f.From.Name)
	switch { // such messages have no credit
	case name.held[Control]+size > m.cfg.Window:
		return m.reject(f.From, OverCredit)
	case !m.fits(name, Control, size):
		return m.reject(f.From, Overload)
	}
	eff := Effects{From: f.From, Deliver: m.deliver[:0]}
	for r := (reader{b: f.Body}); len(r.b) > 0; {
		e, _ := r.entry()
		switch {
		case e.Type == notice && f.To != 0:
			eff.Quarantined = eff.Quarantined || e.Correlation == m.cfg.Self.UID
		case e.Type == Tell && f.To == 0 && e.rest == 0:
			m.stats.Lanes[f.Lane].MessagesIn++
			price := cost(len(e.Payload))
			name.held[Control] += price
			m.held[f.Lane] += price
			eff.Deliver = append(eff.Deliver, Delivery{Message: e.detached(frame), Cost: price, Named: true})
		default:
			m.drop(UnknownType, 1)
		}
	}
	m.deliver = eff.Deliver
	return eff
}

func (m *Machine) receiveLink(f Frame, frame []byte) Effects {
	p := m.peers[f.From]
	if p == nil {
		if p = m.addPeer(f.From); p == nil {
			return m.reject(f.From, TooManyPeers)
		}
	}
	m.touch(p)
	in := &p.in[f.Lane]
	switch {
	case f.Epoch < in.epoch:
		return m.reject(f.From, Stale)
	case f.Epoch == in.epoch && f.Number <= in.number:
		return m.reject(f.From, Old)
	case f.Epoch == in.epoch && f.Offset < in.received:
		return m.reject(f.From, Malformed)
	case f.Epoch > in.epoch:
		m.dropPartial(p, f.Lane)
		// Held messages of the earlier link stay in memory and still count.
		*in = incoming{epoch: f.Epoch, granted: initialCredit, held: in.held}
	}
	eff := Effects{From: f.From}
	if eff.Lost = f.Number - in.number - 1; eff.Lost > 0 {
		m.stats.Lanes[f.Lane].Gaps++
		m.stats.Lanes[f.Lane].Lost += eff.Lost
		m.dropPartial(p, f.Lane)
	}
	in.number = f.Number
	size := bodyCost(f.Body)
	in.received = f.Offset + uint64(size) //nolint:gosec // a size
	if f.RequestsCredit {
		m.grant(p, f.Lane)
	}
	if why := m.rejection(p, f.Lane, size); why != 0 {
		m.dropPartial(p, f.Lane)
		m.grant(p, f.Lane)
		refused := m.reject(f.From, why)
		refused.Lost = eff.Lost
		return refused
	}
	eff.Deliver = m.take(p, in, f, frame)
	m.grantProgress(p, f.Lane) // lost bytes will never be consumed
	return eff
}

func bodyCost(body []byte) int {
	sum := 0
	for r := (reader{b: body}); len(r.b) > 0; {
		if e, _ := r.entry(); e.Type <= continuation {
			sum += cost(len(e.Payload))
		}
	}
	return sum
}

func (m *Machine) take(p *peer, in *incoming, f Frame, frame []byte) []Delivery {
	deliver := m.deliver[:0]
	done := func(msg Message, cost int) {
		m.stats.Lanes[f.Lane].MessagesIn++
		deliver = append(deliver, Delivery{Message: msg, Cost: cost})
	}
	for r := (reader{b: f.Body}); len(r.b) > 0; {
		e, _ := r.entry()
		price := cost(len(e.Payload))
		if in.partial != nil && e.Type != continuation && e.Type <= Reply {
			m.dropPartial(p, f.Lane) // the sender abandoned the message
		}
		switch {
		case e.Type == grant && f.Lane == Control:
			m.applyGrant(p, e)
		case e.Type == 0 || e.Type > continuation:
			m.drop(UnknownType, 1)
		case e.Type == continuation && in.partial == nil:
			m.drop(Incomplete, 1)
		case e.Type == continuation && in.partial.rest != uint64(len(e.Payload))+e.rest:
			m.dropPartial(p, f.Lane)
		case e.Type == continuation:
			m.hold(p, f.Lane, price)
			part := in.partial
			part.msg.Payload = append(part.msg.Payload, e.Payload...)
			part.rest = e.rest
			part.cost += price
			if e.rest == 0 {
				done(part.msg, part.cost)
				in.partial = nil
			}
		case e.rest > uint64(m.cfg.MaxMessage) || len(e.Payload)+int(e.rest) > m.cfg.MaxMessage: //nolint:gosec // bounded by the first half
			m.drop(TooLarge, 1)
		case e.rest > 0:
			m.hold(p, f.Lane, price)
			in.partial = newPartial(e, price)
		default:
			m.hold(p, f.Lane, price)
			done(e.detached(frame), price)
		}
	}
	m.deliver = deliver
	return deliver
}

// detached returns the message of an entry. Its payload is a copy if most of the frame are other
// bytes: the message may be kept for long, and the cost of a message accounts for its own payload only.
func (e *entry) detached(frame []byte) Message {
	msg := e.Message
	if n := len(msg.Payload); len(frame) > n+n/8+messageOverhead {
		msg.Payload = append(make([]byte, 0, n), msg.Payload...)
	}
	return msg
}

// newPartial begins a message of several parts. It allocates little more than the received bytes,
// because the announced size may be wrong.
func newPartial(e entry, price int) *partial {
	received := len(e.Payload)
	whole := make([]byte, 0, min(received+int(e.rest), received+received/4)) //nolint:gosec // at most MaxMessage
	msg := e.Message
	msg.Payload = append(whole, e.Payload...)
	return &partial{msg: msg, rest: e.rest, cost: price}
}

// markHeard records that a peer is no longer evicted before others.
func (m *Machine) markHeard(p *peer) {
	if !p.heard {
		p.heard = true
		i := slices.Index(m.unheard, p)
		m.unheard = slices.Delete(m.unheard, i, i+1)
	}
}

// touch makes a peer the last to be evicted: of its name, and of all peers that have sent nothing.
func (m *Machine) touch(p *peer) {
	m.markHeard(p)
	same := p.name.peers
	if same[len(same)-1] != p {
		i := slices.Index(same, p)
		copy(same[i:], same[i+1:])
		same[len(same)-1] = p
	}
}

type incoming struct {
	epoch, number uint64 // of the last frame
	// received is the offset at which the last frame ended. granted is the offset of the last
	// grant.
	received, granted uint64
	// held is the cost of delivered and unconsumed messages, and of incomplete messages.
	held     int
	grantDue bool
	partial  *partial
}

// partial is a message whose last part has not arrived.
type partial struct {
	msg  Message
	rest uint64
	cost int
}

// limit returns the offset up to which the sender may send.
func (in *incoming) limit(window int) uint64 {
	return in.received + uint64(window-min(in.held, window)) //nolint:gosec // not negative
}
