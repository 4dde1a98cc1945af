// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/journal"
)

// remoteEntities implements Entities for a node that hosts no entities.
type remoteEntities[S any] struct {
	rt      *Runtime // may be nil
	listing hosting.Listing
	to      *remoteTarget
}

// Ref implements Entities.
func (r remoteEntities[S]) Ref(id string) Ref[S] { return Ref[S]{id: id, to: r.to} }

// Start implements Entities.
func (r remoteEntities[S]) Start(ctx context.Context, id string) error { return start(ctx, r.Ref(id)) }

// IDs implements Entities.
func (r remoteEntities[S]) IDs(ctx context.Context) iter.Seq2[string, error] {
	var from journal.Journal
	switch {
	case r.listing.Store != nil:
		from = r.listing.Store.Journal()
	case r.rt != nil:
		from = r.rt.storageOf(r.listing.Type).journal
	}
	return listIDs(ctx, from, naming{name: r.listing.Type, from: r.listing.EntityID})
}

// Wake implements Entities. It does nothing, because this node hosts no entities.
func (remoteEntities[S]) Wake(context.Context) (int, error) { return 0, nil }

// Protocol is the part of a Type that a program needs to send messages to its entities on other nodes.
type Protocol[S any] struct {
	access[S]

	// Name is Type.Name.
	Name string
	// Commands are the commands and notices with their names on the wire.
	Commands *codec.Registry
	// EntityID is Type.EntityID. A program that does not list the IDs may leave it out.
	EntityID func(persistenceID string) (id string, ok bool)
}

// Protocol returns the protocol of a type.
func (t Type[S, E]) Protocol() Protocol[S] {
	return Protocol[S]{Name: t.Name, Commands: t.commandRegistry(), EntityID: t.EntityID}
}

// access lets package sharding create a remote for the entities of a Protocol.
type access[S any] struct {
	hosting.RemoteAccess[Entities[S], *Runtime, remote[S], *remote[S]]
}

// remote implements hosting.Remote.
type remote[S any] struct{ replies replyCodec }

var _ hosting.Remote[Entities[any], *Runtime] = (*remote[any])(nil)

// Entities implements hosting.Remote.
func (*remote[S]) Entities(rt *Runtime, l hosting.Listing, route func(hosting.Message) error) Entities[S] {
	return remoteEntities[S]{rt, l, &remoteTarget{name: l.Type, route: route}}
}

// NewMessage implements hosting.Carrier.
func (*remote[S]) NewMessage(ctx context.Context, id string, command any, deadline time.Time, answered func(value any, err error), charge *loop.Charge) hosting.Message {
	return newRemoteMessage(ctx, id, command, deadline, answered, charge)
}

// AppendReply implements hosting.Carrier.
func (r *remote[S]) AppendReply(dst []byte, value any, err error) []byte {
	return r.replies.append(dst, value, err)
}

func newRemoteMessage(ctx context.Context, id string, command any, deadline time.Time, answered func(value any, err error), charge *loop.Charge) hosting.Message {
	if answered == nil {
		m := &remoteTell{origin: origin{ctx: ctx}, charge: charge}
		m.env.Message, m.env.Caller = command, m
		return hosting.NewMessage(id, &m.env, false)
	}
	both := &struct { // one allocation
		call   call
		remote remoteCaller
	}{remote: remoteCaller{answered: answered, deadline: deadline, charge: charge}}
	c := &both.call
	c.remote, c.ctx = &both.remote, ctx
	c.env.Message, c.env.Caller = command, c
	return hosting.NewMessage(id, &c.env, false)
}

// remoteTell is a command from another node whose sender expects no reply.
type remoteTell struct {
	env engine.Envelope
	origin

	charge *loop.Charge
}

// Take implements engine.Caller.
func (m *remoteTell) Take() bool { m.charge.Free(); return true }

// Untake implements engine.Caller.
func (m *remoteTell) Untake() { m.charge.Hold() }

// remoteCaller is the caller of a command that came from another node.
type remoteCaller struct {
	answered func(value any, err error)
	deadline time.Time // zero for none
	charge   *loop.Charge

	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // nil until a handler needs it
	cancel context.CancelFunc
	ended  bool
}

// late reports whether the caller has stopped waiting.
func (r *remoteCaller) late() bool { return !r.deadline.IsZero() && !time.Now().Before(r.deadline) }

// context returns a context with the given values and the caller's deadline.
func (r *remoteCaller) context(values context.Context) context.Context {
	if r.deadline.IsZero() {
		return values
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		r.ctx, r.cancel = context.WithDeadline(values, r.deadline)
		if r.ended {
			r.cancel()
		}
	}
	return r.ctx
}

