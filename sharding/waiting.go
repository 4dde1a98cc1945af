// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/node/shards"
)

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

	frame   *shards.Received
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
		s.about(w.shard, shards.Send{Shard: w.shard, Message: shards.Message{Entity: w.parcel.message.ID(), Local: w.parcel}})
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
	s.drop(w.entity, s.refuse(w.body, shards.Stopped), ErrStopped)
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
