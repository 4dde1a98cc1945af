// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"slices"

	"github.com/refold-io/refold/internal/shardcore/region"
)

// Path is a cache of the direct route of a shard, and the queues of the messages that cannot use
// the route. The shell and the simulations share it. The machine decides the route of every
// message. A message that the path accepts only skips a step of the machine that would return the
// same route. See docs/decisions/0039-the-fast-path-is-a-cache.md for the figures that justify it.
//
// Contents. A path has the home of the shard, two flags for messages of this node and of its peers,
// and the running entities if this node is the home. An entry is valid as long as
// region.Machine.DirectRoute returns it. No earlier message of the shard then waits in the machine,
// and a message changes no state there except the time of the last use. The loop takes this time
// from Touched.
//
// Invalidation. The effects of a step may inform other nodes of a move. Before the driver applies
// them, it therefore sets the route to Restricted. The driver sets the route to Restricted after
// each step that changes Machine.RouteVersion, and for the shard of a message after the step of
// that message. The driver sets the new route only after it has applied the effects. It calls Add
// after the earlier messages of the entity are in its mailbox, and Remove before it requests an
// entity to stop.
//
// Order. The messages of an origin, this node or its peers, arrive at their entity in the order in
// which they reach the path. A message passes only if no earlier message of its origin waits;
// otherwise it is added to the queue. The loop handles the queue in order. Pass lets the first
// messages use the path. Then the machine gets the next message, which stays in the queue until its
// effects are applied.
//
// Concurrency. Senders call Waiting and Target with a lock for reading. Wait, Pass, Done, Close and
// the methods that change the route need the lock for writing. Only the loop changes the route, so
// that it needs no lock for reading.
//
// E is a running entity, M a message in the queue.
type Path[E, M any] struct {
	route    region.DirectRoute
	entities map[string]E
	queues   [2][]M // waiting messages by origin
	closed   bool
}

// Origin is where a message comes from.
type Origin uint8

// The origins.
const (
	Own   Origin = iota // a sender of this node
	Peers               // other nodes
)

// Target is the receiver of messages on a path.
type Target uint8

// The targets.
const (
	NoTarget Target = iota // the path does not accept the message
	ToEntity               // the returned entity
	ToHome                 // the home of the shard
)

// maxPass is how many messages Pass handles at most, because senders wait for it.
const maxPass = 4096

// IsOpen reports whether the path accepts any messages.
func (p *Path[E, M]) IsOpen() bool { return p.route.Own || p.route.Peers }

// Restricted returns the part of the path that a route allows.
func (p *Path[E, M]) Restricted(r region.DirectRoute) region.DirectRoute {
	at := p.route
	same := r.Home == at.Home
	at.Own, at.Peers = at.Own && r.Own && same, at.Peers && r.Peers && same
	return at
}

// Route returns the route that the path accepts.
func (p *Path[E, M]) Route() region.DirectRoute { return p.route }

// Set sets the route.
func (p *Path[E, M]) Set(r region.DirectRoute) { p.route = r }

// Target returns the receiver of a message. It ignores the queues: see Waiting. The caller records
// in E that the entity was used: see Touched.
func (p *Path[E, M]) Target(from Origin, id string) (e E, to Target) {
	r := p.route
	if from == Own && !r.Own || from == Peers && !r.Peers {
		return e, NoTarget
	}
	if !r.Here {
		return e, ToHome
	}
	e, found := p.entities[id]
	if !found {
		return e, NoTarget
	}
	return e, ToEntity
}

// Waiting reports whether messages of an origin wait. If so, a new message must wait, too.
func (p *Path[E, M]) Waiting(from Origin) bool { return len(p.queues[from]) > 0 }

// Wait adds a message to the queue of its origin. It returns false after Close.
func (p *Path[E, M]) Wait(from Origin, m M) bool {
	if !p.closed {
		p.queues[from] = append(p.queues[from], m)
	}
	return !p.closed
}

// Pass calls pass for waiting messages in order, until pass returns false or maxPass is reached,
// and removes the messages that passed. It returns the next message if one is left. The caller
// gives this message to the machine and then calls Done.
//
// Senders need the lock to add messages, so Pass empties the queue even under a steady load.
func (p *Path[E, M]) Pass(from Origin, pass func(M) bool) (next M, found bool) {
	queue := p.queues[from]
	n := 0
	for n < min(len(queue), maxPass) && pass(queue[n]) {
		n++
	}
	p.remove(from, n)
	if n == len(queue) {
		return next, false
	}
	return queue[n], true
}

// Done removes the message that Pass has returned.
func (p *Path[E, M]) Done(from Origin) { p.remove(from, min(1, len(p.queues[from]))) }

func (p *Path[E, M]) remove(from Origin, n int) {
	queue := p.queues[from]
	clear(queue[:n])
	if p.queues[from] = queue[n:]; n == len(queue) {
		p.queues[from] = nil
	}
}

// Close closes the path and returns the waiting messages.
func (p *Path[E, M]) Close() []M {
	left := slices.Concat(p.queues[Own], p.queues[Peers])
	*p = Path[E, M]{closed: true}
	return left
}

// Add lets an entity receive messages through the path. All earlier messages must be in its
// mailbox.
func (p *Path[E, M]) Add(id string, e E) {
	if p.entities == nil {
		p.entities = map[string]E{}
	}
	p.entities[id] = e
}

// Remove closes the path for an entity.
func (p *Path[E, M]) Remove(id string) { delete(p.entities, id) }

// Touched returns the entities, sorted, for which take returns true. take reports whether the
// entity has received messages through the path since the last call. Callers of Target record this
// in E.
func (p *Path[E, M]) Touched(take func(E) bool) (ids []string) {
	for id, e := range p.entities {
		if take(e) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