// reply sends the reply and ends the context.
func (r *remoteCaller) reply(value any, err error) {
	r.mu.Lock()
	r.ended = true
	if r.cancel != nil {
		r.cancel()
	}
	r.mu.Unlock()
	r.answered(value, err)
}

// shardedHost implements hosting.Host.
type shardedHost struct{ *host }

// Deliver implements hosting.Host.
func (h shardedHost) Deliver(m hosting.Message) error { return h.deliverLocal(m) }

// Rouse implements hosting.Host.
func (h shardedHost) Rouse(id string, indexed bool, done func(error)) error {
	return h.deliverLocal(startMessage(id, indexed, done))
}

// Wake implements hosting.Host.
func (h shardedHost) Wake(ctx context.Context, covers func(id string) bool) (started int, err error) {
	return h.wake(ctx, covers)
}

// Passivate implements hosting.Host.
func (h shardedHost) Passivate(id string) bool { return h.stop(id, stopIdle) }

// Drain implements hosting.Host.
func (h shardedHost) Drain(id string) bool { return h.stop(id, stopMoved) }

// Kill implements hosting.Host.
func (h shardedHost) Kill(id string) bool { return h.stop(id, stopForce) }

// Close implements hosting.Host.
func (h shardedHost) Close(ctx context.Context) error { return h.withdraw(ctx) }

// InMemory implements hosting.Host.
func (h shardedHost) InMemory(id string) (found, recovered bool) {
	p := h.presence(id)
	return p != Absent, p == Running
}

// deliverLocal passes a message to its entity in this runtime.
func (h *host) deliverLocal(m hosting.Message) error {
	err := h.enqueue(m.ID(), m.Envelope(), m.Own())
	if err != nil && h.rt.watched {
		h.rt.begin(h.model.naming.display(m.ID()), m.Envelope())
		observing(m.Envelope()).end(err)
	}
	return err
}

// route passes a message to package sharding, or to the entity.
func (h *host) route(m hosting.Message) error {
	if h.hooks.Route == nil {
		return h.deliverLocal(m)
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

// sender is the sender of a command. It may or may not expect a reply. The Envelope.Caller of each
// command is a sender.
type sender interface {
	hosting.Caller
	from() *origin
}

// origin describes the sender of a command. It implements sender for a sender that expects no
// reply.
type origin struct {
	ctx      context.Context          //nolint:containedctx // the context of one command
	observed atomic.Pointer[observed] // nil without an observer
	attempt  int                      // of hosting.Send
	detached bool                     // ctx does not end
}

func (o *origin) from() *origin { return o }

// Take implements engine.Caller.
func (*origin) Take() bool { return true }

// Untake implements engine.Caller.
func (*origin) Untake() {}

// Context implements hosting.Caller.
func (o *origin) Context() context.Context { return o.ctx }

// Attempt implements hosting.Numbered.
func (o *origin) Attempt() int { return o.attempt }

// SetAttempt implements hosting.Numbered.
func (o *origin) SetAttempt(n int) { o.attempt = n }

// background returns a context that is cancelled with life and has the values of the origin's
// context.
func (o *origin) background(life context.Context) context.Context {
	switch {
	case o.ctx == context.Background():
		return life
	case o.detached:
		return valued{life, o.ctx}
	}
	return valued{life, context.WithoutCancel(o.ctx)}
}

// root returns the context for a command that a handler of this command sends. It is not derived
// from the context of Begin: in an endless chain of commands, such a context would grow without
// limit.
func (o *origin) root() context.Context {
	if seen := o.observed.Load(); seen != nil {
		return seen.base
	}
	return o.ctx
}

// valued is a context that also has the values of a second context. The second context is never
// cancelled.
type valued struct {
	context.Context //nolint:containedctx // a context wraps a context

	values context.Context //nolint:containedctx // see above
}

// Value implements context.Context.
func (v valued) Value(key any) any {
	if found := v.values.Value(key); found != nil {
		return found
	}
	return v.Context.Value(key)
}

// envelopeOf is an envelope with its origin, in one allocation.
type envelopeOf struct {
	env engine.Envelope
	origin
}

// envelope returns the envelope of a command whose sender expects no reply.
func envelope(ctx context.Context, command any) *engine.Envelope {
	if ctx == context.Background() {
		return &engine.Envelope{Message: command}
	}
	e := &envelopeOf{origin: origin{ctx: ctx}}
	if v, ok := ctx.(valued); ok { // unwrap it: a chain of commands would otherwise add one wrapper per command
		e.ctx, e.detached = v.values, true
	}
	e.env.Message, e.env.Caller = command, &e.origin
	return &e.env
}
