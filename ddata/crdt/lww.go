// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"cmp"
	"encoding/binary"
	"iter"
	"strings"

	"github.com/refold-io/refold/identity"
)

// LWWRegister holds one value, the last one written: the value with the highest timestamp. If
// timestamps are equal, the value of the lowest node wins. Use a register where the choice between
// concurrent writes does not matter, or where timestamps come from a source that orders writes
// correctly. The zero value is unset. It is immutable.
//
// Clocks of nodes differ and may jump. A write of a node whose clock is ahead wins over later
// writes of other nodes. With DefaultClock, a write always wins over the value that the writing
// node had read before.
//
// V is an element type as described at GSet.
type LWWRegister[V any] struct{ handle[LWWRegister[V]] }

// Clock returns the timestamp for writing a value to a register. current is the present timestamp
// of the register, 0 if the register is unset. The highest timestamp wins. DefaultClock and
// ReverseClock are clocks; another clock may return version numbers from a database. A node must
// never use one timestamp for two different values.
type Clock[V any] func(self *Self, current int64, value V) (int64, error)

// DefaultClock returns the time in Unix milliseconds, raised above the current timestamp and above
// all timestamps that this node has returned before: the last write wins. It returns ErrClock if
// the current timestamp is the highest possible one.
func DefaultClock[V any](self *Self, current int64, _ V) (int64, error) { return self.after(current) }

// ReverseClock returns the negative time in Unix milliseconds: the first write wins.
func ReverseClock[V any](self *Self, current int64, _ V) (int64, error) { return self.before(current) }

func (LWWRegister[V]) empty(*Types) shape {
	return shape{kind: kindRegister, elem: kindOf[V]()}
}

func (r LWWRegister[V]) core() *register { return coreOf[*register](r.handle) }

// Set returns the register with a value, timestamped by DefaultClock. The error matches ErrElement,
// ErrLimit or ErrClock.
func (r LWWRegister[V]) Set(self *Self, value V) (LWWRegister[V], error) {
	return r.SetBy(self, value, DefaultClock[V])
}

// SetBy is Set with a clock. A nil clock is DefaultClock.
func (r LWWRegister[V]) SetBy(self *Self, value V, clock Clock[V]) (LWWRegister[V], error) {
	c, err := setRegister(r.core(), self, value, clock, r.types)
	if err != nil {
		return r, err
	}
	return r.of(c), nil
}

func setRegister[V any](c *register, self *Self, value V, clock Clock[V], types *Types) (*register, error) {
	content, err := encodeElement(value, types)
	if err != nil {
		return nil, err
	}
	if clock == nil {
		clock = DefaultClock[V]
	}
	t, err := clock(self, c.time, value)
	if err != nil {
		return nil, err
	}
	return &register{elem: c.elem, time: t, node: self.ref, content: content}, nil
}

// IsSet reports whether the register holds a value.
func (r LWWRegister[V]) IsSet() bool { return r.core().content != "" }

// Value returns the value of the register, or the zero value if it is unset. The error matches
// ErrElement if the value does not fit V or its type is not registered.
func (r LWWRegister[V]) Value() (V, error) { return registerValue[V](r.core(), r.types) }

func registerValue[V any](c *register, types *Types) (v V, err error) {
	if c.content == "" {
		return v, nil
	}
	return decodeElement[V](c.content, types)
}

// Timestamp returns the timestamp of the value, 0 if the register is unset.
func (r LWWRegister[V]) Timestamp() int64 { return r.core().time }

// UpdatedBy returns the node that has written the value.
func (r LWWRegister[V]) UpdatedBy() identity.Node { return nodeOf(r.core().node) }

type register struct {
	noHistory
	noDeltas
	elem    elementKind
	time    int64
	node    nodeRef
	content string // an encoded element, empty if unset
}

func (r *register) resetDelta() core { return r }
func (r *register) shape() shape     { return shape{kind: kindRegister, elem: r.elem} }

func (r *register) merge(other core) (core, error) {
	if o, ok := other.(*register); ok && o.wins(r) {
		return o, nil
	}
	return r, nil
}

// wins reports whether r replaces other: by the higher timestamp, then the lower node, then the
// bytes, so that all nodes choose the same value.
func (r *register) wins(other *register) bool {
	if r.content == "" || other.content == "" {
		return other.content == "" && r.content != ""
	}
	return cmp.Or(cmp.Compare(r.time, other.time), compareRefs(other.node, r.node), strings.Compare(other.content, r.content)) > 0
}

func (r *register) eachNode(t *nodeTable) {
	if r.content != "" {
		t.add(r.node)
	}
}

func (r *register) encode(e *encoder) {
	e.text(r.content)
	if r.content != "" {
		e.dst = binary.AppendVarint(e.dst, r.time)
		e.uint(e.nodes.index(r.node))
	}
}

func (r *register) decode(d *decoder) {
	b := d.Text(MaxElement, "element")
	if len(b) == 0 {
		return
	}
	r.content = string(d.checked(r.elem, b))
	u := d.Uint(1<<64-1, "timestamp")
	r.time = int64(u>>1) ^ -int64(u&1)
	r.node = d.nodeRef(d.Uint(MaxNodes, "node"))
}

// LWWMap is a map from keys to values in which the last write of a key wins: an ORMap of
// LWWRegisters. A key that is removed and concurrently written stays. The zero value is empty. It
// is immutable.
//
// K and V are element types as described at GSet.
type LWWMap[K, V any] struct{ keyed[LWWMap[K, V], K] }

func (LWWMap[K, V]) empty(*Types) shape {
	return shape{kind: kindRegisterMap, elem: kindOf[K](), of: &shape{kind: kindRegister, elem: kindOf[V]()}}
}

// Put returns the map with a value, timestamped by DefaultClock. The error matches ErrElement,
// ErrLimit or ErrClock.
func (m LWWMap[K, V]) Put(self *Self, key K, value V) (LWWMap[K, V], error) {
	return m.PutBy(self, key, value, DefaultClock[V])
}

// PutBy is Put with a clock. A nil clock is DefaultClock.
func (m LWWMap[K, V]) PutBy(self *Self, key K, value V, clock Clock[V]) (LWWMap[K, V], error) {
	c, k, err := m.entry(key)
	if err != nil {
		return m, err
	}
	r, _ := c.valueOrEmpty(k).(*register)
	if r, err = setRegister(r, self, value, clock, m.types); err != nil {
		return m, err
	}
	return m.of(c.put(self, k, r)), nil
}

// Get returns the value of a key, and whether the key exists. The error matches ErrElement if the
// value does not fit V or its type is not registered.
func (m LWWMap[K, V]) Get(key K) (V, bool, error) {
	var none V
	c, k, err := m.entry(key)
	if err != nil {
		return none, false, err
	}
	held, _ := c.get(k)
	r, ok := held.(*register)
	if !ok {
		return none, false, nil
	}
	v, err := registerValue[V](r, m.types)
	return v, err == nil, err
}

// All yields the keys with their values, with the order and errors of ORMap.All.
func (m LWWMap[K, V]) All() iter.Seq2[Entry[K, V], error] {
	return entries(m.keyed, func(v core) (V, error) {
		r, _ := v.(*register)
		return registerValue[V](r, m.types)
	})
}
