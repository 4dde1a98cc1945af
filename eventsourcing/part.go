// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"reflect"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
)

// Address identifies an entity by the name of its type and its own ID.
type Address struct{ Type, ID string }

func (a Address) String() string { return a.Type + "|" + a.ID }

// Part is a field of the state that acts when the events that changed the field are durable. An
// example is delivery.Outbox, which sends commands: delivery.Sends returns its Part.
type Part[S, E any] interface {
	hosting.PartType[S, SignalHandler[S, E]]
}

// Parts returns the parts for Type.Parts.
func Parts[S, E any](parts ...Part[S, E]) []Part[S, E] { return parts }

// partOf is a Part without its type parameters.
type partOf struct {
	name  string
	field func(state any) hosting.Part
}

func (m *model) attach(state any, pid string) ([]hosting.Part, error) {
	if len(m.parts) == 0 {
		return nil, nil
	}
	parts := make([]hosting.Part, len(m.parts))
	for i, p := range m.parts {
		parts[i] = p.field(state)
		if err := parts[i].Attach(pid, p.name); err != nil {
			return nil, fmt.Errorf("%w: part %s: %w", ErrInvalid, p.name, err)
		}
	}
	return parts, nil
}

// checkPartFields returns an error for a field of the state that needs a Part and has none, for two
// parts with the same field, and for a part that is not a field of the state.
func checkPartFields(state any, parts []hosting.Part) error {
	seen := map[any]bool{}
	for _, p := range parts {
		if seen[p.Field()] {
			return fmt.Errorf("%w: Type.Parts: two parts have the same field", ErrInvalid)
		}
		seen[p.Field()] = true
	}
	v := reflect.ValueOf(state).Elem()
	for f, fv := range v.Fields() {
		switch {
		case f.IsExported() && isPart(f.Type):
			if !seen[fv.Addr().Interface()] {
				return fmt.Errorf("%w: the field %s of %v needs an entry in Type.Parts, such as delivery.Sends", ErrInvalid, f.Name, v.Type())
			}
			delete(seen, fv.Addr().Interface())
		case holdsPart(f.Type):
			return fmt.Errorf("%w: the field %s of %v is or contains a part such as a delivery.Outbox, "+
				"which must be an exported field of the state's struct itself, not a pointer", ErrInvalid, f.Name, v.Type())
		}
	}
	for field := range seen {
		return fmt.Errorf("%w: Type.Parts: a %T is not a field of %v itself", ErrInvalid, field, v.Type())
	}
	return nil
}

func isPart(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[hosting.PartField]())
}

// holdsPart reports whether values of this type contain a part or a pointer to one.
func holdsPart(t reflect.Type) bool {
	switch {
	case isPart(t), t.Kind() == reflect.Pointer && isPart(t.Elem()):
		return true
	case t.Kind() == reflect.Array:
		return holdsPart(t.Elem())
	case t.Kind() != reflect.Struct:
		return false
	}
	for f := range t.Fields() {
		if holdsPart(f.Type) {
			return true
		}
	}
	return false
}

// partCall is the caller of a command that a part sends.
type partCall struct {
	origin
	back     func(context.Context, Signal)
	answered func(value any, err error) hosting.Signal
	command  any
	replies  *replyCodec // for replies from other nodes
}

// Reply implements hosting.Asker.
func (c *partCall) Reply(value any, err error) {
	if data, encoded := value.(hosting.EncodedReply); encoded {
		value, err = c.replies.decodeFor(c.command, data)
	}
	var s hosting.Signal
	answered := func() error { s = c.answered(value, err); return nil }
	if p := panics.Catch(answered); p != nil { // in a method of err
		value, err = nil, fmt.Errorf("the reply can't be handled: %v", p) //nolint:errorlint // its methods may panic
		_ = panics.Catch(answered)
	}
	if s != nil {
		c.back(c.ctx, s)
	}
}

// send delivers a command of a part. back receives the signal that reports the reply.
func (r *Runtime) send(s hosting.Send, back func(context.Context, Signal)) {
	ctx := r.extract(context.Background(), s.Metadata)
	env := &engine.Envelope{Message: s.Command}
	if s.Answered != nil {
		env.Caller = &partCall{origin: origin{ctx: ctx, attempt: s.Attempt}, back: back, answered: s.Answered, command: s.Command, replies: &r.calls.replies}
	} else {
		env.Caller = &origin{ctx: ctx, attempt: s.Attempt}
	}
	var err error
	to := naming{name: s.Type}
	if h := r.hostOf(s.Type); h != nil {
		err, to = h.deliver(s.ID, env), h.model.naming
	} else if route := hosting.FindRoute(r, s.Type); route != nil {
		err = route(hosting.NewMessage(s.ID, env, false))
	} else {
		err = fmt.Errorf("%w %q: neither the runtime, nor a region, a proxy or a connected runtime has it", ErrUnknownType, s.Type)
	}
	if err == nil {
		return
	}
	r.notDelivered(to.display(s.ID), s.Command, err)
	if c, ok := env.Caller.(hosting.Asker); ok {
		c.Reply(nil, err)
	}
}
