// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/hosting"
)

// reservedType is the type name in the persistence IDs of the records that package sharding keeps.
const reservedType = "refold.sharding"

// Type describes a kind of entity: its state S, its events E, the handlers of its commands, and how
// it is stored. It is a value. The fields hold method expressions, such as (*Account).Deposit.
//
// Handlers decide: they return the events to store and the reply, never change the state, and have
// no side effects. A handler may run more than once for one message, when a write before it failed.
// Apply changes the state. All functions with an *S run on one goroutine at a time and must not
// block.
type Type[S, E any] struct {
	// Name is the first part of the persistence IDs: "account" gives "account|42". It contains no
	// "|" and must never change. Required.
	Name string
	// New returns the empty state of the entity with this ID. It is called at each start and
	// recovery. Defaults to new(S).
	New func(id string) *S
	// Commands are the handlers of commands and notices, with their names on the wire: see the
	// function Commands. A message without a handler is answered ErrUnhandled.
	Commands []Handler[S, E]
	// CommandFormat encodes commands for other nodes, such as codec.JSON(). Defaults to msgpack. All
	// nodes read msgpack, JSON and this format.
	CommandFormat codec.Format
	// OldCommands decode older forms of commands: codec.Upcast, codec.Split, codec.Removed.
	OldCommands []codec.Entry
	// Signals are the handlers of signals, see the function Signals. Signals without a handler are
	// logged if they report an error, and dropped otherwise.
	Signals []SignalHandler[S, E]
	// Parts are fields of the state that act when their events are durable: see delivery.Sends.
	Parts []Part[S, E]
	// Apply changes the state by an event. It runs once for each persisted event, and again in
	// every recovery. Required if there are events, unless ApplyRecorded is set.
	Apply func(state *S, event E)
	// ApplyRecorded is Apply with the data that is stored with the event. Set Apply or
	// ApplyRecorded, not both.
	ApplyRecorded func(state *S, event E, record Recorded)
	// Events are the events with their stored names. Required if entities persist any.
	Events *codec.Registry
	// Tags returns the tags that are stored with an event, for queries. It is called after the
	// event was applied. Defaults to no tags.
	Tags func(state *S, event E) []string
	// Deadline returns the time at which the present state times out, or zero for none. It is
	// computed from the state, so it survives every recovery. At that time the entity receives a
	// StateTimeout signal, once for each deadline and instance. If the deadline passed while the
	// entity was stopped, the entity receives the signal at its start. A deadline does not start an
	// entity that is not in memory, see Entities.Wake. Deadline requires a handler of StateTimeout.
	Deadline func(state *S) time.Time
	// Snapshots configures when the state is saved, and how. By default the state is saved only by
	// handlers that return Effect.SaveSnapshot.
	Snapshots Snapshots[S, E]
	// DisablePipelining handles the next command only when all events before it are durable. It
	// changes nothing but speed.
	DisablePipelining bool
}

// Recorded is the data that is stored with an event. If a stored event is upcast to several events,
// they share it.
type Recorded struct {
	// SequenceNr is the sequence number of the event.
	SequenceNr uint64
	// Time is its timestamp, in UTC and whole microseconds. It never decreases.
	Time time.Time
	// Metadata is the value that Observer.Inject returned, nil for none. It must not be changed.
	Metadata []byte
}

// model is a checked Type with its tables.
type model[S, E any] struct {
	typ      Type[S, E]
	commands map[reflect.Type]*Handler[S, E]
	registry *codec.Registry // wire names of the commands
	signals  map[reflect.Type]*SignalHandler[S, E]
	state    *codec.State // of the struct S; nil if it can't be encoded
	stateErr error        // the reason
	manifest string       // of snapshots of the struct S
}

func newModel[S, E any](typ Type[S, E]) (*model[S, E], error) {
	m := &model[S, E]{typ: typ}
	errs := typ.check()
	var err error
	m.commands, m.registry, err = m.typ.commandTable()
	errs.Join(err)
	m.signals, err = m.typ.signalTable()
	errs.Join(err)
	if typ.Deadline != nil && m.signals[reflect.TypeFor[StateTimeout]()] == nil {
		errs.Addf("Type.Deadline", "needs a handler of StateTimeout in Type.Signals")
	}
	err = errs.Err(ErrInvalid)
	if err == nil {
		err = errors.Join(m.prepareState(), m.checkParts())
	}
	if err != nil {
		return nil, fmt.Errorf("type %q: %w", typ.Name, err)
	}
	return m, nil
}

func (t *Type[S, E]) check() (errs fielderror.Errors) {
	if strings.TrimSpace(t.Name) == "" || strings.ContainsAny(t.Name, "|\x00") {
		errs.Addf("Type.Name", "%q is blank or contains a \"|\" or a NUL", t.Name)
	}
	if t.Name == reservedType {
		errs.Addf("Type.Name", "%q is reserved for package sharding", t.Name)
	}
	if s := reflect.TypeFor[S](); s.Kind() != reflect.Struct {
		errs.Addf("Type", "has the state %v, which is not a struct", s)
	}
	if t.Events != nil {
		errs.Add("Type.Events", t.Events.Err())
		if t.Apply == nil && t.ApplyRecorded == nil {
			errs.Addf("Type.Apply", "is missing")
		}
		want := reflect.TypeFor[E]()
		for name, et := range t.Events.GoTypes() {
			if !et.AssignableTo(want) {
				errs.Addf("Type.Events", "contains %v, named %q, which does not implement %v", et, name, want)
			}
		}
	}
	if t.Apply != nil && t.ApplyRecorded != nil {
		errs.Addf("Type.Apply", "and Type.ApplyRecorded are both set")
	}
	t.Snapshots.check(&errs)
	return errs
}

// checkParts makes an instance to find mistakes in Type.New and in parts.
func (m *model[S, E]) checkParts() error {
	err := catchPanic(m.typ.Name, func() error {
		in, err := m.newInstance("", m.typ.Name+"|")
		if err != nil {
			return err
		}
		return checkPartFields(in.state, in.parts)
	})
	if _, panicked := errors.AsType[*PanicError](err); panicked {
		return fmt.Errorf("%w: Type.New: %w", ErrInvalid, err)
	}
	return err
}

type instance[S, E any] struct {
	state *S
	parts []hosting.Part
}

// newInstance returns the empty state of an entity and attaches its parts.
func (m *model[S, E]) newInstance(id, pid string) (instance[S, E], error) {
	state := new(S)
	if m.typ.New != nil {
		state = m.typ.New(id)
	}
	if state == nil {
		return instance[S, E]{}, fmt.Errorf("%w: Type.New returned nil", ErrInvalid)
	}
	parts, err := m.attach(state, pid)
	return instance[S, E]{state: state, parts: parts}, err
}

// apply applies one event. It may panic.
func (m *model[S, E]) apply(in *instance[S, E], event E, record Recorded) {
	for _, p := range in.parts {
		p.Applying(record.SequenceNr, record.Metadata)
	}
	switch {
	case m.typ.Apply != nil:
		m.typ.Apply(in.state, event)
	case m.typ.ApplyRecorded != nil:
		m.typ.ApplyRecorded(in.state, event, record)
	}
}

// admits reports whether all parts accept a signal.
func (in *instance[S, E]) admits(s Signal) bool {
	for _, p := range in.parts {
		if !p.Admit(s) {
			return false
		}
	}
	return true
}

// busy reports whether a part waits for a tick.
func (in *instance[S, E]) busy() bool {
	for _, p := range in.parts {
		if !p.Next().IsZero() {
			return true
		}
	}
	return false
}
