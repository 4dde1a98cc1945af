// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/refold-io/refold/identity"
)

// The first byte of what is encoded: the version of the format.
const (
	versionValue = 0x01
	versionDelta = 0x41
)

// nodeTable collects the nodes of a value, sorted.
type nodeTable struct {
	nodes []member
	last  int
}

func (t *nodeTable) add(n member) {
	if t.last < len(t.nodes) && t.nodes[t.last] == n {
		return
	}
	i, found := slices.BinarySearchFunc(t.nodes, n, compareMembers)
	if !found {
		t.nodes = slices.Insert(t.nodes, i, n)
	}
	t.last = i
}

func (t *nodeTable) vector(v vector) {
	for _, d := range v {
		t.add(d.node)
	}
}

// all returns the nodes.
func (t *nodeTable) all() []identity.Node {
	nodes := make([]identity.Node, len(t.nodes))
	for i, m := range t.nodes {
		nodes[i] = m.Value()
	}
	return nodes
}

// index returns the place of a node that was added.
func (t *nodeTable) index(n member) uint64 {
	if t.last >= len(t.nodes) || t.nodes[t.last] != n {
		t.last, _ = slices.BinarySearchFunc(t.nodes, n, compareMembers)
	}
	return uint64(t.last) //nolint:gosec // not negative
}

// encoder appends a value. The error of a user's type waits for the end.
type encoder struct {
	dst   []byte
	nodes nodeTable
	few   [4]member // where those are, if they are few
	err   error
}

func appendBinary(dst []byte, version byte, v interface {
	shape() shape
	eachNode(t *nodeTable)
	encode(e *encoder)
},
) ([]byte, error) {
	if n := v.shape().depth(); n > maxDepth {
		return nil, fmt.Errorf("%w: types in types, %d levels, at most %d are allowed", ErrLimit, n, maxDepth)
	}
	start := len(dst)
	e := &encoder{dst: append(dst, version)}
	e.nodes.nodes = e.few[:0]
	e.shape(v.shape())
	v.eachNode(&e.nodes)
	e.uint(uint64(len(e.nodes.nodes)))
	for _, m := range e.nodes.nodes {
		n := m.Value()
		e.text(n.Name)
		e.dst = binary.LittleEndian.AppendUint64(e.dst, n.UID)
	}
	v.encode(e)
	if e.err != nil {
		return nil, e.err
	}
	if n := len(e.dst) - start; n > MaxSize {
		return nil, fmt.Errorf("%w: %v of %d bytes, at most %d are allowed", ErrLimit, v.shape(), n, MaxSize)
	}
	if n := len(e.nodes.nodes); n > MaxNodes {
		return nil, fmt.Errorf("%w: %v with %d nodes, at most %d are allowed", ErrLimit, v.shape(), n, MaxNodes)
	}
	return e.dst, nil
}

func (e *encoder) uint(u uint64) { e.dst = binary.AppendUvarint(e.dst, u) }

func (e *encoder) count(n int) { e.uint(uint64(n)) } //nolint:gosec // not negative

func (e *encoder) text(s string) {
	e.count(len(s))
	e.dst = append(e.dst, s...)
}

func (e *encoder) bytes(b []byte) {
	e.count(len(b))
	e.dst = append(e.dst, b...)
}

func (e *encoder) shape(s shape) {
	e.dst = append(e.dst, byte(s.kind))
	if s.kind.hasElements() {
		e.dst = append(e.dst, byte(s.elem))
	}
	switch {
	case s.kind == kindOwn:
		e.text(s.own.name)
	case s.of != nil:
		e.shape(*s.of)
	}
}

func (e *encoder) dot(d dot) {
	e.uint(e.nodes.index(d.node))
	e.uint(d.n)
}

func (e *encoder) vector(v vector) {
	e.count(len(v))
	for _, d := range v {
		e.dot(d)
	}
}

// dots is vector with less for a single one, which is what elements have.
func (e *encoder) dots(v vector) {
	if len(v) == 1 {
		e.uint(e.nodes.index(v[0].node) << 1)
		e.uint(v[0].n)
		return
	}
	e.uint(uint64(len(v))<<1 | 1)
	for _, d := range v {
		e.dot(d)
	}
}
