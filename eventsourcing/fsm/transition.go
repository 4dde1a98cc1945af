// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fsm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/eventsourcing"
)

// Context describes the entity and the message to a handler, and begins its transition: with Goto,
// Stay or Stop. It is valid until the handler returns.
type Context[S, E any, N ~string, R any] struct {
	inner   *eventsourcing.Context[S, any, R]
	machine *Machine[S, E, N]
	entity  *S
}

// ID returns the ID of the entity.
func (c *Context[S, E, N, R]) ID() string { return c.inner.ID() }

// State returns the identifier of the present state.
func (c *Context[S, E, N, R]) State() N { return c.machine.Position(c.entity).State }

// Now is eventsourcing.Context.Now.
func (c *Context[S, E, N, R]) Now() time.Time { return c.inner.Now() }

// Context is eventsourcing.Context.Context.
func (c *Context[S, E, N, R]) Context() context.Context { return c.inner.Context() }

// Goto returns a transition to a state, which may be the present one. The state has no time-out unless
// ForMax sets one.
//
// Goto panics if Machine.States does not contain the state. The panic fails the command only.
func (c *Context[S, E, N, R]) Goto(state N) Transition[S, E, N, R] {
	if !slices.Contains(c.machine.States, state) {
		panic(fmt.Sprintf("fsm: Goto(%q): Machine.States does not contain this state", string(state)))
	}
	return Transition[S, E, N, R]{to: state, moves: true, records: true}
}

// Stay returns a transition that keeps the state, with its time-out unless ForMax sets another.
func (c *Context[S, E, N, R]) Stay() Transition[S, E, N, R] { return Transition[S, E, N, R]{} }

// Stop is Stay, and stops the entity afterwards. The next command starts it again in the same state.
func (c *Context[S, E, N, R]) Stop() Transition[S, E, N, R] {
	return Transition[S, E, N, R]{stops: true}
}

// Transition is the result of a handler. It is a value; every method returns a changed copy.
type Transition[S, E any, N ~string, R any] struct {
	to      N
	moves   bool // Goto
	records bool // a StateChange is stored
	stops   bool
	events  []any
	max     time.Duration
	then    func(*S)
	reply   func() R
	err     error
}

// Applying adds domain events. They are stored with the StateChange as one unit and applied at once.
func (t Transition[S, E, N, R]) Applying(events ...E) Transition[S, E, N, R] {
	t.events = slices.Clip(t.events)
	for _, e := range events {
		t.events = append(t.events, e)
	}
	return t
}

// ForMax sets the time-out of the state: after the duration the handler of OnTimeout is called. The
// deadline is stored, so it survives a restart; if it has passed, the handler is called at the start of
// the entity. See eventsourcing.Entities.Wake for entities that no command starts. A duration that is
// not positive ends the time-out of a state that stays.
func (t Transition[S, E, N, R]) ForMax(d time.Duration) Transition[S, E, N, R] {
	t.max, t.records = d, true
	return t
}

// AndThen sets a function that is called when the events are durable, once, and not in a recovery. It
// may have side effects.
func (t Transition[S, E, N, R]) AndThen(f func(*S)) Transition[S, E, N, R] {
	t.then = f
	return t
}

// Reply sets the reply to the command. The caller receives it when the events are durable and the
// callbacks have run. Defaults to the zero value of R.
func (t Transition[S, E, N, R]) Reply(value R) Transition[S, E, N, R] {
	return t.ReplyFunc(func() R { return value })
}

// ReplyFunc sets a function that returns the reply. It is called after the events were applied.
func (t Transition[S, E, N, R]) ReplyFunc(f func() R) Transition[S, E, N, R] {
	t.reply, t.err = f, nil
	return t
}

// Refuse answers the command with an error, see eventsourcing.Effect.Refuse.
func (t Transition[S, E, N, R]) Refuse(err error) Transition[S, E, N, R] {
	t.reply, t.err = nil, err
	return t
}

// effect stores the events and calls the callbacks.
func (t Transition[S, E, N, R]) effect(c *Context[S, E, N, R]) eventsourcing.Effect[S, any, R] {
	m, from := c.machine, c.State()
	to, events := from, slices.Clip(t.events)
	if t.moves {
		to = t.to
	}
	if t.records {
		change := StateChange{State: string(to)}
		if t.max > 0 {
			change.Deadline = c.Now().Add(t.max)
		}
		events = append(events, change)
	}
	effect := c.inner.Persist(events...)
	if t.moves && m.OnTransition != nil || t.then != nil {
		effect = effect.Then(func(later *eventsourcing.Context[S, any, R]) eventsourcing.Effect[S, any, R] {
			if t.moves && m.OnTransition != nil {
				m.OnTransition(c.entity, from, to)
			}
			if t.then != nil {
				t.then(c.entity)
			}
			return later.Effect
		})
	}
	if t.stops {
		effect = effect.Stop()
	}
	return effect
}

func (t Transition[S, E, N, R]) decision(c *Context[S, E, N, R]) eventsourcing.Decision[S, any, R] {
	switch {
	case t.err != nil:
		return t.effect(c).Refuse(t.err)
	case t.reply != nil:
		return t.effect(c).ReplyFunc(t.reply)
	}
	return t.effect(c).ReplyFunc(func() (zero R) { return zero })
}
