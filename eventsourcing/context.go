// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"log/slog"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/snapshot"
)

// Context is what a handler knows about its entity, and where it makes effects.
// It is valid until the handler returns and only on the handler's goroutine.
//
// What Go and the timers ask for happens once the effect of the command is
// durable, and not at all if it never is: a handler that runs twice for one
// command asks once.
type Context[C, E any] struct {
	entity *entity[C, E]
	op     *engine.Op
	now    time.Time
}

// ID is the entity's own ID, without its type.
func (c *Context[C, E]) ID() string { return c.entity.id() }

// PersistenceID is the entity's ID in the journal: the name of its type, "|"
// and ID.
func (c *Context[C, E]) PersistenceID() string { return c.entity.pid }

// SequenceNr is the number of the last event that was applied.
func (c *Context[C, E]) SequenceNr() uint64 {
	if c.op == nil {
		return c.entity.machine.SequenceNr()
	}
	return c.op.SequenceNr()
}

// Now is the time at which the command is handled, in UTC and whole
// microseconds. Handlers use it in place of time.Now.
func (c *Context[C, E]) Now() time.Time { return c.now }

// Self addresses the entity itself.
func (c *Context[C, E]) Self() Ref[C] { return Ref[C]{id: c.ID(), to: c.entity.host} }

// Context is the context of the caller, for its values and its deadline. That
// of a command which nobody waits for has the values that it was sent with and
// ends with the runtime; a signal has that of what led to it.
func (c *Context[C, E]) Context() context.Context {
	if c.op != nil {
		switch s := c.op.Env.Caller.(type) {
		case *call:
			return s.context()
		case sender:
			return s.from().background(c.entity.host.rt.ctx)
		}
	}
	return c.entity.host.rt.ctx
}

// Logger is the runtime's logger with the persistence ID.
func (c *Context[C, E]) Logger() *slog.Logger {
	return c.entity.host.rt.log.With(slog.String("persistence_id", c.entity.pid))
}

// None is the effect that does nothing.
func (c *Context[C, E]) None() Effect[C, E] { return Effect[C, E]{} }

// Persist stores events as one unit, all or none. They are applied at once; what
// they lead to is visible outside when they are durable. Without events it does
// nothing. The slice and the events belong to the effect. An asker gets ErrNoReply
// unless a reply follows.
func (c *Context[C, E]) Persist(events ...E) Effect[C, E] {
	if len(events) == 0 {
		return Effect[C, E]{}
	}
	return c.made(Effect[C, E]{events: events})
}

// PersistAsync is Persist for events that do not hold back others: answers to
// later commands may leave before the events are durable, although the state
// that they saw includes them.
func (c *Context[C, E]) PersistAsync(events ...E) Effect[C, E] {
	return c.made(Effect[C, E]{}.with(part[C, E]{events: events, async: true}))
}

// Defer runs f when everything ahead of it is durable; no other command is
// handled before. It does not run if a write ahead of it failed.
func (c *Context[C, E]) Defer(f func(*Context[C, E]) Effect[C, E]) Effect[C, E] {
	return c.made(Effect[C, E]{}.with(part[C, E]{call: f}))
}

// DeferAsync is Defer without holding back other commands.
func (c *Context[C, E]) DeferAsync(f func(*Context[C, E]) Effect[C, E]) Effect[C, E] {
	return c.made(Effect[C, E]{}.with(part[C, E]{call: f, async: true}))
}

// made counts an effect that has to be returned, or nothing comes of it.
func (c *Context[C, E]) made(e Effect[C, E]) Effect[C, E] {
	e.made = 1
	if c.op != nil {
		c.op.Made++
	}
	return e
}

// Reply answers the command and does nothing else.
func (c *Context[C, E]) Reply(a Answer[C]) Effect[C, E] { return Effect[C, E]{}.Reply(a) }

// Refuse answers the command with an error and does nothing else.
func (c *Context[C, E]) Refuse(err error) Effect[C, E] { return Effect[C, E]{}.Refuse(err) }

// Unhandled says that the aggregate does not handle the command: the asker gets
// ErrUnhandled.
func (c *Context[C, E]) Unhandled() Effect[C, E] { return Effect[C, E]{control: unhandled} }

// Stash puts the command aside until UnstashAll. The asker waits. Nothing else may
// be in the effect.
func (c *Context[C, E]) Stash() Effect[C, E] {
	return c.made(Effect[C, E]{control: stash})
}

// UnstashAll handles the commands that are put aside now before all others, in
// the order in which they were put aside.
func (c *Context[C, E]) UnstashAll() Effect[C, E] {
	return c.made(Effect[C, E]{control: unstashAll})
}

