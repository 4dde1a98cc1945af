// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// Network has the faults of the whole network.
type Network struct {
	// Delay is the delay of a frame.
	Delay Between
	// Loss, Double and Overtake are the probabilities that a frame is lost, duplicated, or
	// overtaken by later ones.
	Loss, Double, Overtake float64
	// Away drops all frames: the broker has failed.
	Away bool
	// Split separates the two sides of the broker. With OneWay, the second side still receives the
	// frames of the first one.
	Split, OneWay bool
	// Misdelivery is the probability that a message for an earlier incarnation arrives at the next
	// one of that name.
	Misdelivery float64

	cuts map[[2]string]bool
	late map[[2]string]time.Duration
}

// Between is a range of durations.
type Between struct{ Least, Most time.Duration }

func (b Between) pick(r *rand.Rand) time.Duration {
	if b.Most <= b.Least {
		return b.Least
	}
	return b.Least + time.Duration(r.Int64N(int64(b.Most-b.Least)))
}

// Cut starts or stops dropping all frames from one name to another.
func (n *Network) Cut(from, to string, cut bool) { setPair(&n.cuts, from, to, cut) }

// Late adds a delay from one name to another on all lanes except Control. It does not count as a
// fault, because a loaded node behaves in the same way.
func (n *Network) Late(from, to string, by time.Duration) { setPair(&n.late, from, to, by) }

// setPair sets the value of a pair of names. The zero value removes it.
func setPair[V comparable](pairs *map[[2]string]V, from, to string, v V) {
	if *pairs == nil {
		*pairs = map[[2]string]V{}
	}
	if (*pairs)[[2]string{from, to}] = v; v == *new(V) {
		delete(*pairs, [2]string{from, to})
	}
}

// Troubled reports whether a pair is cut.
func (n *Network) Troubled() bool { return len(n.cuts) > 0 }

// Heal ends all faults of the network, but not those of places.
func (n *Network) Heal() { *n = Network{Delay: Between{time.Millisecond, 5 * time.Millisecond}} }

// Passes reports whether frames pass from one place to another.
func (w *Env) Passes(from, to *Place) bool {
	n := &w.Network
	switch {
	case n.Away || from.NoUp || to.NoDown:
		return false
	case n.Split && from.Side != to.Side:
		return n.OneWay && from.Side < to.Side
	}
	return true
}

// route is a sequence of frames that keep their order.
type route struct {
	from, to int
	lane     uint8
}

// Traffic counts sent bytes and messages.
type Traffic struct{ Bytes, Messages [link.Lanes]uint64 }

// Traffic returns the traffic so far.
func (w *Env) Traffic() Traffic { return w.traffic }

// Gap counts losses from one process to another.
type Gap struct {
	// Frames is the number of lost frames. Noticed is the number of gaps that the receiver's link
	// has reported.
	Frames, Noticed uint64
}

// Gap returns the losses from one incarnation to another.
func (w *Env) Gap(from, to identity.Node) Gap { return w.gaps[[2]uint64{from.UID, to.UID}] }

func (w *Env) gap(from, to *Process, noticed bool) {
	key := [2]uint64{from.node.UID, to.node.UID}
	g := w.gaps[key]
	if noticed {
		g.Noticed++
	} else {
		g.Frames++
	}
	w.gaps[key] = g
}

func (w *Env) transmit(from *Process, to identity.Node, e event) {
	w.traffic.Bytes[e.lane] += uint64(len(e.data))
	w.mix(8, from.node.UID^uint64(e.lane))
	w.mixBytes(e.data)
	e.from, e.name = from, to.UID == 0
	if to.UID != 0 {
		p := w.byUID[to.UID]
		if p == nil && w.Network.Misdelivery > 0 && w.chance(e).Float64() < w.Network.Misdelivery {
			if next := w.Place(to.Name).processes; len(next) > 0 {
				p = next[0]
			}
		}
		if p != nil {
			w.carry(p, e)
		}
		return
	}
	for _, p := range w.Place(to.Name).processes {
		w.carry(p, e)
	}
}

func (w *Env) chance(e event) *rand.Rand {
	if link.Lane(e.lane) == link.Control {
		return w.Rand
	}
	return w.dataRand
}

func (w *Env) carry(to *Process, e event) {
	n, r := &w.Network, w.chance(e)
	if !w.Passes(e.from.place, to.place) || n.cuts[[2]string{e.from.place.Name, to.place.Name}] || n.Loss > 0 && r.Float64() < n.Loss {
		w.gap(e.from, to, false)
		return
	}
	e.to = to
	delay := n.Delay.pick(r) + e.from.place.Slow + to.place.Slow
	if len(n.late) > 0 && link.Lane(e.lane) != link.Control {
		delay += n.late[[2]string{e.from.place.Name, to.place.Name}]
	}
	e.at = w.now + delay
	if w.Direct {
		w.queue.push(e)
		return
	}
	key := route{e.from.place.nr, to.place.nr, e.lane}
	if n.Overtake > 0 && r.Float64() < n.Overtake {
		e.at += time.Duration(r.Int64N(int64(50 * time.Millisecond)))
	} else {
		e.at = max(e.at, w.ordered[key])
		w.ordered[key] = e.at
	}
	w.queue.push(e)
	if n.Double > 0 && r.Float64() < n.Double {
		e.at += time.Duration(r.Int64N(int64(20 * time.Millisecond)))
		w.queue.push(e)
	}
}

