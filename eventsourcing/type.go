// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/refold-io/refold/codec"
)

// reservedType is the first part of the persistence IDs of what package sharding keeps in a journal.
const reservedType = "refold.sharding"

// Type describes a kind of entity: what its state is made of and how it is
// stored. It is a value; dependencies of the aggregate come in through New.
type Type[C, E any] struct {
	// Name is the first part of the persistence IDs: "account" gives
	// "account|42". It has no "|" and must never change. Required.
	Name string
	// New returns the empty state of the entity with this ID, a pointer to a
	// struct. It is called at each start and recovery. Required.
	New func(id string) Aggregate[C, E]
	// Events are the events with their stored names. Required if the aggregate
	// persists any.
	Events *codec.Registry
	// Commands are the commands with their names on the wire. Needed when
	// commands cross nodes.
	Commands *codec.Registry
	// Tags, if it is not nil, returns tags of an event, besides those of a Tagger.
	// It is for tags that depend on nothing but the event, and must not block.
	Tags func(event E) []string
	// Snapshots says when the state is saved. Defaults to never; an aggregate
	// may still save it by itself.
	Snapshots SnapshotPolicy
	// States are what snapshots hold, with their stored names. Required if the
	// aggregate is a SnapshotAdapter, and only then.
	States *codec.Registry
	// DisablePipelining handles the next command only when all events before
	// are durable. It changes nothing but speed.
	DisablePipelining bool
}

// SnapshotPolicy says when snapshots are saved, and what is deleted after.
type SnapshotPolicy struct {
	every, keep  int
	version      int
	deleteEvents bool
	optional     bool
	set          bool
}

// SnapshotEvery saves a snapshot with each event whose number is a multiple of
// n, which is at least 1; of a unit of several events one snapshot, at its end.
// All snapshots are kept unless Keep says otherwise.
func SnapshotEvery(n int) SnapshotPolicy { return SnapshotPolicy{every: n, set: true} }

// Keep deletes, after a successful save, the snapshots that lie n distances or
// more behind it, a distance being what SnapshotEvery says. n is at least 1.
func (p SnapshotPolicy) Keep(n int) SnapshotPolicy {
	p.keep, p.set = n, true
	if n < 1 {
		p.keep = -1
	}
	return p
}

// DeleteEvents also deletes the events that the oldest kept snapshot covers. It
// needs Keep.
func (p SnapshotPolicy) DeleteEvents() SnapshotPolicy {
	p.deleteEvents, p.set = true, true
	return p
}

// Optional has a recovery replay all events when the snapshot store fails. It
// excludes DeleteEvents.
func (p SnapshotPolicy) Optional() SnapshotPolicy {
	p.optional, p.set = true, true
	return p
}

// Version sets the version of the state, at least 1 and 1 by default. Raise it
// when a state is to mean something else than before, because ApplyEvent was
// changed: snapshots of other versions are passed over, and more events
// replayed, all of them if need be. Where events were deleted there is nothing to
// replay, and the entity can't be recovered: use a SnapshotAdapter there. It does
// not concern a Snapshotter or SnapshotAdapter.
func (p SnapshotPolicy) Version(n int) SnapshotPolicy {
	p.version = n
	if n < 1 {
		p.version = -1
	}
	return p
}

func (p SnapshotPolicy) validate() error {
	var errs []error
	if p.version < 0 {
		errs = append(errs, fmt.Errorf("%w: Type.Snapshots: Version needs at least 1", ErrInvalid))
	}
	if p.set && !p.optional && p.every < 1 || p.every < 0 {
		errs = append(errs, fmt.Errorf("%w: Type.Snapshots: SnapshotEvery(%d) needs at least 1", ErrInvalid, p.every))
	}
	if p.keep < 0 {
		errs = append(errs, fmt.Errorf("%w: Type.Snapshots: Keep needs at least 1", ErrInvalid))
	}
	if p.deleteEvents && p.keep == 0 {
		errs = append(errs, fmt.Errorf("%w: Type.Snapshots: DeleteEvents needs Keep", ErrInvalid))
	}
	if p.deleteEvents && p.optional {
		errs = append(errs, fmt.Errorf("%w: Type.Snapshots: DeleteEvents excludes Optional", ErrInvalid))
	}
	return errors.Join(errs...)
}

// model is a Type made ready: what its registries and its aggregate's struct
// hold, looked up once.
type model[C, E any] struct {
	typ        Type[C, E]
	state      *codec.State // nil when the aggregate encodes itself, or has no snapshots
	stateErr   error        // why there are none
	manifest   string       // of the snapshots that state makes
	timed      bool         // the aggregate has deadlines
	recorded   bool         // it is a RecordedApplier
	companions []companionField
}

type companionField struct {
	index []int
	name  string
}

// newModel checks a Type and looks up what it is made of.
func newModel[C, E any](typ Type[C, E]) (*model[C, E], error) {
	var errs []error
	if strings.TrimSpace(typ.Name) == "" || strings.ContainsAny(typ.Name, "|\x00") {
		errs = append(errs, fmt.Errorf("%w: Type.Name %q is blank or holds a \"|\" or a NUL", ErrInvalid, typ.Name))
	}
	if typ.Name == reservedType {
		errs = append(errs, fmt.Errorf("%w: Type.Name %q: package sharding keeps its own records under that name", ErrInvalid, typ.Name))
	}
	if typ.Events != nil {
		if err := typ.Events.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%w: Type.Events: %w", ErrInvalid, err))
		}
	}
	if typ.Commands != nil {
		if err := typ.Commands.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%w: Type.Commands: %w", ErrInvalid, err))
		}
	}
	if typ.States != nil {
		if err := typ.States.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%w: Type.States: %w", ErrInvalid, err))
		}
	}
	errs = append(errs, implement[E]("Events", typ.Events), implement[C]("Commands", typ.Commands), typ.Snapshots.validate())
	if typ.New == nil {
		errs = append(errs, fmt.Errorf("%w: Type.New is missing", ErrInvalid))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("type %q: %w", typ.Name, err)
	}
	m := &model[C, E]{typ: typ}
	if err := m.inspect(); err != nil {
		return nil, fmt.Errorf("type %q: %w", typ.Name, err)
	}
	return m, nil
}

