// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// maxKept is the largest buffer that an encoder keeps for its next use.
const maxKept = 64 << 10

// encoder writes one value into a buffer. It walks the value, and leaves the
// form of each token to mp, which writes into the encoder.
type encoder struct {
	buf   []byte
	mp    *msgpack.Encoder
	plans *plans
	depth int // arrays and maps around the current value
	cost  int // what it will cost to read this
	boxed bool
	spans []span
	sort  []byte
}

// Write is called by mp.
func (e *encoder) Write(p []byte) (int, error) {
	e.buf = append(e.buf, p...)
	return len(p), nil
}

// WriteByte is called by mp.
func (e *encoder) WriteByte(c byte) error {
	e.buf = append(e.buf, c)
	return nil
}

// reset makes mp write into e, whatever it was used for before.
func (e *encoder) reset() {
	e.mp.Reset(e)
	e.mp.UseCompactInts(true)
	e.mp.SetSortMapKeys(true)
	e.mp.SetCustomStructTag(structTag)
}

// nest is called before the elements of an array or map are written, and the
// depth is lowered again behind them.
func (e *encoder) nest() error {
	if e.depth == maxDepth {
		return errDepth()
	}
	e.depth++
	return nil
}

func (ps *plans) encoder() *encoder {
	e, ok := ps.encoders.Get().(*encoder)
	if !ok {
		e = &encoder{mp: msgpack.NewEncoder(nil), plans: ps}
		e.reset()
	}
	e.buf, e.depth, e.cost, e.boxed, e.spans = e.buf[:0], 0, 0, false, e.spans[:0]
	return e
}

// encode returns v, whose type is that of the plan, in a new slice.
func (ps *plans) encode(p *plan, v reflect.Value) (data []byte, err error) {
	e := ps.encoder()
	e.cost = costNew(p.typ.Size())
	if p.needsAddr && !v.CanAddr() {
		ptr := p.scratch.Get()
		addressable := reflect.ValueOf(ptr).Elem()
		addressable.Set(v)
		err = p.encode(e, addressable)
		addressable.SetZero()
		p.scratch.Put(ptr)
	} else {
		err = p.encode(e, v)
	}
	if err != nil {
		e.reset() // an encoder of the user's may have left it anyhow
	} else if e.cost > costLimit(len(e.buf)) {
		err = errBudget(len(e.buf))
	} else {
		data = make([]byte, len(e.buf))
		copy(data, e.buf)
	}
	if cap(e.buf) <= maxKept && cap(e.sort) <= maxKept && cap(e.spans) <= maxKept/8 {
		ps.encoders.Put(e)
	}
	return data, err
}
