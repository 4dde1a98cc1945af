// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

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

// sortEntries puts the entries from the given span on, which end the buffer, in order, and forgets
// their spans.
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
	switch t.kind {
	case kindMap:
	case kindNil:
		v.SetZero()
		return nil
	default:
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
		if err := m.key.decode(d, key); err != nil {
			return at("[key]", err)
		}
		if !key.Comparable() {
			return at("[key]", fmt.Errorf("%w: it can't be compared", ErrMalformed))
		}
		if err := m.elem.decode(d, elem); err != nil {
			return atKey(key.Interface(), err)
		}
		out.SetMapIndex(key, elem)
	}
	return nil
}