// Stop ends the entity once the commands that wait inside it are handled. One
// that arrives later starts it anew; those put aside with Stash are answered
// ErrStopped.
func (c *Context[C, E]) Stop() Effect[C, E] {
	return c.made(Effect[C, E]{control: stop})
}

// Passivate is Stop for an entity that is merely idle. On a local host it is the
// same; where entities are remembered, one that has passivated does not come back by itself.
func (c *Context[C, E]) Passivate() Effect[C, E] {
	return c.made(Effect[C, E]{control: stop}.with(part[C, E]{request: passivation{}}))
}

// SaveSnapshot saves the state as it is after the events of the effect so far.
// The outcome is a SnapshotSaved or SnapshotFailed signal.
func (c *Context[C, E]) SaveSnapshot() Effect[C, E] {
	return c.made(Effect[C, E]{}.with(part[C, E]{request: saveState{}}))
}

// DeleteSnapshots deletes the matching snapshots, unless that would leave
// deleted events uncovered. The outcome is a SnapshotsDeleted or
// SnapshotsNotDeleted signal.
func (c *Context[C, E]) DeleteSnapshots(criteria snapshot.Criteria) Effect[C, E] {
	return c.made(Effect[C, E]{}.with(part[C, E]{request: deleteSnapshots{criteria}}))
}

// DeleteEvents deletes events from the journal. The outcome is an EventsDeleted
// or EventsNotDeleted signal.
func (c *Context[C, E]) DeleteEvents(request DeleteEvents) Effect[C, E] {
	return c.made(Effect[C, E]{}.with(part[C, E]{request: request}))
}

// Token identifies the present command, so that a later one can answer it:
// see Effect.ReplyLater and Effect.Resolve.
func (c *Context[C, E]) Token() Token[C] {
	if c.op == nil {
		return Token[C]{}
	}
	call, ok := c.op.Env.Caller.(*call)
	if !ok {
		return Token[C]{}
	}
	call.kept.Store(true)
	return Token[C]{call: call}
}

// Token stands for a caller that waits. It is not persistent. The zero value
// stands for nobody.
type Token[C any] struct{ call *call }

// Go runs f on a goroutine of its own and sends the command that it returns to
// the entity. Its context has the values of the present command's and ends when
// the runtime is closed.
func (c *Context[C, E]) Go(f func(context.Context) C) {
	r := goRequest[C]{f: f}
	if c.op != nil {
		if s, ok := c.op.Env.Caller.(sender); ok {
			r.ctx, r.root = s.from().background(c.entity.host.rt.ctx), s.from().root()
		}
	}
	c.ask(r)
}

// StartTimer sends a command to the entity after a while, at once if it is not
// positive. It replaces a timer with the same name. Timers survive a refold after
// a failed write, and end when the entity stops.
func (c *Context[C, E]) StartTimer(name string, after time.Duration, command C) {
	c.ask(timerRequest{name: name, after: after, message: command})
}

// StartTicker sends a command to the entity again and again, the next one an
// interval after the last. It replaces a timer with the same name.
func (c *Context[C, E]) StartTicker(name string, every time.Duration, command C) {
	c.ask(timerRequest{name: name, after: every, repeat: true, message: command})
}

// StopTimer stops a timer. A command that it sent already may still come if it
// waits inside the entity.
func (c *Context[C, E]) StopTimer(name string) { c.ask(timerRequest{name: name}) }

// ReceiveTimeout gives the aggregate a ReceiveTimeout signal whenever no
// command came for this long; 0 ends that.
func (c *Context[C, E]) ReceiveTimeout(d time.Duration) { c.ask(receiveTimeout(d)) }

// ask adds a request that is carried out when the op has taken effect.
func (c *Context[C, E]) ask(request any) {
	if c.op == nil {
		c.Logger().Error("a context was used after its handler had returned")
		return
	}
	c.op.Requests = append(c.op.Requests, request)
}

// The requests that travel through the engine.
type (
	saveState        struct{}
	passivation      struct{}
	deleteSnapshots  struct{ criteria snapshot.Criteria }
	handled          struct{ command *observed }
	goRequest[C any] struct {
		f         func(context.Context) C
		ctx, root context.Context //nolint:containedctx // nil when the command has none
	}
	receiveTimeout time.Duration
	timerRequest   struct {
		name    string
		after   time.Duration
		repeat  bool
		message any
	}
	resolve struct {
		call  *call
		value any
		err   error
	}
)
