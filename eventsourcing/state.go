// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
)

// StateManifest is the manifest of the snapshots that Refold encodes: msgpack, a
// map from field names to values; "@" and the version follow if that is not 1.
// Those that an aggregate encodes itself, as a Snapshotter, have SelfManifest.
// Those of a SnapshotAdapter have that of their value in Type.States.
const (
	StateManifest = "state"
	SelfManifest  = "self"
)

// inspectState looks at how an aggregate is encoded.
func (m *model[C, E]) inspectState(agg Aggregate[C, E]) error {
	_, self := agg.(Snapshotter)
	_, adapts := agg.(SnapshotAdapter)
	switch {
	case self && adapts:
		return fmt.Errorf("%w: %T is a Snapshotter and a SnapshotAdapter, it can be one of them", ErrInvalid, agg)
	case adapts != (m.typ.States != nil):
		return fmt.Errorf("%w: %T has to be a SnapshotAdapter with Type.States, or neither", ErrInvalid, agg)
	}
	for name := range m.typ.States.GoTypes() {
		if name == StateManifest || name == SelfManifest {
			return fmt.Errorf("%w: Type.States: the name %q is reserved", ErrInvalid, name)
		}
	}
	m.manifest = StateManifest
	if v := m.typ.Snapshots.version; v > 1 {
		m.manifest += "@" + strconv.Itoa(v)
	}
	if self {
		return nil
	}
	m.state, m.stateErr = codec.NewState(reflect.TypeOf(agg))
	if adapts {
		m.stateErr = nil // state reads what is older than the adapter, if it can
		return nil
	}
	if _, decides := agg.(SnapshotDecider[E]); m.stateErr != nil && (m.typ.Snapshots.every > 0 || decides) {
		return fmt.Errorf("%w: the aggregate can't be snapshotted: %w", ErrInvalid, m.stateErr)
	}
	return nil
}

// encode encodes the state for a snapshot.
func (m *model[C, E]) encode(state Aggregate[C, E]) (manifest string, payload []byte, err error) {
	switch s := state.(type) {
	case Snapshotter:
		payload, err = s.MarshalSnapshot()
		return SelfManifest, payload, err
	case SnapshotAdapter:
		value, failed := s.ToSnapshot()
		if failed != nil {
			return "", nil, failed
		}
		return m.typ.States.Encode(value)
	}
	if m.stateErr != nil {
		return "", nil, m.stateErr
	}
	payload, err = m.state.Encode(state)
	return m.manifest, payload, err
}

// decode decodes a snapshot into a fresh state.
func (m *model[C, E]) decode(manifest string, payload []byte, state Aggregate[C, E]) error {
	s, self := state.(Snapshotter)
	switch {
	case manifest == SelfManifest && self:
		return s.UnmarshalSnapshot(payload)
	case manifest == m.manifest && m.state != nil:
		return m.state.Decode(payload, state)
	case manifest == m.manifest && self:
		st, err := codec.NewState(reflect.TypeOf(state))
		if err != nil {
			return err
		}
		return st.Decode(payload, state)
	case manifest == StateManifest, strings.HasPrefix(manifest, StateManifest+"@"):
		return fmt.Errorf("%w: snapshot manifest %q, this program writes %q", codec.ErrUnknown, manifest, m.manifest)
	}
	if a, ok := state.(SnapshotAdapter); ok {
		v, err := m.typ.States.Decode(manifest, payload)
		if err != nil {
			return err
		}
		return a.FromSnapshot(v)
	}
	return fmt.Errorf("%w: snapshot manifest %q", codec.ErrUnknown, manifest)
}

// EncodeState encodes a state of a type as a snapshot of it does, for tools and
// tests.
func EncodeState[C, E any](typ Type[C, E], state Aggregate[C, E]) (manifest string, payload []byte, err error) {
	var inner error
	err = contain(typ.Name, func() {
		var m *model[C, E]
		if m, inner = stateModel(typ, state); inner == nil {
			manifest, payload, inner = m.encode(state)
		}
	})
	if err = errors.Join(err, inner); err != nil {
		return "", nil, err
	}
	return manifest, payload, nil
}

// DecodeState decodes a snapshot of the entity with this ID of its own as a
// recovery does, for tools and tests.
func DecodeState[C, E any](typ Type[C, E], id, manifest string, payload []byte) (Aggregate[C, E], error) {
	if typ.New == nil {
		return nil, fmt.Errorf("%w: type %q: Type.New is missing", ErrInvalid, typ.Name)
	}
	var state Aggregate[C, E]
	var inner error
	err := contain(typ.Name, func() {
		state = typ.New(id)
		var m *model[C, E]
		if m, inner = stateModel(typ, state); inner != nil {
			return
		}
		if _, inner = m.attach(state, journal.JoinID(typ.Name, id)); inner == nil {
			inner = m.decode(manifest, payload, state)
		}
	})
	if err = errors.Join(err, inner); err != nil {
		return nil, err
	}
	return state, nil
}

// stateModel looks up as much of a type as its states need.
func stateModel[C, E any](typ Type[C, E], state Aggregate[C, E]) (*model[C, E], error) {
	m := &model[C, E]{typ: typ}
	t, err := structOf(state)
	if err != nil {
		return nil, err
	}
	if err := m.findCompanions(t); err != nil {
		return nil, err
	}
	return m, m.inspectState(state)
}

// structOf returns the type of the struct that an aggregate points to.
func structOf(state any) (reflect.Type, error) {
	t := reflect.TypeOf(state)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%w: Type.New returned a %v, it has to be a pointer to a struct", ErrInvalid, t)
	}
	return t.Elem(), nil
}
