// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/engine"
)

// Message is a command on its way to an entity, with whoever waits for the answer. Programs meet
// it only if they carry commands between nodes by themselves; package sharding does.
//
// A message is handed on until Entities.Deliver takes it, or Answer ends it. It is a
// value; who hands it on does not use it any more. Its methods are safe for concurrent use.
type Message struct {
	id  string
	env *engine.Envelope
	own bool // the entity's own
}

// NewMessage returns the message that has come from another node. The context is for its values, such as
// those of a trace; the deadline, if it is not zero, is that of the caller. Answered gets what the entity
// answers, once, on any goroutine, and must not block; nil says that nobody waits.
func NewMessage(ctx context.Context, id string, command any, deadline time.Time, answered func(value any, err error)) Message {
	if answered == nil {
		return Message{id: id, env: envelope(ctx, command)}
	}
	c := &call{away: &away{answered: answered, deadline: deadline}}
	c.ctx = ctx
	c.env.Message, c.env.Caller = command, c
	return Message{id: id, env: &c.env}
}

// ID is the own ID of the entity.
func (m Message) ID() string { return m.id }

// Command is the command.
func (m Message) Command() any { return m.env.Message }

// Asked reports whether somebody waits for the answer.
func (m Message) Asked() bool {
	_, waits := m.env.Caller.(replier)
	return waits
}

// Context is that of the caller. It need not have a deadline, and never ends for a command that nobody waits for.
func (m Message) Context() context.Context {
	switch s := m.env.Caller.(type) {
	case *call:
		return s.context()
	case sender:
		return s.from().ctx
	}
	return context.Background()
}

// Take says that from now on the command may be handled: if its caller leaves after that,
// the caller is told that it may be done. False says that the caller has left, and
// nothing is to be done. Entities.Deliver needs it not; who sends the message away does.
func (m Message) Take() bool { return m.env.Caller == nil || m.env.Caller.Take() }

// Untake takes that back: the command was surely not handed over.
func (m Message) Untake() {
	if m.env.Caller != nil {
		m.env.Caller.Untake()
	}
}

// Answer ends the message: its caller gets the answer. It does nothing if nobody waits.
func (m Message) Answer(value any, err error) {
	if r, waits := m.env.Caller.(replier); waits {
		r.reply(value, err)
	}
}

// AnswerEncoded is Answer with what AnswerCodec.Append has made on another node. The data must not be changed
// any more.
func (m Message) AnswerEncoded(data []byte) { m.Answer(encodedAnswer(data), nil) }

// Inject returns what Observer.Inject makes of a context, so that it travels with a command. Nil is nothing.
func (r *Runtime) Inject(ctx context.Context) []byte {
	if r.obs.Inject == nil {
		return nil
	}
	return r.obs.Inject(ctx)
}

// Extract is the reverse: see Observer.Extract.
func (r *Runtime) Extract(ctx context.Context, metadata []byte) context.Context {
	if r.obs.Extract == nil || len(metadata) == 0 {
		return ctx
	}
	return r.obs.Extract(ctx, metadata)
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

// Deliver hands a message to its entity in this runtime, which is started if it is not there. An error says
// that it was not handed over: the caller has no answer then.
func (h *Entities[C, E]) Deliver(m Message) error {
	if _, ok := m.env.Message.(C); !ok {
		return fmt.Errorf("%w: %T is no command of type %q", ErrInvalid, m.env.Message, h.model.typ.Name)
	}
	return h.here(m)
}

// here hands a message to its entity in this runtime.
func (h *Entities[C, E]) here(m Message) error {
	err := h.place(m.id, m.env, m.own)
	if err != nil && h.rt.watched {
		h.rt.begin(h.model.typ.Name+"|"+m.id, m.env)
		observing(m.env).end(err)
	}
	return err
}

// route hands a message to HostOptions.Route, or to the entity.
func (h *Entities[C, E]) route(m Message) error {
	if h.opts.Route == nil {
		return h.here(m)
	}
	if err := checkID(m.id); err != nil {
		return err
	}
	return h.opts.Route(m)
}

// Route is where the commands for entities go that another node hosts. It is safe for concurrent use.
type Route[C any] struct {
	name string
	to   func(Message) error
	pool callPool
}

// NewRoute returns the route to the entities of a type. To gets each message; it must not block. An error of to says
// that the message was not handed over, and that nobody will answer it.
func NewRoute[C any](name string, to func(Message) error) *Route[C] {
	return &Route[C]{name: name, to: to}
}

// Ref addresses the entity with this ID. The ID is checked when a command is sent.
func (r *Route[C]) Ref(id string) Ref[C] { return Ref[C]{id: id, to: r} }

func (r *Route[C]) deliver(id string, env *engine.Envelope) error {
	if err := checkID(id); err != nil {
		return err
	}
	return r.to(Message{id: id, env: env})
}

func (r *Route[C]) typeName() string { return r.name }

func (r *Route[C]) calls() *callPool { return &r.pool }
