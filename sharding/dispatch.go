// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
)

// gate is the way to a shard past the loop. While it is open, commands go straight to the entities, or to the node that has them.
//
// Who goes through holds mu for reading, and the loop narrows the gate, holding it for writing, before it lets anybody know
// that the shard moves: each command goes before that or waits in the inbox, behind those of its sender that
// have gone there before. The loop opens it again only after it has handled the command that it looks at, and nobody goes through as long
// as others wait in the inbox.
type gate struct {
	mu     sync.RWMutex
	home   identity.Node
	here   bool             // home is this node
	own    bool             // commands of this node may go there
	others bool             // commands of other nodes may, if it is here
	seats  map[string]*seat // the entities that take them, by ID

	// What waits for the loop, and how many there are or are about to be, of this node and of others. The lines belong to the
	// inbox.
	lines [2][]*waiting
	count [2]atomic.Int32
	// Hints, for what is better done without the lock.
	remote, local atomic.Bool
}

// seat is that of an entity that runs.
type seat struct{ touched atomic.Bool }

// touch notes that the entity was needed.
func (s *seat) touch() {
	if !s.touched.Load() {
		s.touched.Store(true)
	}
}

// open reports whether anybody may go through.
func (g *gate) open() bool { return g.own || g.others }

// narrow shuts a gate to those that may not go through any more. It is called before what has been decided is done.
func (s *site) narrow(n Shard) {
	g := &s.gates[n]
	if !g.open() {
		return
	}
	way := s.machine.Way(n)
	same := way.Home == g.home
	own, others := g.own && way.Own && same, g.others && way.Others && same
	if own == g.own && others == g.others {
		return
	}
	g.mu.Lock()
	g.own, g.others = own, others
	g.mu.Unlock()
	if !g.open() {
		delete(s.opened, n)
	}
}

// narrowAll does so with all gates.
func (s *site) narrowAll() {
	for n := range s.opened { // the order does not matter
		s.narrow(n)
	}
}

// widen opens a gate to those that may go through. It is called when what has been decided is done.
func (s *site) widen(n Shard) {
	g := &s.gates[n]
	way := s.machine.Way(n)
	if g.own == way.Own && g.others == way.Others && g.home == way.Home {
		return
	}
	here := way.Home == s.node.Self()
	g.mu.Lock()
	g.own, g.others, g.home, g.here = way.Own, way.Others, way.Home, here
	g.mu.Unlock()
	g.remote.Store(way.Own && !here)
	g.local.Store(way.Others && here)
	if g.open() {
		s.opened[n] = struct{}{}
	} else {
		delete(s.opened, n)
	}
}

// Whose commands wait in a line: those of this node don't wait for those of others.
const (
	own    = 0
	others = 1
)

// maxCatchUp is how many of a line are looked at while nobody goes through the gate.
const maxCatchUp = 4096

// waiting is a command that waits for the loop.
type waiting struct {
	shard Shard
	done  bool // it has been handled; the loop's

	parcel *parcel // of this node; or of another one:

	frame   *shardcore.Received
	entity  string
	body    []byte
	message eventsourcing.Message // if opened
	opened  bool
}

func (w *waiting) line() int {
	if w.parcel != nil {
		return own
	}
	return others
}

// waited handles a command that has waited.
func (s *site) waited(w *waiting) {
	g, line := &s.gates[w.shard], w.line()
	if !w.done && g.passes(w) {
		s.catchUp(g, line)
	}
	if w.done {
		return
	}
	w.done = true
	if line == own {
		s.about(w.shard, shardcore.Send{Shard: w.shard, Message: shardcore.Message{Entity: w.parcel.message.ID(), Local: w.parcel}})
	} else {
		s.about(w.shard, *w.frame)
	}
	g.count[line].Add(-1)
	s.inbox.shorten(g, line)
	s.looped.Add(1)
}

// passes reports whether a command can go through the gate.
func (g *gate) passes(w *waiting) bool {
	switch {
	case w.parcel == nil:
		return g.others && g.here && w.opened && g.seats[w.entity] != nil
	case !g.own:
		return false
	case g.here:
		return g.seats[w.parcel.message.ID()] != nil
	}
	return !w.parcel.command.none()
}

// catchUp lets all in a line go through the gate that can. Commands that come meanwhile wait for that, so that they find the line empty, or
// with few in it. Else each one would wait in the line since others do, for as long as there are always some.
//
// It changes nothing in the order: the commands of an entity either all go now or none of them does.
func (s *site) catchUp(g *gate, line int) {
	var failed []*waiting
	var why []error
	g.mu.Lock()
	all := s.inbox.line(g, line)
	kept, gone := all[:0], int32(0)
	for i, w := range all {
		if i == maxCatchUp || line == own && !g.here && w.parcel.command.none() || line == others && !w.opened {
			kept = append(kept, all[i:]...)
			break
		}
		if w.done {
			continue
		}
		if !g.passes(w) {
			kept = append(kept, w)
			continue
		}
		w.done = true
		gone++
		if err := s.through(g, w); err != nil {
			failed, why = append(failed, w), append(why, err)
		}
	}
	clear(all[len(kept):])
	s.inbox.putBack(g, line, kept)
	g.count[line].Add(-gone)
	g.mu.Unlock()
	for i, w := range failed { // whoever hears of it may send commands
		m := w.message
		if line == own {
			m = w.parcel.message
		}
		s.drop(m.ID(), m.Asked(), why[i])
		m.Answer(nil, why[i])
	}
}

// through lets a command go through the gate.
func (s *site) through(g *gate, w *waiting) error {
	m := w.message
	if w.parcel != nil {
		m = w.parcel.message
		if !g.here {
			return s.send(g.home, w.shard, m, &w.parcel.command)
		}
	}
	g.seats[m.ID()].touch()
	return s.entities.Deliver(m)
}

// unheard tells the sender of a command that the loop has ended before.
func (s *site) unheard(w *waiting) {
	if w.done {
		return
	}
	if w.parcel != nil {
		w.parcel.message.Answer(nil, ErrStopped)
		return
	}
	s.drop(w.entity, s.refuse(w.body, shardcore.Stopped), ErrStopped)
}

// shorten forgets those at the front of a line that were handled.
func (b *inbox) shorten(g *gate, line int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := g.lines[line]
	for len(at) > 0 && at[0].done {
		at[0], at = nil, at[1:]
	}
	if len(at) == 0 {
		at = nil
	}
	g.lines[line] = at
}

// line returns those in a line, and leaves it empty.
func (b *inbox) line(g *gate, line int) []*waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := g.lines[line]
	g.lines[line] = nil
	return all
}

// putBack puts some in front of a line.
func (b *inbox) putBack(g *gate, line int, kept []*waiting) {
	if len(kept) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	g.lines[line] = append(kept, g.lines[line]...)
}
