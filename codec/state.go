// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"reflect"
)

// State encodes and decodes the state of one aggregate type, for snapshots. It is immutable and
// safe for concurrent use.
type State struct {
	typ   reflect.Type // the struct
	plan  *plan
	plans *plans
}

// NewState returns the codec of an aggregate type, which must be a pointer to a struct. The error
// names the path of each field that cannot be stored: an unexported field, or a field whose type
// cannot be encoded, such as a channel, a function or an interface with methods. Fields that are
// tagged refold:"-" are not stored and cause no error.
func NewState(t reflect.Type) (*State, error) {
	if t == nil || t.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("codec: state %v: want a pointer", t)
	}
	ps := &plans{}
	p, err := ps.compile(t.Elem())
	if err != nil {
		return nil, fmt.Errorf("codec: state %v: %w", t, err)
	}
	return &State{typ: t.Elem(), plan: p, plans: ps}, nil
}

// Encode returns the state of an aggregate of the type that NewState was given, without the fields
// that are tagged refold:"-". The data is freshly allocated, has no spare capacity, and is the same
// for the same state.
func (s *State) Encode(agg any) (data []byte, err error) {
	defer s.recovered(&err)
	v, err := s.elem(agg)
	if err != nil {
		return nil, err
	}
	data, err = s.plans.encode(s.plan, v)
	if err != nil {
		return nil, fmt.Errorf("codec: encode state %s: %w", s.typ, err)
	}
	return data, nil
}

// Decode reads a result of Encode into a new aggregate. Fields that are missing in the data or
// tagged refold:"-" keep their values. After an error the state of the aggregate is undefined.
func (s *State) Decode(data []byte, agg any) (err error) {
	defer s.recovered(&err)
	v, err := s.elem(agg)
	if err != nil {
		return err
	}
	if err := s.plans.decodeInto(s.plan, data, v); err != nil {
		return fmt.Errorf("codec: decode state %s: %w", s.typ, err)
	}
	return nil
}

func (s *State) elem(agg any) (reflect.Value, error) {
	v := reflect.ValueOf(agg)
	if !v.IsValid() || v.Type() != reflect.PointerTo(s.typ) || v.IsNil() {
		return reflect.Value{}, fmt.Errorf("codec: state is a %T, want a *%s that is not nil", agg, s.typ)
	}
	return v.Elem(), nil
}

// recovered is deferred. It converts a panic to an error.
func (s *State) recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("codec: state %s: %w", s.typ, &PanicError{p})
	}
}
