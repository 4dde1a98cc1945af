// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"cmp"
	"encoding/binary"
	"strings"

	"github.com/refold-io/refold/identity"
)

// LWWRegister holds one value, the one that was written last: that with the
// highest timestamp, by the lowest node if they are equal. It is for where the
// choice between concurrent writes does not matter, or the timestamps come from
// somewhere that makes it right. The zero value holds nothing. It is immutable.
//
// The clocks of nodes differ, and may jump: a write of a node whose clock is ahead
// wins over later ones of the others. A node that writes after it has read a value
// always wins over that value.
//
// V is as E for GSet.
type LWWRegister[V any] struct{ handle[LWWRegister[V]] }

// Clock returns the timestamp of a value that is written to a register whose
// timestamp is current, 0 if it holds nothing. The highest one wins. DefaultClock
// and ReverseClock are two; a version number from a database makes another. It
// must not be one that another value has by the same node.
type Clock[V any] func(self *Self, current int64, value V) (int64, error)

// DefaultClock is the time in Unix milliseconds, more if that is needed to be above
// the current timestamp and those that this node has given before: the last write
// wins. The error is ErrClock: the current timestamp is the highest there is.
func DefaultClock[V any](self *Self, current int64, _ V) (int64, error) { return self.after(current) }

// ReverseClock is the time in negative Unix milliseconds: the first write wins.
func ReverseClock[V any](self *Self, current int64, _ V) (int64, error) { return self.before(current) }

func (LWWRegister[V]) empty(*Types) shape {
	return shape{kind: kindRegister, elem: kindOf[V]()}
}

func (r LWWRegister[V]) core() *register {
	if c, ok := r.v.(*register); ok {
		return c
	}
	return &register{elem: kindOf[V]()}
}

// Set returns the register with a value, by the DefaultClock. The error matches
// ErrElement, ErrLimit or ErrClock.
func (r LWWRegister[V]) Set(self *Self, value V) (LWWRegister[V], error) {
	return r.SetBy(self, value, DefaultClock[V])
}

// SetBy returns the register with a value, by a clock. A nil clock is the
// DefaultClock.
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

// IsSet reports whether the register holds something.
func (r LWWRegister[V]) IsSet() bool { return r.core().content != "" }

// Value returns what the register holds, the zero value if that is nothing. The
// error matches ErrElement: it does not fit V, or its type has no name here.
func (r LWWRegister[V]) Value() (V, error) { return registerValue[V](r.core(), r.types) }

func registerValue[V any](c *register, types *Types) (v V, err error) {
	if c.content == "" {
		return v, nil
	}
	return decodeElement[V](c.content, types)
}

// Timestamp returns the timestamp of what the register holds, 0 if that is
// nothing.
func (r LWWRegister[V]) Timestamp() int64 { return r.core().time }

// UpdatedBy returns the node that has written what the register holds.
func (r LWWRegister[V]) UpdatedBy() identity.Node { return nodeOf(r.core().node) }

// register is the value of an LWWRegister.
type register struct {
	noHistory
	elem    elementKind
	time    int64
	node    nodeRef
	content string // an encoded element, empty if there is none
}

func (r *register) changes() change                           { return nil }
func (r *register) resetDelta() core                          { return r }
func (r *register) applyDelta(d change) (core, error)         { return nil, wrongType(r.shape(), d) }
func (r *register) pruned(*Self, identity.Node) (core, error) { return r, nil }
func (r *register) cleaned(identity.Node) (core, error)       { return r, nil }
func (r *register) shape() shape                              { return shape{kind: kindRegister, elem: r.elem} }

func (r *register) merge(other core) (core, error) {
	o, err := same(r, other)
	if err != nil {
		return nil, err
	}
	if o.wins(r) {
		return o, nil
	}
	return r, nil
}

// wins reports whether it replaces another content: by the higher timestamp, the
// lower node, and at last by its bytes, so that all nodes choose the same.
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

func (d *decoder) register(k elementKind) *register {
	r := &register{elem: k}
	if len(d.b) > 0 && d.b[0] == 0 {
		d.byte("value")
		return r
	}
	r.content = d.element(k, nil, true)
	u := d.uint(1<<64-1, "timestamp")
	r.time = int64(u>>1) ^ -int64(u&1)
	r.node = d.nodeRef(d.uint(MaxNodes, "node"))
	return r
}
