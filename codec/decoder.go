// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// decoder reads one value from data that check has found well-formed, so that
// it need not look at lengths and depths again. What it has read keeps no
// reference to data.
type decoder struct {
	data   []byte
	pos    int
	budget int // what may still be allocated
	mp     *msgpack.Decoder
	reader bytes.Reader
}

// next reads the head of a value.
func (d *decoder) next() token {
	t, pos := scan(d.data, d.pos)
	d.pos = pos
	return t
}

// nil reads a nil, if that is what comes next.
func (d *decoder) nil() bool {
	if d.data[d.pos] != 0xc0 {
		return false
	}
	d.pos++
	return true
}

// body reads what follows the head of a string, binary data or an extension.
// It is valid as long as data is.
func (d *decoder) body(t token) []byte {
	b := d.data[d.pos : d.pos+t.size : d.pos+t.size]
	d.pos += t.size
	return b
}

// value reads a whole value. It is valid as long as data is.
func (d *decoder) value() ([]byte, error) {
	end, err := skip(d.data, d.pos, maxDepth)
	if err != nil {
		return nil, err
	}
	b := d.data[d.pos:end:end]
	d.pos = end
	return b, nil
}

// alloc is called before memory is allocated.
func (d *decoder) alloc(cost int) error {
	d.budget -= cost
	if d.budget < 0 {
		return errBudget(len(d.data))
	}
	return nil
}

func (d *decoder) mismatch(t token, v reflect.Value) error {
	return fmt.Errorf("%w: %s, want %s", ErrMalformed, t.kind, v.Type())
}

// decode reads a value of the plan's type.
func (ps *plans) decode(p *plan, data []byte) (any, error) {
	ptr := p.scratch.Get()
	v := reflect.ValueOf(ptr).Elem()
	if err := ps.decodeInto(p, data, v); err != nil {
		return nil, err // what was read so far goes with the scratch
	}
	out := v.Interface()
	v.SetZero()
	p.scratch.Put(ptr)
	return out, nil
}

// decodeInto reads a value of the plan's type into v.
func (ps *plans) decodeInto(p *plan, data []byte, v reflect.Value) error {
	err := check(data)
	if err != nil {
		return err
	}
	d, ok := ps.decoders.Get().(*decoder)
	if !ok {
		d = &decoder{mp: msgpack.NewDecoder(nil)}
	}
	d.data, d.pos, d.budget = data, 0, costLimit(len(data))
	if err = d.alloc(costNew(p.typ.Size())); err == nil {
		err = p.decode(d, v)
	}
	d.data = nil
	d.reader.Reset(nil)
	ps.decoders.Put(d)
	return err
}
