// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"
)

// plan encodes and decodes the values of one Go type. Its functions refer to the plans of the
// component types, possibly to itself.
type plan struct {
	typ    reflect.Type
	encode func(e *encoder, v reflect.Value) error
	decode func(d *decoder, v reflect.Value) error
	// needsAddr is set if encode requires an addressable value, and copies a value that is not
	// addressable.
	needsAddr bool
	keepsNil  bool // nil leaves the value as it is
	// scratch holds zeroed *T for encoding and decoding.
	scratch sync.Pool
}

// read decodes the next value into v. Nil becomes the zero value, unless the plan keeps the value.
func (p *plan) read(d *decoder, v reflect.Value) error {
	if !d.nil() {
		return p.decode(d, v)
	}
	if !p.keepsNil {
		v.SetZero()
	}
	return nil
}

// plans caches the plans of all types.
type plans struct {
	byType   sync.Map   // reflect.Type to *plan; complete and never changed
	mu       sync.Mutex // one compiler at a time
	encoders sync.Pool
	decoders sync.Pool
}

// compile returns the plan of a type. If values of the type can't be stored, the error has the path
// of the field that prevents it.
func (ps *plans) compile(t reflect.Type) (*plan, error) {
	if p, ok := ps.byType.Load(t); ok {
		return p.(*plan), nil //nolint:errcheck // nothing else is stored
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	c := &compiler{plans: ps, made: map[reflect.Type]*plan{}}
	p, err := c.plan(t)
	if err != nil {
		return nil, err
	}
	for typ, made := range c.made {
		ps.byType.Store(typ, made)
	}
	return p, nil
}

// compiler creates the plans of one type and its component types. They are published together.
// After an error, none is published.
type compiler struct {
	plans *plans
	made  map[reflect.Type]*plan
}

func (c *compiler) plan(t reflect.Type) (*plan, error) {
	if p, ok := c.made[t]; ok {
		return p, nil
	}
	if p, ok := c.plans.byType.Load(t); ok {
		return p.(*plan), nil //nolint:errcheck // nothing else is stored
	}
	p := &plan{typ: t}
	p.scratch.New = func() any { return reflect.New(t).Interface() }
	c.made[t] = p
	if err := c.fill(p); err != nil {
		return nil, err
	}
	return p, nil
}

func (c *compiler) fill(p *plan) error {
	t := p.typ
	if t == reflect.TypeFor[time.Time]() {
		p.encode, p.decode = encodeTime, decodeTime
		return nil
	}
	if done, err := planMarshaler(p); done || err != nil {
		return err
	}
	switch t.Kind() {
	case reflect.Bool:
		p.encode, p.decode = encodeBool, decodeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.encode, p.decode = encodeInt, decodeInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.encode, p.decode = encodeUint, decodeUint
	case reflect.Float32:
		p.encode, p.decode = encodeFloat32, decodeFloat
	case reflect.Float64:
		p.encode, p.decode = encodeFloat64, decodeFloat
	case reflect.String:
		p.encode, p.decode = encodeString, decodeString
	case reflect.Slice:
		return c.slice(p)
	case reflect.Array:
		return c.array(p)
	case reflect.Map:
		return c.mapping(p)
	case reflect.Struct:
		return c.structure(p)
	case reflect.Pointer:
		return c.pointer(p)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%s is an interface with methods: its value can't be decoded", t)
		}
		p.encode, p.decode = encodeInterface, decodeInterface
	default:
		return fmt.Errorf("a %s can't be stored", t)
	}
	return nil
}

