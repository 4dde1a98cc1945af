// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// Effects is what a received frame leads to, in the order in which it has to be
// carried out.
type Effects struct {
	// From is who sent the frame. It is nobody if that is not certain.
	From identity.Node
	// Dropped is why the frame was dropped, 0 if it was not. The following fields
	// are empty then.
	Dropped Reason
	// Lost is how many frames are missing before this one: report it before
	// anything of this frame is handled.
	Lost uint64
	// Deliver are the messages, to be handled in this order. The slice is valid until
	// the next call of the machine, payloads are for good. Each one with a cost
	// has to be consumed.
	Deliver []Delivery
	// Quarantined says that the sender has quarantined this incarnation.
	Quarantined bool
}

// Delivery is a message that was received.
type Delivery struct {
	Message

	// Cost is what Consume gives back once the message was handled.
	Cost int
	// Named says that it came to the bare name, from a sender that need not know
	// this incarnation.
	Named bool
}

// Receive takes a frame that came on a lane from a name: the one that the
// carrier vouches for. The machine keeps parts of the frame, which must not be
// changed any more.
func (m *Machine) Receive(now time.Duration, lane Lane, from string, frame []byte) Effects {
	m.stats.Lanes[lane].FramesIn++
	m.stats.Lanes[lane].BytesIn += uint64(len(frame))
	f, err := DecodeFrame(frame)
	switch {
	case errors.Is(err, ErrVersion):
		return m.refuse(identity.Node{}, Version)
	case err != nil:
		return m.refuse(identity.Node{}, Malformed)
	case f.From.Name != from:
		return m.refuse(identity.Node{}, Forged)
	case f.Lane != lane:
		return m.refuse(f.From, WrongLane)
	case f.To != m.cfg.Self.UID && (f.To != 0 || f.Sequenced):
		return m.refuse(f.From, WrongReceiver)
	case m.quarantined[f.From] != nil:
		m.answer(now, f)
		return m.refuse(f.From, Quarantined)
	case !f.Sequenced:
		return m.receiveDatagram(f)
	}
	return m.receiveLink(f)
}

func (m *Machine) refuse(from identity.Node, why Reason) Effects {
	m.drop(why, 1)
	return Effects{From: from, Dropped: why}
}

// receiveDatagram takes a frame that belongs to no link: messages to the bare
// name, or a notice.
func (m *Machine) receiveDatagram(f Frame) Effects {
	if f.Lane != Control {
		return m.refuse(f.From, Malformed)
	}
	eff := Effects{From: f.From, Deliver: m.deliver[:0]}
	for r := (reader{b: f.Body}); len(r.b) > 0; {
		e, _ := r.entry()
		switch {
		case e.Type == notice && f.To != 0:
			eff.Quarantined = eff.Quarantined || e.Correlation == m.cfg.Self.UID
		case e.Type == Tell && f.To == 0 && e.rest == 0:
			m.stats.Lanes[f.Lane].MessagesIn++
			eff.Deliver = append(eff.Deliver, Delivery{Message: e.Message, Named: true})
		default:
			m.drop(UnknownType, 1)
		}
	}
	m.deliver = eff.Deliver
	return eff
}

func (m *Machine) receiveLink(f Frame) Effects {
	p := m.peers[f.From]
	if p == nil {
		if p = m.join(f.From); p == nil {
			return m.refuse(f.From, TooManyPeers)
		}
	}
	m.heard(p)
	in := &p.in[f.Lane]
	switch {
	case f.Epoch < in.epoch:
		return m.refuse(f.From, Stale)
	case f.Epoch == in.epoch && f.Number <= in.number:
		return m.refuse(f.From, Old)
	case f.Epoch == in.epoch && f.Offset < in.received:
		return m.refuse(f.From, Malformed)
	case f.Epoch > in.epoch:
		m.giveUp(f.Lane, in)
		in.begin(f.Epoch)
	}
	eff := Effects{From: f.From}
	if eff.Lost = f.Number - in.number - 1; eff.Lost > 0 {
		m.stats.Lanes[f.Lane].Gaps++
		m.stats.Lanes[f.Lane].Lost += eff.Lost
		m.giveUp(f.Lane, in)
	}
	in.number = f.Number
	size := bodyCost(f.Body)
	in.received = f.Offset + uint64(size) //nolint:gosec // a size
	if f.Asks {
		m.grant(p, f.Lane)
	}
	if why := m.noRoom(in, f.Lane, size); why != 0 {
		m.giveUp(f.Lane, in)
		m.grant(p, f.Lane)
		refused := m.refuse(f.From, why)
		refused.Lost = eff.Lost
		return refused
	}
	eff.Deliver = m.take(p, in, f)
	m.regain(p, f.Lane) // what was lost will not be consumed
	return eff
}

