// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
)

func encodeBool(e *encoder, v reflect.Value) error    { return e.mp.EncodeBool(v.Bool()) }
func encodeInt(e *encoder, v reflect.Value) error     { return e.mp.EncodeInt(v.Int()) }
func encodeUint(e *encoder, v reflect.Value) error    { return e.mp.EncodeUint(v.Uint()) }
func encodeFloat32(e *encoder, v reflect.Value) error { return e.mp.EncodeFloat32(float32(v.Float())) }
func encodeFloat64(e *encoder, v reflect.Value) error { return e.mp.EncodeFloat64(v.Float()) }

func encodeString(e *encoder, v reflect.Value) error {
	e.cost += costNew(uintptr(v.Len()))
	return e.mp.EncodeString(v.String())
}

func encodeTime(e *encoder, v reflect.Value) error {
	if v.CanAddr() { // avoids a copy
		return e.mp.EncodeTime(*v.Addr().Interface().(*time.Time)) //nolint:errcheck // v is a time.Time
	}
	return e.mp.EncodeTime(v.Interface().(time.Time)) //nolint:errcheck // v is a time.Time
}

func decodeBool(d *decoder, v reflect.Value) error {
	t := d.next()
	if t.kind != kindBool {
		return d.mismatch(t, v)
	}
	v.SetBool(t.bits != 0)
	return nil
}

func decodeInt(d *decoder, v reflect.Value) error {
	t := d.next()
	i := int64(t.bits) //nolint:gosec // checked below
	switch {
	case t.kind != kindInt && t.kind != kindUint:
		return d.mismatch(t, v)
	case t.kind == kindUint && i < 0:
		return overflow(strconv.FormatUint(t.bits, 10), v)
	case v.OverflowInt(i):
		return overflow(strconv.FormatInt(i, 10), v)
	}
	v.SetInt(i)
	return nil
}

func decodeUint(d *decoder, v reflect.Value) error {
	t := d.next()
	switch {
	case t.kind == kindInt:
		return overflow(strconv.FormatInt(int64(t.bits), 10), v) //nolint:gosec // bits holds an int64
	case t.kind != kindUint:
		return d.mismatch(t, v)
	case v.OverflowUint(t.bits):
		return overflow(strconv.FormatUint(t.bits, 10), v)
	}
	v.SetUint(t.bits)
	return nil
}

// decodeFloat also accepts integers, so that the type of a field can change from an integer to a
// float.
func decodeFloat(d *decoder, v reflect.Value) error {
	t := d.next()
	switch t.kind {
	case kindFloat64:
		f := math.Float64frombits(t.bits)
		if v.OverflowFloat(f) {
			return overflow(strconv.FormatFloat(f, 'g', -1, 64), v)
		}
		v.SetFloat(f)
	case kindFloat32:
		v.SetFloat(float64(math.Float32frombits(uint32(t.bits)))) //nolint:gosec // it has 32 bits
	case kindUint:
		v.SetFloat(float64(t.bits))
	case kindInt:
		v.SetFloat(float64(int64(t.bits))) //nolint:gosec // bits holds an int64
	default:
		return d.mismatch(t, v)
	}
	return nil
}

func overflow(number string, v reflect.Value) error {
	return fmt.Errorf("%w: %s overflows %s", ErrMalformed, number, v.Type())
}

func decodeString(d *decoder, v reflect.Value) error {
	t := d.next()
	if t.kind != kindString && t.kind != kindBinary {
		return d.mismatch(t, v)
	}
	if err := d.alloc(costNew(uintptr(t.size))); err != nil {
		return err
	}
	v.SetString(string(d.body(t)))
	return nil
}

func decodeTime(d *decoder, v reflect.Value) error {
	t := d.next()
	tm, ok := d.time(t)
	if !ok {
		return d.mismatch(t, v)
	}
	*v.Addr().Interface().(*time.Time) = tm //nolint:errcheck // v is a time.Time
	return nil
}

// time reads the timestamp with head t, in UTC.
func (d *decoder) time(t token) (time.Time, bool) {
	if !isTime(t) {
		return time.Time{}, false
	}
	b := d.body(t)
	var sec, nsec int64
	switch len(b) {
	case 4:
		sec = int64(binary.BigEndian.Uint32(b))
	case 8:
		u := binary.BigEndian.Uint64(b)
		sec, nsec = int64(u&(1<<34-1)), int64(u>>34)
	case 12:
		nsec = int64(binary.BigEndian.Uint32(b))
		sec = int64(binary.BigEndian.Uint64(b[4:])) //nolint:gosec // two's complement
	}
	return time.Unix(sec, nsec).UTC(), true
}

// isTime reports whether t is a timestamp extension of one of the three sizes.
func isTime(t token) bool {
	return t.kind == kindExt && t.bits == 0xff && (t.size == 4 || t.size == 8 || t.size == 12)
}

func encodeBytes(e *encoder, v reflect.Value) error {
	if v.IsNil() {
		return e.mp.EncodeNil()
	}
	e.cost += costSlice(v.Len(), 1)
	return e.mp.EncodeBytes(v.Bytes())
}

func decodeBytes(d *decoder, v reflect.Value) error {
	t := d.next()
	if t.kind != kindString && t.kind != kindBinary {
		return d.mismatch(t, v)
	}
	if err := d.alloc(costSlice(t.size, 1)); err != nil {
		return err
	}
	v.SetBytes(bytes.Clone(d.body(t)))
	return nil
}