func (c *compiler) pointer(p *plan) error {
	if k := p.typ.Elem().Kind(); k == reflect.Pointer || k == reflect.Interface {
		return fmt.Errorf("%s is a pointer to a pointer or interface, which can't be stored", p.typ)
	}
	elem, err := c.plan(p.typ.Elem())
	if err != nil {
		return err
	}
	size := p.typ.Elem().Size()
	p.encode = func(e *encoder, v reflect.Value) error {
		if v.IsNil() {
			return e.mp.EncodeNil()
		}
		e.cost += costNew(size)
		return elem.encode(e, v.Elem())
	}
	p.decode = func(d *decoder, v reflect.Value) error {
		if err := d.alloc(costNew(size)); err != nil {
			return err
		}
		if v.IsNil() {
			v.Set(reflect.New(elem.typ))
		}
		return elem.read(d, v.Elem())
	}
	return nil
}

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
		if t.kind != kindArray {
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
	p.keepsNil = true
	if isByte(p.typ.Elem()) {
		p.encode, p.decode, p.needsAddr = encodeByteArray, decodeByteArray, true
		return nil
	}
	p.needsAddr = elem.needsAddr
	p.encode = func(e *encoder, v reflect.Value) error { return encodeElements(e, elem, v) }
	p.decode = func(d *decoder, v reflect.Value) error {
		t := d.next()
		switch {
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
		if err := elem.read(d, v.Index(i)); err != nil {
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

// span is one entry of a map in the encoder's buffer.
type span struct{ start, keyEnd, end int }

func (c *compiler) mapping(p *plan) error {
	key, err := c.plan(p.typ.Key())
	if err != nil {
		return at("[key]", err)
	}
	elem, err := c.plan(p.typ.Elem())
	if err != nil {
		return at("[]", err)
	}
	m := mapPlan{typ: p.typ, key: key, elem: elem}
	p.encode, p.decode = m.encode, m.decode
	return nil
}

// mapPlan writes maps sorted by the encoded form of their keys.
type mapPlan struct {
	typ       reflect.Type
	key, elem *plan
}

func (m mapPlan) cost(n int) int { return costMap(n, m.typ.Key().Size(), m.typ.Elem().Size()) }

func (m mapPlan) encode(e *encoder, v reflect.Value) error {
	if v.IsNil() {
		return e.mp.EncodeNil()
	}
	n := v.Len()
	e.cost += m.cost(n)
	if err := e.nest(); err != nil {
		return err
	}
	if err := e.mp.EncodeMapLen(n); err != nil {
		return err
	}
	first := len(e.spans)
	if n > 0 {
		if err := m.encodeEntries(e, v); err != nil {
			return err
		}
	}
	if err := e.sortEntries(first); err != nil {
		return err
	}
	e.depth--
	return nil
}

// encodeEntries appends the entries in any order, and a span for each.
func (m mapPlan) encodeEntries(e *encoder, v reflect.Value) error {
	key, elem := reflect.New(m.typ.Key()).Elem(), reflect.New(m.typ.Elem()).Elem()
	for it := v.MapRange(); it.Next(); {
		key.SetIterKey(it)
		elem.SetIterValue(it)
		s := span{start: len(e.buf)}
		if err := m.key.encode(e, key); err != nil {
			return at("[key]", err)
		}
		s.keyEnd = len(e.buf)
		if err := m.elem.encode(e, elem); err != nil {
			return atKey(key.Interface(), err)
		}
		s.end = len(e.buf)
		e.spans = append(e.spans, s)
	}
	return nil
}

// sortEntries sorts the entries of the spans from index first on by their keys, and removes these
// spans. The entries are the last bytes of the buffer.
func (e *encoder) sortEntries(first int) error {
	entries := e.spans[first:]
	e.spans = e.spans[:first]
	if len(entries) < 2 {
		return nil
	}
	start := entries[0].start
	compare := func(a, b span) int {
		return bytes.Compare(e.buf[a.start:a.keyEnd], e.buf[b.start:b.keyEnd])
	}
	sorted := slices.IsSortedFunc(entries, compare)
	if !sorted {
		slices.SortFunc(entries, compare)
	}
	for i, s := range entries[1:] {
		if compare(entries[i], s) == 0 {
			return errors.New("two keys of a map have the same encoded form")
		}
	}
	if !sorted {
		e.sort = e.sort[:0]
		for _, s := range entries {
			e.sort = append(e.sort, e.buf[s.start:s.end]...)
		}
		copy(e.buf[start:], e.sort)
	}
	return nil
}

// atKey puts the key of a map, or the beginning of a long one, before the path of err.
func atKey(key any, err error) error {
	if s, ok := key.(string); ok {
		return at(fmt.Sprintf("[%.40q]", s), err)
	}
	return at(fmt.Sprintf("[%.40s]", fmt.Sprint(key)), err)
}

func (m mapPlan) decode(d *decoder, v reflect.Value) error {
	t := d.next()
	if t.kind != kindMap {
		return d.mismatch(t, v)
	}
	if err := d.alloc(m.cost(t.size)); err != nil {
		return err
	}
	out := reflect.MakeMapWithSize(m.typ, t.size)
	if t.size > 0 {
		if err := m.decodeEntries(d, out, t.size); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

func (m mapPlan) decodeEntries(d *decoder, out reflect.Value, n int) error {
	key, elem := reflect.New(m.typ.Key()).Elem(), reflect.New(m.typ.Elem()).Elem()
	for range n {
		key.SetZero()
		elem.SetZero()
		if err := m.key.read(d, key); err != nil {
			return at("[key]", err)
		}
		if !key.Comparable() {
			return at("[key]", fmt.Errorf("%w: it can't be compared", ErrMalformed))
		}
		if err := m.elem.read(d, elem); err != nil {
			return atKey(key.Interface(), err)
		}
		out.SetMapIndex(key, elem)
	}
	return nil
}
