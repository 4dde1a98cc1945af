// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
)

var (
	errPanic   = errors.New("panic")
	errEncode  = errors.New("can't be encoded")
	errRefused = errors.New("refused")
)

// message is a command of the tests.
type message struct {
	name string
	acts []act
}

// callback is the callback of the acts then and thenasync.
type callback struct {
	label string
	acts  []act
}

// aggregate is an engine.Behavior that performs the acts in messages. Its state is the list of all
// events.
type aggregate struct {
	state   []string
	calls   map[string]*caller
	signals map[string][]act // the acts for a signal, by its type
	trace   func(format string, args ...any)
}

func (b *aggregate) Decide(op *engine.Op) {
	defer contain(op)
	if m, ok := op.Env.Message.(message); ok {
		b.trace("decide %s", m.name)
		b.run(op, m.acts)
		return
	}
	name := signalName(op.Env.Message)
	b.trace("signal %s", name)
	b.run(op, b.signals[name])
}

func (b *aggregate) Call(op *engine.Op, fn any) {
	defer contain(op)
	c, _ := fn.(callback)
	b.trace("call %s", c.label)
	b.run(op, c.acts)
}

func (b *aggregate) State() *engine.State {
	return &engine.State{Payload: []byte(strings.Join(b.state, " "))}
}

func contain(op *engine.Op) {
	if v := recover(); v != nil {
		op.Panicked(errPanic)
	}
}

func signalName(s any) string {
	_, name, _ := strings.Cut(fmt.Sprintf("%T", s), ".")
	return name
}

func (b *aggregate) run(op *engine.Op, acts []act) {
	for i := range acts {
		a := &acts[i]
		switch a.do {
		case "persist", "async":
			if !b.persist(op, a.args, a.do == "async") {
				return
			}
		case "then", "thenasync":
			op.Call(callback{a.arg(), a.body(0)}, a.do == "thenasync")
		case "even":
			b.run(op, a.body(len(b.state)%2))
		case "save":
			op.Save(&engine.State{Payload: b.State().Payload, Request: true})
		case "request":
			op.Requests = append(op.Requests, a.arg())
		case "panic":
			panic("requested by the message")
		default:
			b.answer(op, a)
		}
	}
}

func (b *aggregate) answer(op *engine.Op, a *act) {
	switch a.do {
	case "reply":
		op.Answer(strings.Join(b.state, " "))
	case "refuse":
		op.Refuse(errRefused)
	case "noreply":
		op.NoReply()
	case "later":
		op.ReplyLater()
	case "resolve":
		if c := b.calls[a.arg()]; c != nil {
			op.Resolve(&c.env, strings.Join(b.state, " "), nil)
		}
	case "stash":
		op.Control(engine.Stash)
	case "unstash":
		op.Control(engine.UnstashAll)
	case "stop":
		op.Control(engine.End)
	case "unhandled":
		op.Control(engine.Unhandled)
	default:
		panic("no such act: " + a.do)
	}
}

// persist encodes, applies and adds a unit, as a real Behavior does.
func (b *aggregate) persist(op *engine.Op, names []string, async bool) bool {
	if slices.Contains(names, "?") {
		op.Fail(&journal.RejectedError{Reason: errEncode})
		return false
	}
	events := make([]journal.Event, len(names))
	matched := false
	op.Applied = true
	for i, name := range names {
		events[i] = journal.Event{Manifest: "event", Payload: []byte(name)}
		if name == "!" {
			panic("while applying")
		}
		b.state = append(b.state, name)
		matched = matched || strings.HasSuffix(name, "*")
	}
	s := op.Due(len(names), matched)
	if s != nil {
		s.Payload = b.State().Payload
	}
	if len(events) == 1 {
		op.PersistOne(events[0], async, s)
	} else {
		op.Persist(events, async, s)
	}
	return true
}

// caller is an engine.Caller that waits for the answer to a message.
type caller struct {
	env   engine.Envelope
	name  string
	state callState
}

type callState uint8

const (
	waiting callState = iota
	taken
	left
)

func newCaller(m message) *caller {
	c := &caller{name: m.name}
	c.env.Message, c.env.Caller = m, c
	return c
}

func (c *caller) Take() bool {
	if c.state != waiting {
		return false
	}
	c.state = taken
	return true
}

func (c *caller) Untake() {
	if c.state == taken {
		c.state = waiting
	}
}

func (c *caller) leave() { c.state = left }