func (w *Env) arrive(e *event) {
	p := e.to
	if p.dead || !w.Passes(e.from.place, p.place) {
		w.gap(e.from, p, false)
		return
	}
	w.mix(9, p.node.UID)
	if p.paused {
		if p.frames++; p.frames > maxWaiting {
			w.gap(e.from, p, false)
			return
		}
		late := *e
		p.late = append(p.late, func() { p.receive(&late) })
		return
	}
	p.receive(e)
	p.flush()
}

// Inject delivers a forged frame to a process, as if the carrier had authenticated the name of the
// sender. The process counts it, and drops its messages.
func (p *Process) Inject(from string, lane link.Lane, frame []byte) {
	if p.links == nil || p.dead || p.paused {
		return
	}
	e := p.links.Receive(p.Now(), lane, from, frame)
	for _, d := range e.Deliver {
		p.links.Consume(e.From, lane, d.Cost)
	}
	p.flush()
}

// Dropped returns how many frames and messages the links of a process have dropped, by reason.
func (p *Process) Dropped() [link.Reasons]uint64 {
	if p.links == nil {
		return [link.Reasons]uint64{}
	}
	return p.links.Stats().Dropped
}

const maxFrame = 1 << 20

// Send sends a message after the current event, in order and at most once on each lane. It returns
// false if the links have no room.
func (p *Process) Send(to identity.Node, lane link.Lane, kind link.Kind, data []byte) bool {
	p.w.traffic.Messages[lane]++
	if p.links == nil {
		p.w.transmit(p, to, event{data: data, kind: uint16(kind), lane: uint8(lane)})
		p.w.traffic.Bytes[lane] += headerSize(p.node)
		return true
	}
	return p.links.Send(to, lane, link.Message{Type: link.Tell, Kind: kind, Payload: data}) == nil
}

// headerSize is the approximate size that a frame adds to a message.
func headerSize(from identity.Node) uint64 {
	return uint64(len(link.AppendFrame(nil, link.Frame{From: from, To: from.UID, Sequenced: true, Epoch: 1 << 8, Number: 1 << 8, Offset: 0}))) + 4
}

func (p *Process) flush() {
	if p.links == nil || p.dead {
		return
	}
	for lane := range link.Lane(link.Lanes) {
		for p.links.Pending(lane) {
			to, frame, ok := p.links.Flush(p.Now(), lane, nil)
			if !ok {
				break
			}
			p.w.transmit(p, to, event{data: frame, lane: uint8(lane)})
		}
	}
	if due, waits := p.links.Due(); waits {
		if at := max(p.w.now, p.global(due)); p.linkAt == 0 || at < p.linkAt {
			p.linkAt = at
			p.w.queue.push(event{at: at, to: p})
		}
	}
}

func (p *Process) receive(e *event) {
	lane := link.Lane(e.lane)
	if p.links == nil {
		p.deliver(e.from.node, e.name, link.Kind(e.kind), e.data)
		return
	}
	effects := p.links.Receive(p.Now(), lane, e.from.node.Name, e.data)
	if effects.Lost > 0 {
		p.w.gap(e.from, p, true)
	}
	if effects.Dropped == link.WrongReceiver {
		p.misdeliver(e)
		return
	}
	for _, d := range effects.Deliver {
		p.links.Consume(effects.From, lane, d.Cost)
		if p.dead { // the previous message has ended it
			return
		}
		p.deliver(effects.From, d.Named, d.Kind, d.Payload)
	}
}

// deliver passes a message to the program. named reports that the sender addressed the name without
// a UID.
func (p *Process) deliver(from identity.Node, named bool, kind link.Kind, data []byte) {
	to := p.node
	if named {
		to.UID = 0
	}
	p.program.Receive(Message{From: from, To: to, Kind: kind, Arrived: p.Now(), Data: data})
}

// misdeliver delivers a message for an earlier incarnation to the program, as if the links had
// accepted it. The program must ignore it.
func (p *Process) misdeliver(e *event) {
	f, err := link.DecodeFrame(e.data)
	if err != nil {
		return
	}
	was := identity.Node{Name: p.node.Name, UID: f.To}
	if links, err := link.New(link.Config{Self: was, MaxFrame: maxFrame}); err == nil {
		for _, d := range links.Receive(p.Now(), link.Lane(e.lane), e.from.node.Name, e.data).Deliver {
			p.program.Receive(Message{From: f.From, To: was, Kind: d.Kind, Arrived: p.Now(), Data: d.Payload})
		}
	}
}
