// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
)

// Type is an entity type whose Go code is part of the program, so that its events can be decoded
// and replayed. TypeOf returns one.
type Type struct {
	// Name is the name of the type.
	Name string
	// EntityID returns the ID of the entity with a persistence ID, and false for another type.
	EntityID func(persistenceID string) (string, bool)
	// Decode decodes a snapshot like a recovery.
	Decode func(id, manifest string, payload []byte) (State, error)
	// Fold computes a state of an entity.
	Fold func(ctx context.Context, rt *eventsourcing.Runtime, id string, w Wanted) (State, error)

	err     error // reason why the type is unusable
	events  *codec.Registry
	isEvent func(event any) bool
	adopts  bool // persistence IDs need not begin with the name
	// empty returns the state before the first event.
	empty func(id string) (State, error)
	// encode encodes a state in memory, a pointer to the state's struct.
	encode func(state any) (State, error)
	// pending returns up to limit unconfirmed deliveries of a state in memory and their number.
	pending func(state any, limit int) ([]hosting.Delivery, int)
	// pendingOf is pending for an encoded state.
	pendingOf func(id string, s *State) ([]hosting.Delivery, int, error)
}

// Wanted selects the state that Type.Fold computes. The zero value selects the latest state.
type Wanted struct {
	// UpTo is the number of the last event that is applied; 0 means no limit.
	UpTo uint64
	// Without are the numbers of events that are not applied.
	Without []uint64
	// DisableSnapshots applies all events from the first one on.
	DisableSnapshots bool
	// Visit is called with the state at each sequence number in At, which is in ascending order.
	// The numbers must not be below the number of the snapshot that is used. Fold ends when Visit
	// fails.
	At    []uint64
	Visit func(State) error
}

// State is a state of an entity, encoded like in a snapshot.
type State struct {
	// SequenceNr and Time are those of the last event that was applied. SnapshotNr is the number of
	// the snapshot that was used, 0 for none. Records is the number of records after the snapshot.
	SequenceNr, SnapshotNr, Records uint64
	Time                            time.Time
	Manifest                        string
	Payload                         []byte
}

// TypeOf returns a Type. Check returns the reason if it is unusable.
func TypeOf[S, E any](typ eventsourcing.Type[S, E]) Type {
	t := Type{Name: typ.Name, events: typ.Events, EntityID: typ.EntityIDOf, adopts: typ.EntityID != nil}
	switch {
	case strings.TrimSpace(typ.Name) == "":
		t.err = errors.New("the type has no name")
	case typ.Apply == nil && typ.ApplyRecorded == nil:
		t.err = errors.New("Type.Apply is missing")
	default:
		t.err = typ.Events.Err()
	}
	t.isEvent = func(event any) bool { _, ok := event.(E); return ok }
	encode := func(seqNr uint64, state *S) (s State, err error) {
		s.SequenceNr = seqNr
		s.Manifest, s.Payload, err = eventsourcing.EncodeState(typ, state)
		return s, err
	}
	t.Decode = func(id, manifest string, payload []byte) (State, error) {
		state, err := eventsourcing.DecodeState(typ, id, manifest, payload)
		if err != nil {
			return State{}, err
		}
		return encode(0, state)
	}
	t.empty = func(id string) (s State, err error) {
		failed := panics.Catch(func() error {
			state := new(S)
			if typ.New != nil {
				state = typ.New(id)
			}
			s, err = encode(0, state)
			return nil
		})
		return s, cmp.Or(failed, err)
	}
	t.encode = func(state any) (State, error) {
		own, ok := state.(*S)
		if !ok {
			return State{}, fmt.Errorf("the state is a %T, not a %T", state, own)
		}
		return encode(0, own)
	}
	t.pending = func(state any, limit int) (list []hosting.Delivery, total int) {
		own, ok := state.(*S)
		if !ok {
			return nil, 0
		}
		for _, p := range typ.Parts {
			d := hosting.DefinitionOf(p)
			if lister, ok := d.Field(own).(hosting.Deliverer); ok {
				some, n := lister.Deliveries(limit - len(list))
				for i := range some {
					some[i].Part = d.Name
				}
				list, total = append(list, some...), total+n
			}
		}
		return list, total
	}
	t.pendingOf = func(id string, s *State) (list []hosting.Delivery, total int, err error) {
		state, err := eventsourcing.DecodeState(typ, id, s.Manifest, s.Payload)
		if err != nil {
			return nil, 0, err
		}
		err = panics.Catch(func() error {
			list, total = t.pending(state, maxDeliveries)
			return nil
		})
		return list, total, err
	}
	t.Fold = func(ctx context.Context, rt *eventsourcing.Runtime, id string, w Wanted) (State, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		at, ended := w.At, error(nil)
		var last time.Time // of the last event
		// until visits the states before the next event. A repeated replay visits no state again.
		until := func(next uint64, state *S) {
			for ; ended == nil && len(at) > 0 && at[0] < next; at = at[1:] {
				var s State
				if s, ended = encode(at[0], state); ended == nil {
					s.Time = last
					ended = w.Visit(s)
				}
				if ended != nil {
					cancel(ended)
				}
			}
		}
		watched := typ
		if len(w.At) > 0 || len(w.Without) > 0 {
			watched.Apply = nil
			watched.ApplyRecorded = func(state *S, event E, r eventsourcing.Recorded) {
				until(r.SequenceNr, state)
				last = r.Time
				switch {
				case slices.Contains(w.Without, r.SequenceNr):
				case typ.Apply != nil:
					typ.Apply(state, event)
				default:
					typ.ApplyRecorded(state, event, r)
				}
			}
		}
		f, err := eventsourcing.Fold(ctx, rt, watched, id, eventsourcing.FoldOptions[E]{UpTo: w.UpTo, DisableSnapshots: w.DisableSnapshots})
		if err == nil {
			until(f.SequenceNr+1, f.State)
		}
		if err = cmp.Or(ended, err); err != nil {
			return State{}, err
		}
		s, err := encode(f.SequenceNr, f.State)
		s.SnapshotNr, s.Records, s.Time = f.SnapshotNr, f.Records, f.Time
		return s, err
	}
	return t
}

// TypeOfID returns the type of the entity with a persistence ID, nil if it is not among these.
func TypeOfID(types []Type, persistenceID string) *Type {
	for i := range types {
		t := &types[i]
		if t.EntityID == nil {
			continue // a zero value, see Check
		}
		if _, ok := t.EntityID(persistenceID); ok {
			return t
		}
	}
	return nil
}

// Check returns the reason if a type is unusable.
func (t *Type) Check() error {
	switch {
	case t.Fold == nil:
		return errors.New("the zero value of the type is unusable")
	case t.err != nil:
		return fmt.Errorf("type %q: %w", t.Name, t.err)
	}
	return nil
}

// CheckEvent decodes an event like a recovery. The slice is reused.
func (t *Type) CheckEvent(scratch *[]any, manifest string, payload []byte) error {
	decoded, err := t.events.DecodeAppend((*scratch)[:0], manifest, payload)
	if err != nil {
		return err
	}
	for _, event := range decoded {
		if !t.isEvent(event) {
			err = fmt.Errorf("%w: %T is not an event of type %q", codec.ErrUnknown, event, t.Name)
		}
	}
	clear(decoded)
	*scratch = decoded
	return err
}
