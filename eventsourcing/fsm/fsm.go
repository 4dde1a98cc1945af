// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fsm

import (
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/fielderror"
)

// Machine describes a persistent finite-state machine: the entity S, its domain events E, and the
// identifiers N of its states. Build returns the eventsourcing.Type to host. It is a value.
type Machine[S, E any, N ~string] struct {
	// Type holds everything that does not depend on the states: Name, New, Tags, Parts, Snapshots and
	// so on. Events contains the domain events; Build adds StateChange. Type.Snapshots.Every is the
	// interval of snapshots: one is saved after each unit of events that contains a multiple of it.
	// Apply, ApplyRecorded, Commands, Deadline and a handler of StateTimeout must not be set; further
	// Signals may be.
	Type eventsourcing.Type[S, any]
	// Events are the domain events with their stored names. Required if there are any.
	Events []codec.Entry
	// Position returns the field of S that holds the present state. Required.
	Position func(*S) *Position[N]
	// States are the identifiers of all states. They are stored, so they must never change. Required:
	// at least one, none empty, none twice.
	States []N
	// Initial is the state of an entity without events. Defaults to the first of States.
	Initial N
	// InitialForMax is the time-out of Initial for an entity without events. It begins when the entity
	// starts for the first time, by any command or by eventsourcing.Entities.Start: the machine then
	// stores a StateChange with the deadline before the first command. So each entity that was started
	// has an event, and Type.Signals must not have a handler of RecoveryCompleted. A later Goto(Initial)
	// has no time-out unless ForMax sets one. Defaults to 0, no time-out.
	InitialForMax time.Duration
	// Apply changes the data by a domain event, as eventsourcing.Type.Apply does. Required if there are
	// domain events.
	Apply func(*S, E)
	// Handlers are the handlers of commands. On returns one.
	Handlers []Handler[S, E, N]
	// Timeouts are the handlers of state time-outs. OnTimeout returns one. A time-out in a state without
	// a handler has no effect.
	Timeouts []Timeout[S, E, N]
	// OnTransition is called for each Goto, also for one to the same state, when the StateChange is
	// durable, and before the function of AndThen. It is not called in a recovery.
	OnTransition func(s *S, from, to N)
}

// Position is the present state of an entity. It is an exported field of the entity's struct, and is
// derived from the events. Only the machine changes it.
type Position[N ~string] struct {
	// State is the identifier of the state.
	State N
	// Deadline is the time at which the state times out, zero for never.
	Deadline time.Time
}

// StateChange is the event that the machine adds to the domain events of a transition. It is stored
// with them as one unit, after them.
type StateChange struct {
	// State is the identifier of the new state.
	State string
	// Deadline is the time at which the state times out, zero for never.
	Deadline time.Time
}

// changeName is the stored name of StateChange.
const changeName = "refold.fsm.state"

// Handler is the handler of one type of command in several states. On returns one.
type Handler[S, E any, N ~string] struct {
	states []N
	row    func(*Machine[S, E, N]) eventsourcing.Handler[S, any]
}

// Timeout is the handler of the time-out of a state. OnTimeout returns one.
type Timeout[S, E any, N ~string] struct {
	state  N
	handle func(*S, *Context[S, E, N, eventsourcing.None]) Transition[S, E, N, eventsourcing.None]
}

// Case is the handler of a command in some states. In and Otherwise return one.
type Case[S, E any, N ~string, R, M any] struct {
	states []N // empty for all others
	handle func(*S, *Context[S, E, N, R], M) Transition[S, E, N, R]
}

// In returns the handler of a command in a state, or in several.
func In[S, E any, N ~string, R, M any](handle func(*S, *Context[S, E, N, R], M) Transition[S, E, N, R], state N, more ...N) Case[S, E, N, R, M] {
	return Case[S, E, N, R, M]{states: append([]N{state}, more...), handle: handle}
}

// Otherwise returns the handler of a command in all states without a handler of their own.
func Otherwise[S, E any, N ~string, R, M any](handle func(*S, *Context[S, E, N, R], M) Transition[S, E, N, R]) Case[S, E, N, R, M] {
	return Case[S, E, N, R, M]{handle: handle}
}

// On returns the handler of the commands of type M, with a case for each state. The name is that of
// eventsourcing.On. In a state without a case, the command is answered eventsourcing.ErrUnhandled.
func On[S, E any, N ~string, R any, M eventsourcing.Request[S, R]](name string, cases ...Case[S, E, N, R, M]) Handler[S, E, N] {
	h := Handler[S, E, N]{}
	for _, c := range cases {
		h.states = append(h.states, c.states...)
	}
	h.row = func(m *Machine[S, E, N]) eventsourcing.Handler[S, any] {
		return eventsourcing.On(name, func(s *S, inner *eventsourcing.Context[S, any, R], command M) eventsourcing.Decision[S, any, R] {
			at := m.Position(s).State
			for _, c := range cases {
				if len(c.states) == 0 || slices.Contains(c.states, at) {
					ctx := &Context[S, E, N, R]{inner: inner, machine: m, entity: s}
					return c.handle(s, ctx, command).decision(ctx)
				}
			}
			return inner.Unhandled()
		})
	}
	return h
}

