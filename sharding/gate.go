// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/identity"
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
