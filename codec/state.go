// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// State encodes and decodes the state of one type of aggregate, for snapshots.
// It is immutable and safe for concurrent use.
type State struct{}

// NewState makes the codec of an aggregate type, a pointer to a struct.
func NewState(t reflect.Type) (*State, error) {
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("codec: state %v: want a pointer to a struct", t)
	}
	return &State{}, nil
}

// Encode returns the state of the aggregate.
func (s *State) Encode(agg any) ([]byte, error) { return msgpack.Marshal(agg) }

// Decode reads what Encode wrote into a fresh aggregate.
func (s *State) Decode(data []byte, agg any) error { return msgpack.Unmarshal(data, agg) }
