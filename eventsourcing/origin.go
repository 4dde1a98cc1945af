// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"

	"github.com/refold-io/refold/internal/engine"
)

// sender is who sent a command, whether it waits for the answer or not: what
// this package puts into Envelope.Caller.
type sender interface {
	engine.Caller
	from() *origin
}

// origin is where a command comes from.
type origin struct {
	ctx      context.Context //nolint:containedctx // a command is its context, for as long as it lasts
	observed *observed       // nil when nobody observes
	attempt  int             // of a companion's Send
	detached bool            // ctx does not end
}

func (o *origin) from() *origin { return o }

// background returns a context that lasts as long as another and knows the
// values of the origin's.
func (o *origin) background(life context.Context) context.Context {
	switch {
	case o.ctx == context.Background():
		return life
	case o.detached:
		return valued{life, o.ctx}
	}
	return valued{life, context.WithoutCancel(o.ctx)}
}

// root is the context for a command that follows from this one by itself. It is
// not the one that Begin returned, or that of a command which leads to the next
// one for ever would grow for ever.
func (o *origin) root() context.Context {
	if o.observed != nil {
		return o.observed.base
	}
	return o.ctx
}

// valued is a context with the values of another one, which never ends.
type valued struct {
	context.Context //nolint:containedctx // it is one

	values context.Context //nolint:containedctx // see above
}

// Value is part of context.Context.
func (v valued) Value(key any) any {
	if found := v.values.Value(key); found != nil {
		return found
	}
	return v.Context.Value(key)
}

// told is the sender of a command that nobody waits for.
type told struct {
	env engine.Envelope
	origin
}

// Take is part of engine.Caller.
func (*told) Take() bool { return true }

// Untake is part of engine.Caller.
func (*told) Untake() {}

// envelope returns the envelope of a command that nobody waits for.
func envelope(ctx context.Context, command any) *engine.Envelope {
	if ctx == context.Background() {
		return &engine.Envelope{Message: command}
	}
	t := &told{origin: origin{ctx: ctx}}
	if v, ok := ctx.(valued); ok { // or the next one would wrap it, and so on
		t.ctx, t.detached = v.values, true
	}
	t.env.Message, t.env.Caller = command, t
	return &t.env
}