// OnTimeout returns the handler of the time-out of a state, see Transition.ForMax. A handler that
// stays in the state and sets no new time-out is called again when the entity is started again.
func OnTimeout[S, E any, N ~string](state N, handle func(*S, *Context[S, E, N, eventsourcing.None]) Transition[S, E, N, eventsourcing.None]) Timeout[S, E, N] {
	return Timeout[S, E, N]{state, handle}
}

// Build checks the machine and returns its type, which is hosted like any other. The error matches
// eventsourcing.ErrInvalid.
func (m Machine[S, E, N]) Build() (eventsourcing.Type[S, any], error) {
	if m.Initial == "" && len(m.States) > 0 {
		m.Initial = m.States[0]
	}
	if err := m.check(); err != nil {
		return eventsourcing.Type[S, any]{}, fmt.Errorf("fsm: type %q: %w", m.Type.Name, err)
	}
	t := m.Type
	t.Events = codec.Types(append(slices.Clone(m.Events), codec.Name[StateChange](changeName))...)
	for _, h := range m.Handlers {
		t.Commands = append(t.Commands, h.row(&m))
	}
	t.Signals = append(slices.Clone(t.Signals), eventsourcing.OnSignal(m.timedOut))
	if m.InitialForMax > 0 {
		t.Signals = append(t.Signals, eventsourcing.OnSignal(m.started))
	}
	t.Deadline = func(s *S) time.Time { return m.Position(s).Deadline }
	t.New = func(id string) *S {
		s := new(S)
		if m.Type.New != nil {
			if s = m.Type.New(id); s == nil {
				return nil
			}
		}
		m.Position(s).State = m.Initial
		return s
	}
	t.Apply = m.apply
	return t, nil
}

func (m *Machine[S, E, N]) check() error {
	var errs fielderror.Errors
	known := func(field string, states ...N) {
		for _, s := range states {
			if !slices.Contains(m.States, s) {
				errs.Addf(field, "names the state %q, which Machine.States does not contain", string(s))
			}
		}
	}
	absent := func(field string, set bool) {
		if set {
			errs.Addf("Machine.Type."+field, "is set, but the machine sets it")
		}
	}
	if m.Position == nil {
		errs.Addf("Machine.Position", "is missing")
	}
	if len(m.States) == 0 {
		errs.Addf("Machine.States", "is empty")
	}
	for i, s := range m.States {
		if s == "" {
			errs.Addf("Machine.States", "contains an empty identifier")
		}
		if slices.Contains(m.States[:i], s) {
			errs.Addf("Machine.States", "contains %q twice", string(s))
		}
	}
	if len(m.States) > 0 {
		known("Machine.Initial", m.Initial)
	}
	if m.InitialForMax < 0 {
		errs.Addf("Machine.InitialForMax", "is %v, want at least 0", m.InitialForMax)
	}
	if len(m.Events) > 0 && m.Apply == nil {
		errs.Addf("Machine.Apply", "is missing")
	}
	for _, h := range m.Handlers {
		if h.row == nil {
			errs.Addf("Machine.Handlers", "contains a zero value, use On")
		}
		known("Machine.Handlers", h.states...)
	}
	for i, t := range m.Timeouts {
		if t.handle == nil {
			errs.Addf("Machine.Timeouts", "has no function for the state %q", string(t.state))
		}
		if slices.ContainsFunc(m.Timeouts[:i], func(u Timeout[S, E, N]) bool { return u.state == t.state }) {
			errs.Addf("Machine.Timeouts", "has two handlers of the state %q", string(t.state))
		}
		known("Machine.Timeouts", t.state)
	}
	absent("Apply", m.Type.Apply != nil)
	absent("ApplyRecorded", m.Type.ApplyRecorded != nil)
	absent("Commands", len(m.Type.Commands) > 0)
	absent("Deadline", m.Type.Deadline != nil)
	absent("Events", m.Type.Events != nil)
	return errs.Err(eventsourcing.ErrInvalid)
}

func (m *Machine[S, E, N]) apply(s *S, event any) {
	if c, ok := event.(StateChange); ok {
		*m.Position(s) = Position[N]{N(c.State), c.Deadline}
		return
	}
	m.Apply(s, event.(E)) //nolint:forcetypeassert,errcheck // a panic names both types
}

// timedOut handles the end of a state's time. The state may have changed since.
func (m *Machine[S, E, N]) timedOut(s *S, inner *eventsourcing.Context[S, any, eventsourcing.None], t eventsourcing.StateTimeout) eventsourcing.Effect[S, any, eventsourcing.None] {
	at := m.Position(s)
	for _, h := range m.Timeouts {
		if h.state == at.State && t.Deadline.Equal(at.Deadline) {
			ctx := &Context[S, E, N, eventsourcing.None]{inner: inner, machine: m, entity: s}
			return h.handle(s, ctx).effect(ctx)
		}
	}
	return inner.Effect
}

// started stores the deadline of the initial state when the entity starts for the first time.
func (m *Machine[S, E, N]) started(_ *S, inner *eventsourcing.Context[S, any, eventsourcing.None], r eventsourcing.RecoveryCompleted) eventsourcing.Effect[S, any, eventsourcing.None] {
	if r.SequenceNr > 0 {
		return inner.Effect
	}
	return inner.Persist(StateChange{State: string(m.Initial), Deadline: inner.Now().Add(m.InitialForMax)})
}
