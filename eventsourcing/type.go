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
	"github.com/refold-io/refold/journal"
)

// Type describes a kind of entity: its state S, its events E, the handlers of its commands, and how
// it is stored. It is a value. The fields hold method expressions, such as (*Account).Deposit.
//
// Handlers decide: they return the events to store and the reply, never change the state, and have
// no side effects. A handler may run more than once for one message, when a write before it failed.
// Apply changes the state. All functions with an *S run on one goroutine at a time and must not
// block.
type Type[S, E any] struct {
	// Name is the first part of the persistence IDs: "account" gives "account|42". It has at most 510
	// bytes of UTF-8 without "|" and NUL, does not begin with "refold.", and must never change.
	// Required.
	Name string
	// PersistenceID returns the persistence ID of the entity with this ID, to adopt a history that was
	// stored under other IDs. It must be a pure function that returns a different valid persistence ID
	// (see journal.CheckID) for each ID, and never one of another type. It must never change. Defaults to
	// Name, "|" and the ID.
	//
	// Only Ref, Address, Context.ID, IDs, Resident and package sharding use the ID itself. Observers,
	// logs, projections, delivery.Header.Sender and operator tools show the persistence ID. A query by
	// type (journal.Criteria.Types) selects by the part of the persistence ID before "|"; use tags if
	// the adopted IDs have no such part.
	PersistenceID func(id string) string
	// EntityID is the inverse of PersistenceID. It receives the persistence IDs of the journal and
	// returns false for those of other types. An ID for which EntityID(PersistenceID(id)) is not id is
	// refused with ErrInvalid, so that two entities never share a history. EntityID must be set if and
	// only if PersistenceID is set.
	EntityID func(persistenceID string) (id string, ok bool)
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
	// entity that is not in memory, except in a cluster: see Entities.Wake. Deadline requires a handler of StateTimeout.
	Deadline func(state *S) time.Time
	// Snapshots configures when the state is saved, and how. By default the state is saved only by
	// handlers that return Effect.SaveSnapshot.
	Snapshots Snapshots[S, E]
	// DisablePipelining handles the next command only when all events before it are durable. An
	// entity without pipelining is slower and otherwise behaves in the same way.
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
	// Recovering reports that the event comes from the journal, in a recovery, a Fold or a View. It is not
	// set when the event is applied because a handler has just persisted it. The state must not depend on
	// it; it is for metrics and logs.
	Recovering bool
}

// model is a checked Type. In its functions a state is a *S, and an event is an E. The other code
// that runs an entity does not depend on S and E. Therefore the compiler generates that code once
// and not once for each Type.
type model struct {
	name       string
	naming     naming
	stateType  reflect.Type // S
	eventType  reflect.Type // E
	commands   map[reflect.Type]handleFunc
	signals    map[reflect.Type]handleFunc
	parts      []partOf
	events     *codec.Registry // nil if the entities persist no events
	sequential bool            // Type.DisablePipelining
	snapshots  snapshotRules
	form       *stateForm   // nil if snapshots store the state itself
	state      *codec.State // of the struct S; nil if it can't be encoded
	stateErr   error        // the reason
	manifest   string       // of snapshots of the struct S

	newState      func(id string) any
	isEvent       func(event any) bool
	applyEvent    func(state, event any) // nil if Type.Apply is
	applyRecorded func(state, event any, record Recorded)
	tags          func(state, event any) []string           // may be nil
	deadline      func(state any) time.Time                 // may be nil
	when          func(state, event any, seqNr uint64) bool // may be nil
}

// modelOf returns the unchecked model of a type, without its tables.
func modelOf[S, E any](typ *Type[S, E]) *model { //nolint:gocognit // one closure per field
	m := &model{
		name:       typ.Name,
		naming:     typ.naming(),
		stateType:  reflect.TypeFor[S](),
		eventType:  reflect.TypeFor[E](),
		events:     typ.Events,
		sequential: typ.DisablePipelining,
		snapshots:  typ.Snapshots.rules(),
		newState:   func(string) any { return new(S) },
		isEvent:    func(event any) bool { _, ok := event.(E); return ok },
	}
	if f := typ.Snapshots.State; f != nil {
		m.form = &f.form
	}
	for _, p := range typ.Parts {
		d := hosting.DefinitionOf(p)
		m.parts = append(m.parts, partOf{d.Name, func(state any) hosting.Part { return d.Field(as[*S](state)) }})
	}
	if f := typ.New; f != nil {
		m.newState = func(id string) any {
			if s := f(id); s != nil {
				return s
			}
			return nil
		}
	}
	if f := typ.Apply; f != nil {
		m.applyEvent = func(state, event any) { f(as[*S](state), as[E](event)) }
	}
	if f := typ.ApplyRecorded; f != nil {
		m.applyRecorded = func(state, event any, record Recorded) { f(as[*S](state), as[E](event), record) }
	}
	if f := typ.Tags; f != nil {
		m.tags = func(state, event any) []string { return f(as[*S](state), as[E](event)) }
	}
	if f := typ.Deadline; f != nil {
		m.deadline = func(state any) time.Time { return f(as[*S](state)) }
	}
	if f := typ.Snapshots.When; f != nil {
		m.when = func(state, event any, seqNr uint64) bool { return f(as[*S](state), as[E](event), seqNr) }
	}
	return m
}

