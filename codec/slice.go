// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"reflect"
)

func (c *compiler) slice(p *plan) error {
	elem, err := c.plan(p.typ.Elem())
	if err != nil {
		return at("[]", err)
	}
	if isByte(p.typ.Elem()) {
		p.encode, p.decode = encodeBytes, decodeBytes
		return nil
	}
	size := p.typ.Elem().Size()
	p.encode = func(e *encoder, v reflect.Value) error {
		if v.IsNil() {
			return e.mp.EncodeNil()
		}
		e.cost += costSlice(v.Len(), size)
		return encodeElements(e, elem, v)
	}
	p.decode = func(d *decoder, v reflect.Value) error {
		t := d.next()
		v.SetZero() // do not overwrite a slice of the caller
		switch t.kind {
		case kindArray:
		case kindNil:
			return nil
		default:
			return d.mismatch(t, v)
		}
		if err := d.alloc(costSlice(t.size, size)); err != nil {
			return err
		}
		if t.size == 0 {
			v.Set(reflect.MakeSlice(p.typ, 0, 0))
			return nil
		}
		v.Grow(t.size)
		v.SetLen(t.size)
		return decodeElements(d, elem, v, t.size)
	}
	return nil
}

// isByte reports whether slices of t are stored as binary data: t is a byte type without a
// marshaler.
func isByte(t reflect.Type) bool {
	return t.Kind() == reflect.Uint8 && marshalerOf(t) == noMarshaler
}

func (c *compiler) array(p *plan) error {
	elem, err := c.plan(p.typ.Elem())
	if err != nil {
		return at("[]", err)
	}
	if isByte(p.typ.Elem()) {
		p.encode, p.decode, p.needsAddr = encodeByteArray, decodeByteArray, true
		return nil
	}
	p.needsAddr = elem.needsAddr
	p.encode = func(e *encoder, v reflect.Value) error { return encodeElements(e, elem, v) }
	p.decode = func(d *decoder, v reflect.Value) error {
		t := d.next()
		switch {
		case t.kind == kindNil:
			return nil
		case t.kind != kindArray:
			return d.mismatch(t, v)
		case t.size > v.Len():
			return fmt.Errorf("%w: %d elements, want at most %d", ErrMalformed, t.size, v.Len())
		}
		return decodeElements(d, elem, v, t.size)
	}
	return nil
}

func encodeElements(e *encoder, elem *plan, v reflect.Value) error {
	n := v.Len()
	if err := e.nest(); err != nil {
		return err
	}
	if err := e.mp.EncodeArrayLen(n); err != nil {
		return err
	}
	for i := range n {
		if err := elem.encode(e, v.Index(i)); err != nil {
			return atIndex(i, err)
		}
	}
	e.depth--
	return nil
}

func decodeElements(d *decoder, elem *plan, v reflect.Value, n int) error {
	for i := range n {
		if err := elem.decode(d, v.Index(i)); err != nil {
			return atIndex(i, err)
		}
	}
	return nil
}

func encodeByteArray(e *encoder, v reflect.Value) error {
	return e.mp.EncodeBytes(addressable(v).Bytes())
}

func decodeByteArray(d *decoder, v reflect.Value) error {
	t := d.next()
	switch {
	case t.kind == kindNil:
		return nil
	case t.kind != kindString && t.kind != kindBinary:
		return d.mismatch(t, v)
	case t.size > v.Len():
		return fmt.Errorf("%w: %d bytes, want at most %d", ErrMalformed, t.size, v.Len())
	}
	copy(v.Bytes(), d.body(t))
	return nil
}

// addressable returns v, or a copy of it that is addressable.
func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}
