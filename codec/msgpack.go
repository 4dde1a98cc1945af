// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// maxKept is the largest buffer that an encoder keeps for its next use.
const maxKept = 64 << 10

// encoder writes one value into a buffer. The encoder walks the value and calls mp for each token,
// and mp writes the bytes of the token into the encoder.
type encoder struct {
	buf   []byte
	mp    *msgpack.Encoder
	plans *plans
	depth int // arrays and maps around the current value
	cost  int // of decoding the written data
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

// nest is called before the elements of an array or map are written. The caller decrements the
// depth afterwards.
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
		e = &encoder{plans: ps}
		e.mp = msgpack.NewEncoder(e)
		e.mp.UseCompactInts(true)
	}
	e.buf, e.depth, e.cost, e.boxed, e.spans = e.buf[:0], 0, 0, false, e.spans[:0]
	return e
}

// encode returns the encoded form of v in a new slice. The type of v must be that of the plan.
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
	if err == nil && e.cost > costLimit(len(e.buf)) {
		err = errBudget(len(e.buf))
	}
	if err == nil {
		data = make([]byte, len(e.buf))
		copy(data, e.buf)
	}
	if cap(e.buf) <= maxKept && cap(e.sort) <= maxKept && cap(e.spans) <= maxKept/8 {
		ps.encoders.Put(e)
	}
	return data, err
}

// decoder reads one value from data that Check has accepted, so the decoder does not check lengths
// and depths again. Decoded values do not refer to data.
type decoder struct {
	data   []byte
	pos    int
	budget int // remaining allocation limit
}

func (d *decoder) next() token {
	t, pos := scan(d.data, d.pos)
	d.pos = pos
	return t
}

// nil reads a nil if it is the next value.
func (d *decoder) nil() bool {
	if d.data[d.pos] != 0xc0 {
		return false
	}
	d.pos++
	return true
}

// body reads the bytes after the head of a string, binary data or an extension. They are valid
// until data changes.
func (d *decoder) body(t token) []byte {
	b := d.data[d.pos : d.pos+t.size : d.pos+t.size]
	d.pos += t.size
	return b
}

// value reads a complete value. The returned bytes are valid until data changes.
func (d *decoder) value() ([]byte, error) {
	end, err := skip(d.data, d.pos, maxDepth)
	if err != nil {
		return nil, err
	}
	b := d.data[d.pos:end:end]
	d.pos = end
	return b, nil
}

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

func (ps *plans) decode(p *plan, data []byte) (any, error) {
	ptr := p.scratch.Get()
	v := reflect.ValueOf(ptr).Elem()
	if err := ps.decodeInto(p, data, v); err != nil {
		return nil, err // partial results are dropped with the scratch value
	}
	out := v.Interface()
	v.SetZero()
	p.scratch.Put(ptr)
	return out, nil
}

func (ps *plans) decodeInto(p *plan, data []byte, v reflect.Value) error {
	err := check(data)
	if err != nil {
		return err
	}
	d, ok := ps.decoders.Get().(*decoder)
	if !ok {
		d = &decoder{}
	}
	d.data, d.pos, d.budget = data, 0, costLimit(len(data))
	if err = d.alloc(costNew(p.typ.Size())); err == nil {
		err = p.read(d, v)
	}
	d.data = nil
	ps.decoders.Put(d)
	return err
}

// The memory for decoding is limited to costPerByte for each byte of data plus costFree. The
// decoder subtracts the cost of each allocation from this budget before it allocates. The encoder
// adds up the same costs, so it rejects a value that the decoder would reject.
const (
	costPerByte = 64
	costFree    = 1<<20 - 1<<16 // the rest of 1 MiB covers allocations that are not counted
)

// costLimit returns the maximum cost of decoding the given number of bytes.
func costLimit(size int) int { return costPerByte*size + costFree }

// costNew returns the cost of an allocation of the given size, including the rounding of the
// allocator.
func costNew(size uintptr) int {
	if size == 0 {
		return 0
	}
	if size > math.MaxInt/4 {
		return math.MaxInt / 4
	}
	return int(size + size/4 + 8)
}

// costSlice returns the cost of a non-nil slice.
func costSlice(n int, elem uintptr) int {
	return 32 + costArray(n, elem)
}

// costArray returns the cost of allocating n elements together.
func costArray(n int, elem uintptr) int {
	hi, size := bits.Mul(uint(n), uint(elem))
	if hi > 0 {
		return math.MaxInt / 4
	}
	return costNew(uintptr(size))
}

// costMap returns the cost of creating and filling a map. Go keeps entries in groups of eight and
// allocates more groups than needed, up to twice as many after a table was full. Large keys and
// elements are stored outside of the groups.
func costMap(n int, key, elem uintptr) int {
	cost := 48 + costNew(key) + costNew(elem) // the map and one decoded entry
	if key > 128 {
		cost += costArray(n, key+key/4+8)
		key = 8
	}
	if elem > 128 {
		cost += costArray(n, elem+elem/4+8)
		elem = 8
	}
	slots := 8
	if n > 8 {
		slots = 4 * n
	}
	return cost + costArray(slots, slotSize(key, elem)+1)
}

// slotSize returns the aligned size of an entry in a group. An element of size zero occupies space,
// too.
func slotSize(key, elem uintptr) uintptr { return (key + max(elem, 1) + 7) &^ 7 }

func errBudget(size int) error {
	return fmt.Errorf("%w: %d bytes of data would take more than %d in memory", ErrLimit, size, costLimit(size))
}