// implement returns an error for each type of a registry that is none of T.
func implement[T any](field string, r *codec.Registry) error {
	var errs []error
	want := reflect.TypeFor[T]()
	for name, t := range r.GoTypes() {
		if !t.AssignableTo(want) {
			errs = append(errs, fmt.Errorf("%w: Type.%s: %v, named %q, is no %v", ErrInvalid, field, t, name, want))
		}
	}
	return errors.Join(errs...)
}

// inspect looks at an instance of the aggregate.
func (m *model[C, E]) inspect() error {
	var agg Aggregate[C, E]
	if err := contain(m.typ.Name, func() { agg = m.typ.New("") }); err != nil {
		return fmt.Errorf("%w: Type.New: %w", ErrInvalid, err)
	}
	t, err := structOf(agg)
	if err != nil {
		return err
	}
	if err := m.findCompanions(t); err != nil {
		return err
	}
	if _, err := m.attach(agg, m.typ.Name+"|"); err != nil { // a mistake shows here, not in each recovery
		return err
	}
	_, m.timed = agg.(Timed)
	_, m.recorded = agg.(RecordedApplier[E])
	if _, handles := agg.(SignalHandler[C, E]); !handles && (m.timed || len(m.companions) > 0) {
		return fmt.Errorf("%w: *%v is Timed or has a companion such as a delivery.Outbox, so it has to be a SignalHandler: "+
			"a method HandleSignal(*Context, Signal) Effect", ErrInvalid, t)
	}
	return m.inspectState(agg)
}

// findCompanions finds the fields that are companions. One in a place where it
// would not be found is a mistake: it would just do nothing.
func (m *model[C, E]) findCompanions(t reflect.Type) error {
	for f := range t.Fields() {
		switch {
		case f.IsExported() && isCompanion(f.Type):
			m.companions = append(m.companions, companionField{index: f.Index, name: f.Name})
		case holdsCompanion(f.Type):
			return fmt.Errorf("%w: the field %s of %v is or holds a companion such as a delivery.Outbox, "+
				"which has to be an exported field of the aggregate's struct itself, and no pointer", ErrInvalid, f.Name, t)
		}
	}
	return nil
}

func isCompanion(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[Companion]())
}

// holdsCompanion reports whether a companion, or a pointer to one, is part of a
// value of this type.
func holdsCompanion(t reflect.Type) bool {
	switch {
	case isCompanion(t), t.Kind() == reflect.Pointer && isCompanion(t.Elem()):
		return true
	case t.Kind() == reflect.Array:
		return holdsCompanion(t.Elem())
	case t.Kind() != reflect.Struct:
		return false
	}
	for f := range t.Fields() {
		if holdsCompanion(f.Type) {
			return true
		}
	}
	return false
}

// instance is an aggregate with its companions.
type instance[C, E any] struct {
	state      Aggregate[C, E]
	companions []Companion
}

// newInstance returns the empty state of an entity.
func (m *model[C, E]) newInstance(id, pid string) (instance[C, E], error) {
	state := m.typ.New(id)
	companions, err := m.attach(state, pid)
	return instance[C, E]{state: state, companions: companions}, err
}

// attach finds the companions in a fresh state, and tells them whose they are.
func (m *model[C, E]) attach(state Aggregate[C, E], pid string) ([]Companion, error) {
	if len(m.companions) == 0 {
		return nil, nil
	}
	v := reflect.ValueOf(state).Elem()
	companions := make([]Companion, len(m.companions))
	for i, f := range m.companions {
		c, _ := reflect.TypeAssert[Companion](v.FieldByIndex(f.index).Addr())
		if err := c.Attach(pid, f.name); err != nil {
			return nil, fmt.Errorf("attach %s: %w", f.name, err)
		}
		companions[i] = c
	}
	return companions, nil
}

// apply applies one event. It may panic.
func (in *instance[C, E]) apply(event E, seqNr uint64, metadata []byte) {
	for _, c := range in.companions {
		c.Applying(seqNr, metadata)
	}
	in.state.ApplyEvent(event)
}

// applyRecorded is apply for a RecordedApplier.
func (in *instance[C, E]) applyRecorded(event E, record Recorded) {
	for _, c := range in.companions {
		c.Applying(record.SequenceNr, record.Metadata)
	}
	if r, ok := in.state.(RecordedApplier[E]); ok {
		r.ApplyRecorded(event, record)
	}
}

// admits reports whether all companions let a signal through.
func (in *instance[C, E]) admits(s Signal) bool {
	for _, c := range in.companions {
		if !c.Admit(s) {
			return false
		}
	}
	return true
}

// busy reports whether a companion waits for a tick.
func (in *instance[C, E]) busy() bool {
	for _, c := range in.companions {
		if !c.Next().IsZero() {
			return true
		}
	}
	return false
}
