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
type fastPath struct {
	mu           sync.RWMutex
	home         identity.Node
	homeIsSelf   bool                  // home is this node
	ownAllowed   bool                  // commands of this node may go there
	peersAllowed bool                  // commands of other nodes may, if it is here
	entries      map[string]*pathEntry // the entities that take them, by ID

	// Kind waits for the loop, and how many there are or are about to be, of this node and of others. The lines belong to the
	// inbox.
	queues [2][]*queuedCommand
	queued [2]atomic.Int32
	// Hints, for what is better done without the lock.
	encodeFirst, decodeFirst atomic.Bool
}

// seat is that of an entity that runs.
type pathEntry struct{ touched atomic.Bool }

// touch notes that the entity was needed.
func (s *pathEntry) touch() {
	if !s.touched.Load() {
		s.touched.Store(true)
	}
}

// open reports whether anybody may go through.
func (g *fastPath) isOpen() bool { return g.ownAllowed || g.peersAllowed }

// narrow shuts a gate to those that may not go through any more. It is called before what has been decided is done.
func (s *shell) restrictPath(n Shard) {
	g := &s.paths[n]
	if !g.isOpen() {
		return
	}
	way := s.machine.DirectRoute(n)
	same := way.Home == g.home
	own, others := g.ownAllowed && way.Own && same, g.peersAllowed && way.Peers && same
	if own == g.ownAllowed && others == g.peersAllowed {
		return
	}
	g.mu.Lock()
	g.ownAllowed, g.peersAllowed = own, others
	g.mu.Unlock()
	if !g.isOpen() {
		delete(s.openPaths, n)
	}
}

// restrictAllPaths does so with all gates.
func (s *shell) restrictAllPaths() {
	for n := range s.openPaths { // the order does not matter
		s.restrictPath(n)
	}
}

// widen opens a gate to those that may go through. It is called when what has been decided is done.
func (s *shell) openPath(n Shard) {
	g := &s.paths[n]
	way := s.machine.DirectRoute(n)
	if g.ownAllowed == way.Own && g.peersAllowed == way.Peers && g.home == way.Home {
		return
	}
	here := way.Home == s.node.Self()
	g.mu.Lock()
	g.ownAllowed, g.peersAllowed, g.home, g.homeIsSelf = way.Own, way.Peers, way.Home, here
	g.mu.Unlock()
	g.encodeFirst.Store(way.Own && !here)
	g.decodeFirst.Store(way.Peers && here)
	if g.isOpen() {
		s.openPaths[n] = struct{}{}
	} else {
		delete(s.openPaths, n)
	}
}

// Whose commands wait in a line: those of this node don't wait for those of others.
const (
	ownQueue  = 0
	peerQueue = 1
)

// maxDrain is how many of a line are looked at while nobody goes through the gate.
const maxDrain = 4096

// waiting is a command that waits for the loop.
type queuedCommand struct {
	shard   Shard
	handled bool // it has been handled; the loop's

	own *envelope // of this node; or of another one:

	frame   *shardcore.Received
	entity  string
	body    []byte
	message eventsourcing.Message // if opened
	decoded bool
}

func (w *queuedCommand) queue() int {
	if w.own != nil {
		return ownQueue
	}
	return peerQueue
}

// waited handles a command that has waited.
func (s *shell) handleCommand(w *queuedCommand) {
	g, line := &s.paths[w.shard], w.queue()
	if !w.handled && g.accepts(w) {
		s.drainQueue(g, line)
	}
	if w.handled {
		return
	}
	w.handled = true
	if line == ownQueue {
		s.stepCommand(w.shard, shardcore.Send{Shard: w.shard, Message: shardcore.Message{Entity: w.own.message.ID(), Local: w.own}})
	} else {
		s.stepCommand(w.shard, *w.frame)
	}
	g.queued[line].Add(-1)
	s.inbox.trimQueue(g, line)
	s.queuedTotal.Add(1)
}

// passes reports whether a command can go through the gate.
func (g *fastPath) accepts(w *queuedCommand) bool {
	switch {
	case w.own == nil:
		return g.peersAllowed && g.homeIsSelf && w.decoded && g.entries[w.entity] != nil
	case !g.ownAllowed:
		return false
	case g.homeIsSelf:
		return g.entries[w.own.message.ID()] != nil
	}
	return !w.own.encoded.isZero()
}

// drainQueue lets all in a line go through the gate that can. Commands that come meanwhile wait for that, so that they find the line empty, or
// with few in it. Else each one would wait in the line since others do, for as long as there are always some.
//
// It changes nothing in the order: the commands of an entity either all go now or none of them does.
func (s *shell) drainQueue(g *fastPath, line int) {
	var failed []*queuedCommand
	var why []error
	g.mu.Lock()
	all := s.inbox.takeQueue(g, line)
	kept, gone := all[:0], int32(0)
	for i, w := range all {
		if i == maxDrain || line == ownQueue && !g.homeIsSelf && w.own.encoded.isZero() || line == peerQueue && !w.decoded {
			kept = append(kept, all[i:]...)
			break
		}
		if w.handled {
			continue
		}
		if !g.accepts(w) {
			kept = append(kept, w)
			continue
		}
		w.handled = true
		gone++
		if err := s.sendDirect(g, w); err != nil {
			failed, why = append(failed, w), append(why, err)
		}
	}
	clear(all[len(kept):])
	s.inbox.requeue(g, line, kept)
	g.queued[line].Add(-gone)
	g.mu.Unlock()
	for i, w := range failed { // whoever hears of it may send commands
		m := w.message
		if line == ownQueue {
			m = w.own.message
		}
		s.reportDropped(m.ID(), m.Asked(), why[i])
		m.Answer(nil, why[i])
	}
}

// through lets a command go through the gate.
func (s *shell) sendDirect(g *fastPath, w *queuedCommand) error {
	m := w.message
	if w.own != nil {
		m = w.own.message
		if !g.homeIsSelf {
			return s.forwardCommand(g.home, w.shard, m, &w.own.encoded)
		}
	}
	g.entries[m.ID()].touch()
	return s.entities.Deliver(m)
}

// unheard tells the sender of a command that the loop has ended before.
func (s *shell) refuseQueued(w *queuedCommand) {
	if w.handled {
		return
	}
	if w.own != nil {
		w.own.message.Answer(nil, ErrStopped)
		return
	}
	s.reportDropped(w.entity, s.sendRefusal(w.body, shardcore.Stopped), ErrStopped)
}

// shorten forgets those at the front of a line that were handled.
func (b *inbox) trimQueue(g *fastPath, line int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := g.queues[line]
	for len(at) > 0 && at[0].handled {
		at[0], at = nil, at[1:]
	}
	if len(at) == 0 {
		at = nil
	}
	g.queues[line] = at
}

// line returns those in a line, and leaves it empty.
func (b *inbox) takeQueue(g *fastPath, line int) []*queuedCommand {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := g.queues[line]
	g.queues[line] = nil
	return all
}

// requeue puts some in front of a line.
func (b *inbox) requeue(g *fastPath, line int, kept []*queuedCommand) {
	if len(kept) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	g.queues[line] = append(kept, g.queues[line]...)
}
