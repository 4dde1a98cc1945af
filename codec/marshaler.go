// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// Marshaler is implemented by types that encode themselves. MarshalMsgpack returns exactly one
// msgpack value. Equal Go values must have equal bytes. The codec copies the bytes.
type Marshaler interface {
	MarshalMsgpack() ([]byte, error)
}

// Unmarshaler is the counterpart of Marshaler. UnmarshalMsgpack receives exactly one well-formed
// msgpack value, and may keep the slice.
type Unmarshaler interface {
	UnmarshalMsgpack(data []byte) error
}

// marshaler is a pair of methods by which a type encodes and decodes itself.
type marshaler uint8

const (
	noMarshaler      marshaler = iota
	msgpackMarshaler           // MarshalMsgpack, UnmarshalMsgpack
	binaryMarshaler            // MarshalBinary, UnmarshalBinary
	textMarshaler              // MarshalText, UnmarshalText
)

// marshalerOf returns the pair of methods of a type that is not a pointer. It returns noMarshaler
// if the type has only one method of a pair. The methods may be on the type or on the pointer to
// it.
func marshalerOf(t reflect.Type) marshaler {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return noMarshaler
	}
	ptr := reflect.PointerTo(t)
	has := func(encode, decode reflect.Type) bool { return ptr.Implements(encode) && ptr.Implements(decode) }
	switch {
	case has(reflect.TypeFor[Marshaler](), reflect.TypeFor[Unmarshaler]()):
		return msgpackMarshaler
	case has(reflect.TypeFor[encoding.BinaryMarshaler](), reflect.TypeFor[encoding.BinaryUnmarshaler]()):
		return binaryMarshaler
	case has(reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()):
		return textMarshaler
	}
	return noMarshaler
}

// planMarshaler creates the plan of a type that encodes itself. It returns false for other types.
func planMarshaler(p *plan) (bool, error) {
	if ptr := reflect.PointerTo(p.typ); ptr.Implements(reflect.TypeFor[msgpack.CustomEncoder]()) || ptr.Implements(reflect.TypeFor[msgpack.CustomDecoder]()) {
		return true, fmt.Errorf("%s has the methods EncodeMsgpack or DecodeMsgpack, which are not called: implement codec.Marshaler and codec.Unmarshaler", p.typ)
	}
	m := marshalerOf(p.typ)
	if m == noMarshaler {
		return false, nil
	}
	if err := checkHidden(p.typ, m); err != nil {
		return true, err
	}
	p.needsAddr = true
	nilable := p.typ.Kind() == reflect.Map || p.typ.Kind() == reflect.Slice
	p.encode = func(e *encoder, v reflect.Value) error {
		if nilable && v.IsNil() {
			return e.mp.EncodeNil()
		}
		return e.marshal(m, addressable(v).Addr().Interface())
	}
	p.decode = func(d *decoder, v reflect.Value) error { return d.unmarshal(m, v) }
	return true, nil
}

// checkHidden returns an error for a struct whose pair of methods may be promoted from an embedded
// type. Promoted methods would not store the other fields.
func checkHidden(t reflect.Type, m marshaler) error {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var embedded reflect.Type
	others := 0
	for f := range t.Fields() {
		elem := f.Type
		if elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		if f.Anonymous && marshalerOf(elem) == m {
			embedded = f.Type
			continue
		}
		if tag, err := parseTag(f); f.Type.Size() > 0 && f.Name != "_" && (err != nil || !tag.skip) {
			others++
		}
	}
	if embedded != nil && others > 0 {
		return fmt.Errorf("the encoding methods of the embedded %s hide the other fields of %s: give the embedded field a name", embedded, t)
	}
	return nil
}

func (e *encoder) marshal(m marshaler, v any) error {
	start := len(e.buf)
	switch m {
	case msgpackMarshaler:
		data, err := v.(Marshaler).MarshalMsgpack() //nolint:errcheck // checked by marshalerOf
		if err != nil {
			return err
		}
		e.buf = append(e.buf, data...)
	case binaryMarshaler:
		data, err := v.(encoding.BinaryMarshaler).MarshalBinary() //nolint:errcheck // checked by marshalerOf
		if err != nil {
			return err
		}
		if data == nil {
			data = []byte{} // nil would be read as a zero value
		}
		return e.mp.EncodeBytes(data)
	case textMarshaler:
		data, err := v.(encoding.TextMarshaler).MarshalText() //nolint:errcheck // checked by marshalerOf
		if err != nil {
			return err
		}
		return e.mp.EncodeString(string(data))
	case noMarshaler:
	}
	end, err := skip(e.buf, start, maxDepth-e.depth)
	if err != nil {
		return err
	}
	if end != len(e.buf) {
		return errors.New("the encoder wrote more than one value")
	}
	e.cost += costSlice(end-start, 1)
	return nil
}

// unmarshal passes the data of exactly one value to the decoding method of v.
func (d *decoder) unmarshal(m marshaler, v reflect.Value) error {
	to := v.Addr().Interface()
	if m == binaryMarshaler || m == textMarshaler {
		t := d.next()
		if t.kind != kindString && t.kind != kindBinary {
			return d.mismatch(t, v)
		}
		if m == binaryMarshaler {
			return broken(to.(encoding.BinaryUnmarshaler).UnmarshalBinary(d.body(t))) //nolint:errcheck // checked by marshalerOf
		}
		return broken(to.(encoding.TextUnmarshaler).UnmarshalText(d.body(t))) //nolint:errcheck // checked by marshalerOf
	}
	data, err := d.value()
	if err != nil {
		return err
	}
	if err := d.alloc(costSlice(len(data), 1)); err != nil {
		return err
	}
	return broken(to.(Unmarshaler).UnmarshalMsgpack(bytes.Clone(data))) //nolint:errcheck // checked by marshalerOf
}

// broken wraps the error of a decoding method in ErrMalformed.
func broken(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}