// bodyCost returns what the messages of a frame cost.
func bodyCost(body []byte) int {
	sum := 0
	for r := (reader{b: body}); len(r.b) > 0; {
		if e, _ := r.entry(); e.Type <= continuation {
			sum += cost(len(e.Payload))
		}
	}
	return sum
}

// take returns the messages of a frame that are complete.
func (m *Machine) take(p *peer, in *incoming, f Frame) []Delivery {
	deliver := m.deliver[:0]
	done := func(msg Message, cost int) {
		m.stats.Lanes[f.Lane].MessagesIn++
		deliver = append(deliver, Delivery{Message: msg, Cost: cost})
	}
	for r := (reader{b: f.Body}); len(r.b) > 0; {
		e, _ := r.entry()
		price := cost(len(e.Payload))
		if in.partial != nil && e.Type != continuation && e.Type <= Reply {
			m.giveUp(f.Lane, in) // the sender has lost its way
		}
		switch {
		case e.Type == grant && f.Lane == Control:
			m.grantTo(p, e)
		case e.Type == 0 || e.Type > continuation:
			m.drop(UnknownType, 1)
		case e.Type == continuation && in.partial == nil:
			m.drop(Incomplete, 1)
		case e.Type == continuation && in.partial.rest != uint64(len(e.Payload))+e.rest:
			m.giveUp(f.Lane, in)
		case e.Type == continuation:
			m.hold(in, f.Lane, price)
			in.partial.add(e, price)
			if e.rest == 0 {
				done(in.partial.msg, in.partial.cost)
				in.partial = nil
			}
		case e.rest > uint64(m.cfg.MaxMessage) || len(e.Payload)+int(e.rest) > m.cfg.MaxMessage: //nolint:gosec // bounded by the first half
			m.drop(TooLarge, 1)
		case e.rest > 0:
			m.hold(in, f.Lane, price)
			in.partial = newPartial(e, price)
		default:
			m.hold(in, f.Lane, price)
			done(e.Message, price)
		}
	}
	m.deliver = deliver
	return deliver
}

// newPartial begins a message. What the sender says about its size is not taken
// for granted.
func newPartial(e entry, price int) *partial {
	whole := make([]byte, 0, min(len(e.Payload)+int(e.rest), 4*len(e.Payload))) //nolint:gosec // at most MaxMessage
	msg := e.Message
	msg.Payload = append(whole, e.Payload...)
	return &partial{msg: msg, rest: e.rest, cost: price}
}

func (p *partial) add(e entry, price int) {
	p.msg.Payload = append(p.msg.Payload, e.Payload...)
	p.rest = e.rest
	p.cost += price
}

// heard makes a peer the last of its name to be forgotten.
func (m *Machine) heard(p *peer) {
	same := m.names[p.node.Name]
	if same[len(same)-1] != p {
		i := slices.Index(same, p)
		copy(same[i:], same[i+1:])
		same[len(same)-1] = p
	}
}

// incoming is the receiver's end of a link.
type incoming struct {
	epoch, number uint64 // of the last frame
	// received is at which byte of credit the last frame ended, told how far the
	// sender was told to go.
	received, told uint64
	// held is the cost of what was delivered and not consumed yet, and of what
	// is to be put together.
	held     int
	grantDue bool
	partial  *partial
}

// partial is a message of which the last part has not come yet.
type partial struct {
	msg  Message
	rest uint64
	cost int
}

// limit returns how far the sender may go.
func (in *incoming) limit(window int) uint64 {
	return in.received + uint64(window-min(in.held, window)) //nolint:gosec // not negative
}

// begin resets the link for a new epoch. What is held is still in memory.
func (in *incoming) begin(epoch uint64) {
	*in = incoming{epoch: epoch, told: firstCredit, held: in.held}
}

// giveUp drops what is to be put together.
func (in *incoming) giveUp() {
	in.held -= min(in.held, in.partial.cost)
	in.partial = nil
}
