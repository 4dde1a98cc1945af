// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"sync"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
)

// Protocol is the part of a Type that a program needs to send messages to its entities on other nodes.
type Protocol[S any] struct {
	access[S]

	// Name is Type.Name.
	Name string
	// Commands are the commands and notices with their names on the wire.
	Commands *codec.Registry
}

// Protocol returns the protocol of a type.
func (t Type[S, E]) Protocol() Protocol[S] {
	return Protocol[S]{Name: t.Name, Commands: t.commandRegistry()}
}

// access gives package sharding a remote.
type access[S any] = hosting.RemoteAccess[Ref[S], remote[S], *remote[S]]

// remote implements hosting.Remote.
type remote[S any] struct{ replies replyCodec }

// Refs implements hosting.Remote.
func (*remote[S]) Refs(typeName string, route func(hosting.Message) error) func(id string) Ref[S] {
	t := &remoteTarget{name: typeName, route: route}
	return func(id string) Ref[S] { return Ref[S]{id: id, to: t} }
}

// NewMessage implements hosting.Carrier.
func (*remote[S]) NewMessage(ctx context.Context, id string, command any, deadline time.Time, answered func(value any, err error)) hosting.Message {
	return newRemoteMessage(ctx, id, command, deadline, answered)
}

// AppendReply implements hosting.Carrier.
func (r *remote[S]) AppendReply(dst []byte, value any, err error) []byte {
	return r.replies.append(dst, value, err)
}

// newRemoteMessage returns a message from another node.
func newRemoteMessage(ctx context.Context, id string, command any, deadline time.Time, answered func(value any, err error)) hosting.Message {
	if answered == nil {
		return hosting.NewMessage(id, envelope(ctx, command), false)
	}
	c := &call{away: &away{answered: answered, deadline: deadline}}
	c.ctx = ctx
	c.env.Message, c.env.Caller = command, c
	return hosting.NewMessage(id, &c.env, false)
}

// away is the caller of a command that came from another node.
type away struct {
	answered func(value any, err error)
	deadline time.Time // zero for none

	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // made when a handler wants it
	cancel context.CancelFunc
	ended  bool
}

// late reports whether the caller waits no more.
func (a *away) late() bool { return !a.deadline.IsZero() && !time.Now().Before(a.deadline) }

// context returns values with the deadline of the caller.
func (a *away) context(values context.Context) context.Context {
	if a.deadline.IsZero() {
		return values
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx == nil {
		a.ctx, a.cancel = context.WithDeadline(values, a.deadline)
		if a.ended {
			a.cancel()
		}
	}
	return a.ctx
}

// reply passes the answer on, and ends the context.
func (a *away) reply(value any, err error) {
	a.mu.Lock()
	a.ended = true
	if a.cancel != nil {
		a.cancel()
	}
	a.mu.Unlock()
	a.answered(value, err)
}

// shardedHost implements hosting.Host.
type shardedHost[S, E any] struct{ *Local[S, E] }

// Deliver implements hosting.Host.
func (h shardedHost[S, E]) Deliver(m hosting.Message) error { return h.here(m) }

// Rouse implements hosting.Host.
func (h shardedHost[S, E]) Rouse(id string, done func(error)) error {
	return h.here(rouseMessage[S](id, done))
}

// Passivate implements hosting.Host.
func (h shardedHost[S, E]) Passivate(id string) bool { return h.want(id, wantIdle) }

// Drain implements hosting.Host.
func (h shardedHost[S, E]) Drain(id string) bool { return h.want(id, wantDrain) }

// Kill implements hosting.Host.
func (h shardedHost[S, E]) Kill(id string) bool { return h.want(id, wantForce) }

// InMemory implements hosting.Host.
func (h shardedHost[S, E]) InMemory(id string) bool { return h.find(id) != nil }

// here hands a message to its entity in this runtime.
func (h *Local[S, E]) here(m hosting.Message) error {
	err := h.place(m.ID(), m.Envelope(), m.Own())
	if err != nil && h.rt.watched {
		h.rt.begin(h.model.typ.Name+"|"+m.ID(), m.Envelope())
		observing(m.Envelope()).end(err)
	}
	return err
}

// route hands a message to package sharding, or to the entity.
func (h *Local[S, E]) route(m hosting.Message) error {
	if h.hooks.Route == nil {
		return h.here(m)
	}
	if err := checkID(m.ID()); err != nil {
		return err
	}
	return h.hooks.Route(m)
}

// remoteTarget is the target of references to entities on other nodes.
type remoteTarget struct {
	name  string
	route func(hosting.Message) error
	pool  callPool
}

func (r *remoteTarget) deliver(id string, env *engine.Envelope) error {
	if err := checkID(id); err != nil {
		return err
	}
	return r.route(hosting.NewMessage(id, env, false))
}

func (r *remoteTarget) typeName() string { return r.name }

func (r *remoteTarget) calls() *callPool { return &r.pool }

// sender is the sender of a command, with or without an expected reply. Envelope.Caller holds one
// for every command.
type sender interface {
	hosting.Caller
	from() *origin
}

// origin is where a command comes from.
type origin struct {
	ctx      context.Context //nolint:containedctx // a command is its context, for as long as it lasts
	observed *observed       // nil when nobody observes
	attempt  int             // of a part's hosting.Send
	detached bool            // ctx does not end
}

func (o *origin) from() *origin { return o }

// background returns a context that lasts as long as another and knows the values of the origin's.
func (o *origin) background(life context.Context) context.Context {
	switch {
	case o.ctx == context.Background():
		return life
	case o.detached:
		return valued{life, o.ctx}
	}
	return valued{life, context.WithoutCancel(o.ctx)}
}

// root returns the context for a command that follows from this one. It does not derive from the
// context of Begin: in an endless chain of commands, such a context would grow without limit.
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

// told is the sender of a command without an expected reply.
type told struct {
	env engine.Envelope
	origin
}

// Take is part of engine.Caller.
func (*told) Take() bool { return true }

// Untake implements engine.Caller.
func (*told) Untake() {}

// Context implements hosting.Caller.
func (t *told) Context() context.Context { return t.ctx }

// envelope returns the envelope of a command without an expected reply.
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
