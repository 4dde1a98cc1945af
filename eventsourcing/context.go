// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"cmp"
	"context"
	"log/slog"
	"time"
	"unsafe"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/snapshot"
)

// Context describes the entity and the message to a handler, and begins its effects: Context embeds
// the empty Effect, so ctx.Persist(e).Reply(v) is a Decision and ctx.Effect is the effect that does
// nothing.
//
// A Context is valid until the handler returns, and only on the goroutine of the handler. Effects
// that begin with an expired Context do nothing.
type Context[S, E, R any] struct{ Effect[S, E, R] }

// contextOf returns the context of an entity for a handler. Each entity has one context, so that a
// command needs no allocation for it.
func contextOf[S, E, R any](e *entity) *Context[S, E, R] {
	// A Context consists of an effect, whatever its type parameters are.
	return (*Context[S, E, R])(unsafe.Pointer(&e.context)) //nolint:gosec // see above
}

// ID returns the entity's own ID, without its type.
func (c *Context[S, E, R]) ID() string { return c.effect.entity.id() }

// PersistenceID returns the entity's ID in the journal: the name of its type, "|" and ID, or that of
// Type.PersistenceID.
func (c *Context[S, E, R]) PersistenceID() string { return c.effect.entity.pid() }

// SequenceNr returns the sequence number of the last event that was applied.
func (c *Context[S, E, R]) SequenceNr() uint64 {
	if c.effect.entity.op == nil {
		return c.effect.entity.machine.SequenceNr()
	}
	return c.effect.entity.op.SequenceNr()
}

// Now returns the time at which the message is handled, in UTC and whole microseconds. Handlers use
// it instead of time.Now.
func (c *Context[S, E, R]) Now() time.Time { return c.effect.entity.machine.Now() }

// Self returns the reference to the entity itself.
func (c *Context[S, E, R]) Self() Ref[S] { return Ref[S]{id: c.ID(), to: c.effect.entity.host} }

// Context returns the context of the caller, for its values and its deadline. The context of a
// message that was sent with Tell has the values of the sender's context and ends with the runtime.
// For a signal, the context comes from the message that caused the signal.
func (c *Context[S, E, R]) Context() context.Context {
	rt := c.effect.entity.host.rt
	if op := c.effect.entity.op; op != nil {
		switch s := op.Env.Caller.(type) {
		case *call:
			return s.Context()
		case sender:
			return s.from().background(rt.ctx)
		}
	}
	return rt.ctx
}

// Logger returns the logger of the runtime with the persistence ID.
func (c *Context[S, E, R]) Logger() *slog.Logger {
	return c.effect.entity.host.rt.log.With(slog.String("persistence_id", c.effect.entity.pid()))
}

// Unhandled rejects the command: its caller gets ErrUnhandled.
func (c *Context[S, E, R]) Unhandled() Decision[S, E, R] {
	return Decision[S, E, R]{decision{effect: effect{control: engine.Unhandled}}}
}

// Stash keeps the command until UnstashAll, and then the command is handled again. The caller waits
// during this time. If HostOptions.StashCapacity commands are already stashed, the command is
// answered according to HostOptions.Overflow.
func (c *Context[S, E, R]) Stash() Decision[S, E, R] {
	return Decision[S, E, R]{decision{effect: c.effect.controlled(engine.Stash)}}
}

// Token identifies the present command, so that a later message can answer it: see
// Effect.ReplyLater and Effect.Resolve. It is the zero value if no caller waits.
func (c *Context[S, E, R]) Token() Token[R] {
	if c.effect.entity.op == nil {
		return Token[R]{}
	}
	caller, ok := c.effect.entity.op.Env.Caller.(*call)
	if !ok {
		return Token[R]{}
	}
	caller.kept.Store(true)
	return Token[R]{call: caller}
}

// Token stands for a caller that waits for an R. It is not persistent. The zero value stands for no
// caller.
type Token[R any] struct{ call *call }

// With returns the resolution that replies with a value. The value must not share memory with the state.
func (t Token[R]) With(value R) Resolution { return Resolution{call: t.call, value: value} }

// Refuse returns the resolution that answers with an error, which must not be nil.
func (t Token[R]) Refuse(err error) Resolution {
	d := decision{err: err, kind: refused}
	return Resolution{call: t.call, err: cmp.Or(d.check(), err)}
}

// Resolution is the late reply to a command, see Effect.Resolve.
type Resolution struct {
	call  *call
	value any
	err   error
}

// Requests of effects. The engine returns them when the effect has taken effect.
type (
	saveState       struct{}
	passivation     struct{}
	deleteSnapshots struct{ criteria snapshot.Criteria }
	handled         struct{ command *observed }
	goRequest       struct {
		f         func(context.Context) any // returns nil or a message
		ctx, root context.Context           //nolint:containedctx // nil when the command has none
	}
	receiveTimeout time.Duration
	timerRequest   struct {
		name    string
		after   time.Duration
		repeat  bool
		message any
	}
)
