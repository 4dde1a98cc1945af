// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/shardcore"
)

// fastPath lets commands for a shard bypass the loop: they go directly to a running entity, or to
// the node that hosts the shard.
//
// A sender holds mu for reading. The loop restricts the path, holding mu for writing, before it
// sends any message about a move of the shard. Hence each command either passes before, or goes
// through the queue after the earlier commands of its sender. The loop opens the path after it has
// handled the current command, and no command uses it while the queue of its origin holds others.
type fastPath struct {
	mu sync.RWMutex
	shardcore.Path[*pathEntry]

	// Commands that wait for the loop, and how many wait or are about to be queued: those of this
	// node and those of other nodes. The inbox's lock guards queues.
	queues [2][]*queuedCommand
	queued [2]atomic.Int32
	// Hints: whether to encode or decode a command before taking the lock.
	encodeFirst, decodeFirst atomic.Bool
}

// pathEntry is a running entity that accepts commands of the fast path.
type pathEntry struct{ touched atomic.Bool }

// touch records that the entity received a command.
func (s *pathEntry) touch() {
	if !s.touched.Load() {
		s.touched.Store(true)
	}
}

// restrictPath closes the path for commands that the machine no longer routes directly. The loop
// calls it before it applies the effects of a step.
func (s *shell) restrictPath(n Shard) {
	g := &s.paths[n]
	if !g.IsOpen() {
		return
	}
	own, peers := g.Restricted(s.machine.DirectRoute(n))
	if own == g.Own && peers == g.Peers {
		return
	}
	g.mu.Lock()
	g.Own, g.Peers = own, peers
	g.mu.Unlock()
	if !g.IsOpen() {
		delete(s.openPaths, n)
	}
}

// restrictAllPaths calls restrictPath for all shards.
func (s *shell) restrictAllPaths() {
	for n := range s.openPaths { // the order does not matter
		s.restrictPath(n)
	}
}

// openPath sets the path to the direct route of the machine. The loop calls it after it has applied
// the effects of a step.
func (s *shell) openPath(n Shard) {
	g := &s.paths[n]
	route := s.machine.DirectRoute(n)
	if !g.Differs(route) {
		return
	}
	g.mu.Lock()
	g.Open(s.node.Self(), route)
	g.mu.Unlock()
	g.encodeFirst.Store(g.Remote())
	g.decodeFirst.Store(g.Peers && g.Here)
	if g.IsOpen() {
		s.openPaths[n] = struct{}{}
	} else {
		delete(s.openPaths, n)
	}
}

// The queues of a path: commands of this node do not wait for those of other nodes.
const (
	ownQueue  = 0
	peerQueue = 1
)

// maxDrain is how many queued commands are checked while the lock of a path is held.
const maxDrain = 4096

// queuedCommand is a command that waits for the loop.
type queuedCommand struct {
	shard   Shard
	handled bool // owned by the loop

	own *envelope // set for a command of this node; the rest is for commands of other nodes

	frame   *shardcore.Received
	entity  string
	body    []byte
	message hosting.Message // if decoded
	decoded bool
}

func (w *queuedCommand) queue() int {
	if w.own != nil {
		return ownQueue
	}
	return peerQueue
}

// handleCommand handles a queued command.
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

// accepts reports whether a command can use the path.
func (g *fastPath) accepts(w *queuedCommand) bool {
	if w.own == nil {
		_, found := g.Entity(w.entity, false)
		return found && w.decoded
	}
	if g.Remote() {
		return !w.own.encoded.isZero()
	}
	_, found := g.Entity(w.own.message.ID(), true)
	return found
}

// drainQueue sends all queued commands that can use the path. New commands wait for the lock and
// then find the queue empty, or short. Without it, a queue that always holds some commands would
// keep new commands off the fast path forever.
//
// It keeps the order: of the commands of one entity, either all leave the queue or none.
func (s *shell) drainQueue(g *fastPath, line int) {
	var failed []*queuedCommand
	var why []error
	g.mu.Lock()
	all := s.inbox.takeQueue(g, line)
	kept, gone := all[:0], int32(0)
	for i, w := range all {
		if i == maxDrain || line == ownQueue && !g.Here && w.own.encoded.isZero() || line == peerQueue && !w.decoded {
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
	for i, w := range failed { // after unlocking, because the callbacks may send commands
		m := w.message
		if line == ownQueue {
			m = w.own.message
		}
		s.reportDropped(m.ID(), m.Asked(), why[i])
		m.Answer(nil, why[i])
	}
}

// sendDirect sends a command on the path.
func (s *shell) sendDirect(g *fastPath, w *queuedCommand) error {
	m := w.message
	if w.own != nil {
		m = w.own.message
		if !g.Here {
			return s.forwardCommand(g.Home, w.shard, m, &w.own.encoded)
		}
	}
	g.Entities()[m.ID()].touch()
	return s.entities.Deliver(m)
}

// refuseQueued reports to the sender of a queued command that the loop has ended.
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

// trimQueue removes handled commands from the front of a queue.
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

// takeQueue removes and returns the commands of a queue.
func (b *inbox) takeQueue(g *fastPath, line int) []*queuedCommand {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := g.queues[line]
	g.queues[line] = nil
	return all
}

// requeue puts commands back to the front of a queue.
func (b *inbox) requeue(g *fastPath, line int, kept []*queuedCommand) {
	if len(kept) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	g.queues[line] = append(kept, g.queues[line]...)
}
