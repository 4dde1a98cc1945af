// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// Path is the cached direct route of a shard: messages that it accepts bypass the machine. The
// shell and the simulation share it.
//
// The driver keeps the order of messages by three rules. It calls Restrict for every path whose
// route may have changed before it applies the effects of a step, since these may inform other
// nodes of a move. It calls Open only after it has applied them. And it sends no message by the
// path while earlier messages of the same origin, this node or its peers, wait for the machine.
//
// E is a running entity. Path is not safe for concurrent use.
type Path[E any] struct {
	// Home is the receiving node.
	Home identity.Node
	// Here reports whether Home is this node.
	Here bool
	// Own and Peers report whether the path accepts messages of this node, and of other nodes.
	Own, Peers bool

	entities map[string]E
}

// IsOpen reports whether the path accepts any messages.
func (p *Path[E]) IsOpen() bool { return p.Own || p.Peers }

// Restricted returns Own and Peers as they have to be under a new route that does not open
// anything.
func (p *Path[E]) Restricted(r region.DirectRoute) (own, peers bool) {
	same := r.Home == p.Home
	return p.Own && r.Own && same, p.Peers && r.Peers && same
}

// Differs reports whether Open would change the path.
func (p *Path[E]) Differs(r region.DirectRoute) bool {
	return p.Own != r.Own || p.Peers != r.Peers || p.Home != r.Home
}

// Open sets the path to a route.
func (p *Path[E]) Open(self identity.Node, r region.DirectRoute) {
	p.Own, p.Peers, p.Home, p.Here = r.Own, r.Peers, r.Home, r.Home == self
}

// Entity returns the entity that receives messages of this node, or of other nodes, by the path.
func (p *Path[E]) Entity(id string, own bool) (e E, found bool) {
	if !p.Here || own && !p.Own || !own && !p.Peers {
		return e, false
	}
	e, found = p.entities[id]
	return e, found
}

// Remote reports whether messages of this node go to Home, which is another node.
func (p *Path[E]) Remote() bool { return p.Own && !p.Here }

// Add lets an entity receive messages by the path. All earlier messages must be in its mailbox.
func (p *Path[E]) Add(id string, e E) {
	if p.entities == nil {
		p.entities = map[string]E{}
	}
	p.entities[id] = e
}

// Remove ends that.
func (p *Path[E]) Remove(id string) { delete(p.entities, id) }

// Entities returns the entities of the path by ID. The caller must not modify it.
func (p *Path[E]) Entities() map[string]E { return p.entities }
