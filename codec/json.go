// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
)

// jsonFormat keeps the shapes of the types it has seen.
type jsonFormat struct {
	shapes sync.Map // reflect.Type to *shape
}

// JSON returns the format that writes what encoding/json makes of a value, with
// its tags and rules: it leaves out unexported fields without a word, and reads
// numbers in an interface as float64. It holds the same limits as msgpack.
func JSON() Format { return &jsonFormat{} }

// Name implements Format.
func (*jsonFormat) Name() string { return jsonName }

// Marshal implements Format.
func (f *jsonFormat) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if err := f.check(reflect.TypeOf(v), data); err != nil {
		return nil, err
	}
	exact := make([]byte, len(data))
	copy(exact, data)
	return exact, nil
}

// Unmarshal implements Format.
func (f *jsonFormat) Unmarshal(data []byte, v any) error {
	if err := f.check(reflect.TypeOf(v).Elem(), data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// check holds the limits of data that is to be read into a t.
func (f *jsonFormat) check(t reflect.Type, data []byte) error {
	known, ok := f.shapes.Load(t)
	if !ok {
		known, _ = f.shapes.LoadOrStore(t, shapeOf(t, map[reflect.Type]*shape{}))
	}
	c := jsonCheck{data: data, budget: costLimit(len(data)) - costNew(t.Size())}
	return c.value(known.(*shape), 0) //nolint:errcheck // nothing else is stored
}
