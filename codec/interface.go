// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
)

// encodeInterface writes the value of an interface without the type of the value. The types of the
// decoded values are those of decodeInterface.
func encodeInterface(e *encoder, v reflect.Value) error {
	if v.IsNil() {
		return e.mp.EncodeNil()
	}
	v = v.Elem()
	p, err := e.plans.compile(v.Type())
	if err != nil {
		return err
	}
	if e.boxed {
		return p.encode(e, v)
	}
	start, cost := len(e.buf), e.cost
	e.boxed = true
	if err = p.encode(e, v); err != nil {
		return err
	}
	e.boxed = false
	e.cost = cost
	_, err = e.checkBoxed(start)
	return err
}

// checkBoxed checks that decodeInterface can read the well-formed value at pos, and adds the cost
// of that read.
func (e *encoder) checkBoxed(pos int) (int, error) {
	t, pos := scan(e.buf, pos)
	e.cost += costBoxed(t)
	var err error
	switch t.kind {
	case kindString, kindBinary:
		return pos + t.size, nil
	case kindExt:
		if !isTime(t) {
			return 0, errExt(t)
		}
		return pos + t.size, nil
	case kindArray:
		for range t.size {
			if pos, err = e.checkBoxed(pos); err != nil {
				return 0, err
			}
		}
	case kindMap:
		first, _ := scan(e.buf, pos)
		for range t.size {
			key, _ := scan(e.buf, pos)
			if err = checkBoxedKey(first, key); err != nil {
				return 0, err
			}
			for range 2 {
				if pos, err = e.checkBoxed(pos); err != nil {
					return 0, err
				}
			}
		}
	default:
	}
	return pos, nil
}

// checkBoxedKey checks a key of a map in an interface. Keys must be comparable, and either all keys
// of a map or none are strings.
func checkBoxedKey(first, key token) error {
	if key.kind == kindArray || key.kind == kindMap || key.kind == kindBinary {
		return fmt.Errorf("%w: %s is the key of a map in an interface", ErrMalformed, key.kind)
	}
	if (key.kind == kindString) != (first.kind == kindString) {
		return fmt.Errorf("%w: a map in an interface has both string keys and other keys", ErrMalformed)
	}
	return nil
}

func errExt(t token) error {
	return fmt.Errorf("%w: an extension of type %d in an interface", ErrMalformed, int8(t.bits)) //nolint:gosec // bits holds an int8
}

// costBoxed returns the cost of reading a value into an interface, without its elements.
func costBoxed(t token) int {
	switch t.kind {
	case kindInt, kindUint, kindFloat32, kindFloat64:
		return 8
	case kindString:
		return 16 + costNew(uintptr(t.size))
	case kindBinary:
		return costSlice(t.size, 1)
	case kindExt:
		return 32
	case kindArray:
		return costSlice(t.size, 16)
	case kindMap:
		return costMap(t.size, 16, 16)
	default:
	}
	return 0
}

func decodeInterface(d *decoder, v reflect.Value) error {
	x, err := d.boxed()
	if err != nil {
		return err
	}
	if x == nil {
		v.SetZero()
	} else {
		v.Set(reflect.ValueOf(x))
	}
	return nil
}

func (d *decoder) boxed() (any, error) {
	t := d.next()
	if err := d.alloc(costBoxed(t)); err != nil {
		return nil, err
	}
	switch t.kind {
	case kindBool:
		return t.bits != 0, nil
	case kindInt:
		return int64(t.bits), nil //nolint:gosec // bits holds an int64
	case kindUint:
		if t.bits > math.MaxInt64 {
			return t.bits, nil
		}
		return int64(t.bits), nil
	case kindFloat32:
		return math.Float32frombits(uint32(t.bits)), nil //nolint:gosec // it has 32 bits
	case kindFloat64:
		return math.Float64frombits(t.bits), nil
	case kindString:
		return string(d.body(t)), nil
	case kindBinary:
		return bytes.Clone(d.body(t)), nil
	case kindExt:
		tm, ok := d.time(t)
		if !ok {
			return nil, errExt(t)
		}
		return tm, nil
	case kindArray:
		return d.boxedSlice(t.size)
	case kindMap:
		return d.boxedMap(t.size)
	case kindNil, kindInvalid:
	}
	return nil, nil
}

func (d *decoder) boxedSlice(n int) (any, error) {
	out := make([]any, n)
	for i := range out {
		var err error
		if out[i], err = d.boxed(); err != nil {
			return nil, atIndex(i, err)
		}
	}
	return out, nil
}

// boxedMap reads a map[string]any if the first key is a string or the map is empty, otherwise a
// map[any]any.
func (d *decoder) boxedMap(n int) (any, error) {
	first, _ := scan(d.data, d.pos)
	if n == 0 || first.kind == kindString {
		out := make(map[string]any, n)
		err := d.boxedEntries(n, first, func(k, v any) { out[k.(string)] = v }) //nolint:errcheck // checked
		return out, err
	}
	out := make(map[any]any, n)
	err := d.boxedEntries(n, first, func(k, v any) { out[k] = v })
	return out, err
}

func (d *decoder) boxedEntries(n int, first token, put func(k, v any)) error {
	for range n {
		key, _ := scan(d.data, d.pos)
		if err := checkBoxedKey(first, key); err != nil {
			return err
		}
		k, err := d.boxed()
		if err != nil {
			return at("[key]", err)
		}
		v, err := d.boxed()
		if err != nil {
			return atKey(k, err)
		}
		put(k, v)
	}
	return nil
}