func newModel[S, E any](typ Type[S, E]) (*model, error) {
	m := modelOf(&typ)
	commands := make([]row, len(typ.Commands))
	for i, h := range typ.Commands {
		commands[i] = h.row
	}
	signals := make([]row, 0, len(typ.Signals))
	for _, h := range typ.Signals {
		signals = append(signals, h.row)
	}
	for _, p := range typ.Parts {
		for _, h := range hosting.DefinitionOf(p).Signals {
			signals = append(signals, h.row)
		}
	}
	if err := m.check(commands, signals, typ.commandRegistry()); err != nil {
		return nil, fmt.Errorf("type %q: %w", typ.Name, err)
	}
	return m, nil
}

func (m *model) check(commands, signals []row, names *codec.Registry) error {
	var errs fielderror.Errors
	if strings.TrimSpace(m.name) == "" || strings.Contains(m.name, "|") || journal.CheckID(journal.JoinID(m.name, "1")) != nil {
		errs.Addf("Type.Name", "%.64q is blank, contains a \"|\" or a NUL, is not UTF-8, or has more than %d bytes", m.name, journal.MaxIDLength-len("|1"))
	}
	if journal.IsReserved(m.name) {
		errs.Addf("Type.Name", "%.64q begins with %q, which is reserved", m.name, journal.ReservedPrefix)
	}
	m.naming.check(&errs)
	if m.stateType.Kind() != reflect.Struct {
		errs.Addf("Type", "has the state %v, which is not a struct", m.stateType)
	}
	if m.events != nil {
		errs.Add("Type.Events", m.events.Err())
		if m.applyEvent == nil && m.applyRecorded == nil {
			errs.Addf("Type.Apply", "is missing")
		}
		for name, t := range m.events.GoTypes() {
			if !t.AssignableTo(m.eventType) {
				errs.Addf("Type.Events", "contains %v, named %q, which does not implement %v", t, name, m.eventType)
			}
		}
	}
	if m.applyEvent != nil && m.applyRecorded != nil {
		errs.Addf("Type.Apply", "and Type.ApplyRecorded are both set")
	}
	m.snapshots.check(&errs)
	m.commands = tableOf(&errs, "Type.Commands", commands)
	errs.Add("Type.Commands", names.Err())
	m.signals = tableOf(&errs, "Type.Signals", signals)
	if m.deadline != nil && m.signals[reflect.TypeFor[StateTimeout]()] == nil {
		errs.Addf("Type.Deadline", "needs a handler of StateTimeout in Type.Signals")
	}
	if err := errs.Err(ErrInvalid); err != nil {
		return err
	}
	return errors.Join(m.prepareState(), m.checkParts())
}

// mayHaveWork reports whether entities may have unconfirmed deliveries or deadlines.
func (m *model) mayHaveWork() bool { return m.deadline != nil || len(m.parts) > 0 }

// as returns a state, an event or a message in its own type.
func as[T any](value any) T { return value.(T) } //nolint:errcheck,forcetypeassert // the tables and Type.Events are checked

// checkParts makes an instance to find mistakes in Type.New and in parts.
func (m *model) checkParts() error {
	err := catchPanic(m.name, func() error {
		in, err := m.newInstance("", m.name+"|")
		if err != nil {
			return err
		}
		return checkPartFields(in.state, in.parts())
	})
	if _, panicked := errors.AsType[*PanicError](err); panicked {
		return fmt.Errorf("%w: Type.New: %w", ErrInvalid, err)
	}
	return err
}

type instance struct {
	state    any             // a *S
	attached *[]hosting.Part // nil if the type has no parts, so that an idle entity stays small
}

func (in *instance) parts() []hosting.Part {
	if in.attached == nil {
		return nil
	}
	return *in.attached
}

// newInstance returns the empty state of an entity and attaches its parts.
func (m *model) newInstance(id, pid string) (instance, error) {
	state := m.newState(id)
	if state == nil {
		return instance{}, fmt.Errorf("%w: Type.New returned nil", ErrInvalid)
	}
	in := instance{state: state}
	parts, err := m.attach(state, pid)
	if len(parts) > 0 {
		in.attached = &parts
	}
	return in, err
}

// apply applies one event. It may panic.
func (m *model) apply(in *instance, event any, record Recorded) {
	for _, p := range in.parts() {
		p.Applying(record.SequenceNr, record.Metadata)
	}
	switch {
	case m.applyEvent != nil:
		m.applyEvent(in.state, event)
	case m.applyRecorded != nil:
		m.applyRecorded(in.state, event, record)
	}
}

// admits reports whether all parts accept a signal.
func (in *instance) admits(s Signal) bool {
	for _, p := range in.parts() {
		if !p.Admit(s) {
			return false
		}
	}
	return true
}
