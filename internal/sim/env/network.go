// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// Network is what ails the network between all.
type Network struct {
	// Delay is how long a frame takes.
	Delay Between
	// Loss, Double and Overtake are the probabilities that a frame is lost, comes twice, or is
	// overtaken by later ones.
	Loss, Double, Overtake float64
	// Away says that there is no broker.
	Away bool
	// Split says that the broker is two that do not hear each other, OneWay that what the first one
	// gets still comes to the second.
	Split, OneWay bool
	// Stray is the probability that what was for an earlier incarnation comes to the next one
	// with its name.
	Stray float64

	pairs map[[2]string]Pair
	late  map[[2]string]time.Duration
}

// Pair is what ails the way from one node to another.
type Pair struct {
	Loss float64
	Slow time.Duration
}

// Between is a range of durations.
type Between struct{ Least, Most time.Duration }

// Pick returns one of them.
func (b Between) pick(r *rand.Rand) time.Duration {
	if b.Most <= b.Least {
		return b.Least
	}
	return b.Least + time.Duration(r.Int64N(int64(b.Most-b.Least)))
}

// Pair sets what ails the way from one name to another. The zero value is nothing.
func (n *Network) Pair(from, to string, p Pair) {
	if n.pairs == nil {
		n.pairs = map[[2]string]Pair{}
	}
	if p == (Pair{}) {
		delete(n.pairs, [2]string{from, to})
	} else {
		n.pairs[[2]string{from, to}] = p
	}
}

// Late sets how much longer the way from one name to another takes, but for the control lane. That is no trouble: nobody can tell it from work.
func (n *Network) Late(from, to string, by time.Duration) {
	if n.late == nil {
		n.late = map[[2]string]time.Duration{}
	}
	if by == 0 {
		delete(n.late, [2]string{from, to})
	} else {
		n.late[[2]string{from, to}] = by
	}
}

// Troubled reports whether any pair has troubles of its own.
func (n *Network) Troubled() bool { return len(n.pairs) > 0 }

// Heal ends all that ails the network, but not the nodes' links.
func (n *Network) Heal() { *n = Network{Delay: Between{time.Millisecond, 5 * time.Millisecond}} }

// Passes reports whether anything gets from one place to another at all.
func (w *World) Passes(from, to *Place) bool {
	n := &w.Network
	switch {
	case n.Away || from.NoUp || to.NoDown:
		return false
	case n.Split && from.Side != to.Side:
		return n.OneWay && from.Side < to.Side
	}
	return true
}

// way is how frames go that don't overtake each other.
type way struct {
	from, to int
	lane     uint8
}

// Traffic counts what was sent.
type Traffic struct {
	Frames, Bytes [link.Lanes]uint64
	Messages      [link.Lanes]uint64
}

// Traffic returns what was sent so far.
func (w *World) Traffic() Traffic { return w.traffic }

// Gap is what was lost on the way from one process to another.
type Gap struct {
	// Frames is how often a frame was lost, Noticed how often the receiver's link has said so.
	Frames, Noticed uint64
}

// Gap returns what was lost on the way from one incarnation to another.
func (w *World) Gap(from, to identity.Node) Gap { return w.gaps[[2]uint64{from.UID, to.UID}] }

// gap notes that a frame was lost, or that a link has noticed that.
func (w *World) gap(from, to *Process, noticed bool) {
	key := [2]uint64{from.node.UID, to.node.UID}
	g := w.gaps[key]
	if noticed {
		g.Noticed++
	} else {
		g.Frames++
	}
	w.gaps[key] = g
}

// transmit carries a frame, or a message if there are no frames.
func (w *World) transmit(from *Process, to identity.Node, e event) {
	w.traffic.Frames[e.lane]++
	w.traffic.Bytes[e.lane] += uint64(len(e.data))
	w.mix(8, from.node.UID^uint64(e.lane))
	w.mixBytes(e.data)
	e.from, e.name = from, to.UID == 0
	if to.UID != 0 {
		p := w.byUID[to.UID]
		if p == nil && w.Network.Stray > 0 && w.chance(e).Float64() < w.Network.Stray {
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

// chance is where what happens to a frame by chance comes from.
func (w *World) chance(e event) *rand.Rand {
	if link.Lane(e.lane) == link.Control {
		return w.Rand
	}
	return w.other
}

func (w *World) carry(to *Process, e event) {
	n, r := &w.Network, w.chance(e)
	if !w.Passes(e.from.place, to.place) || n.Loss > 0 && r.Float64() < n.Loss {
		w.gap(e.from, to, false)
		return
	}
	e.to = to
	delay := n.Delay.pick(r) + e.from.place.Slow + to.place.Slow
	if len(n.pairs) > 0 {
		pair := n.pairs[[2]string{e.from.place.Name, to.place.Name}]
		if pair.Loss > 0 && r.Float64() < pair.Loss {
			w.gap(e.from, to, false)
			return
		}
		delay += pair.Slow
	}
	if len(n.late) > 0 && link.Lane(e.lane) != link.Control {
		delay += n.late[[2]string{e.from.place.Name, to.place.Name}]
	}
	e.at = w.now + delay
	if w.Direct {
		w.queue.push(e)
		return
	}
	key := way{e.from.place.nr, to.place.nr, e.lane}
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

// arrive hands over what has come to a process.
func (w *World) arrive(e *event) {
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
