// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

// decoder reads an encoded value or delta. After the first error all methods return zero values. It
// accepts only canonical data, that is data that the encoder could have written.
type decoder struct {
	wire.Reader

	types  *Types
	nodes  []nodeRef
	used   []bool
	inline struct { // backing arrays of nodes and used for small values
		nodes [4]nodeRef
		used  [4]bool
	}
}

// begin reads the header that all values and deltas share: version, type and node table.
func (t *Types) begin(data []byte, version byte) (*decoder, shape, error) {
	if len(data) > MaxSize {
		return nil, shape{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrLimit, len(data), MaxSize)
	}
	if len(data) > 0 && data[0] != version {
		return nil, shape{}, fmt.Errorf("%w: version %#x, want %#x", ErrMalformed, data[0], version)
	}
	d := &decoder{Reader: *wire.NewReader(data, version, MaxSize, ErrMalformed), types: t}
	s := d.shape(maxDepth)
	n := d.Count(MaxNodes, 10, "nodes")
	d.nodes, d.used = d.inline.nodes[:0], d.inline.used[:0]
	var last identity.Node
	for i := range n {
		name := string(d.Text(identity.MaxNameLength, "name of a node"))
		node := d.Checked(identity.Node{Name: name, UID: d.UID()})
		if i > 0 && last.Compare(node) >= 0 {
			d.Fail("nodes are not in order")
		}
		if d.Err() != nil {
			break
		}
		d.nodes = append(d.nodes, refOf(node))
		last = node
	}
	d.used = append(d.used, make([]bool, len(d.nodes))...)
	return d, s, d.Err()
}

// end returns the first error. Unread bytes and unused nodes are errors.
func (d *decoder) end() error {
	for i, used := range d.used {
		if !used {
			d.Fail("node %v is not referenced", d.nodes[i].Value())
		}
	}
	return d.End()
}

func (d *decoder) nodeRef(i uint64) nodeRef {
	if i >= uint64(len(d.nodes)) {
		d.Fail("node index %d, the table has %d", i, len(d.nodes))
		return nodeRef{}
	}
	d.used[i] = true
	return d.nodes[i]
}

// byNode reads n elements, which must be sorted by node. read decodes an element after its node.
func byNode[T any](d *decoder, n int, subject string, read func(node nodeRef) T) []T {
	if n == 0 || d.Err() != nil {
		return nil
	}
	list := make([]T, 0, n)
	least := uint64(0)
	for range n {
		i := d.Uint(math.MaxInt64, "node")
		if i < least {
			d.Fail("%s are not in order", subject)
		}
		least = i + 1
		list = append(list, read(d.nodeRef(i)))
		if d.Err() != nil {
			return nil
		}
	}
	return list
}

func (d *decoder) dotList(n int) vector {
	return byNode(d, n, "dots", func(node nodeRef) dot { return dot{node, d.version()} })
}

func (d *decoder) version() uint64 {
	u := d.Uint(math.MaxInt64, "version")
	if u == 0 {
		d.Fail("a version is 0")
	}
	return u
}

func (d *decoder) vector() vector { return d.dotList(d.Count(MaxNodes, 2, "versions")) }

func (d *decoder) dots() dots {
	u := d.Uint(math.MaxInt64, "dots")
	if u&1 == 0 {
		one := dot{d.nodeRef(u >> 1), d.version()}
		if d.Err() != nil {
			return dots{}
		}
		return dots{one: [1]dot{one}}
	}
	n := int(min(u>>1, MaxNodes+1))
	if n == 1 || n > MaxNodes || 2*n > d.Left() {
		d.Fail("invalid number of dots: %d", u>>1)
		return dots{}
	}
	return dotsOf(d.dotList(n))
}

func (d *decoder) element(k elementKind) []byte {
	return d.checked(k, d.Text(MaxElement, "element"))
}

func (d *decoder) checked(k elementKind, b []byte) []byte {
	if d.Err() != nil {
		return nil
	}
	if len(b) > 0 && (b[0] == tagString || b[0] == tagBytes) && k.accepts(b[0]) {
		return b // any content is well-formed
	}
	if err := checkElement(k, string(b)); err != nil {
		d.SetErr(err)
	}
	return b
}

// items reads a sorted list of elements. read decodes the value after each element. An element and
// its value have at least size bytes together.
func items[V any](d *decoder, k elementKind, size int, read func() V) tree[V] {
	n := d.Count(MaxSize, size, "elements")
	if d.Err() != nil {
		return tree[V]{}
	}
	b := builder[V]{left: n}
	var last []byte
	for i := range n {
		key := d.element(k)
		if i > 0 && bytes.Compare(key, last) <= 0 {
			d.Fail("elements are not in order")
		}
		if d.Err() != nil {
			return tree[V]{}
		}
		val := read()
		if d.Err() != nil {
			return tree[V]{}
		}
		if n == 1 { // most deltas have one element
			return tree[V]{}.set(string(key), val)
		}
		b.keys.text = append(b.keys.text, key...)
		b.keys.end()
		b.addVal(val)
		last = key
	}
	return b.tree()
}

func (d *decoder) shape(depth int) shape {
	s := shape{kind: kind(d.Byte("type"))}
	if depth == 0 {
		d.SetErr(fmt.Errorf("%w: types are nested more than %d levels deep", ErrLimit, maxDepth))
	}
	if d.Err() != nil || s.kind == 0 || s.kind > kindCustom {
		d.Fail("unknown type %d", s.kind)
		return s
	}
	if s.kind.hasElements() {
		s.elem = elementKind(d.Byte("type of elements"))
		if s.elem == 0 || s.elem > elementAny {
			d.Fail("unknown element type %d", s.elem)
			return s
		}
	}
	if s.kind == kindCustom {
		name := string(d.Text(maxName, "type name"))
		if d.Err() != nil {
			return s
		}
		if s.custom = d.types.named(name); s.custom == nil {
			d.SetErr(fmt.Errorf("%w: %.80q", ErrUndefined, name))
		}
	} else if s.kind.isMap() {
		of := d.shape(depth - 1)
		s.of = &of
		if d.Err() == nil && !s.fits() {
			d.Fail("invalid type %v", s)
		}
	}
	return s
}

// fits reports whether a map of this kind can hold values of the shape's value type.
func (s shape) fits() bool {
	switch s.kind {
	case kindMultiMap, kindMultiMapDeltas:
		return s.of.kind == kindORSet
	case kindCounterMap:
		return s.of.kind == kindPNCounter
	case kindRegisterMap:
		return s.of.kind == kindRegister
	default:
		return true
	}
}

func (d *decoder) value(s shape) core {
	c := s.empty()
	c.decode(d)
	return c
}

// The first byte of encoded data is the version of the format.
const (
	versionValue = 0x01
	versionDelta = 0x41
)

// nodeTable is the sorted list of the nodes that a value refers to.
type nodeTable struct {
	nodes []nodeRef
	last  int
}

func (t *nodeTable) add(n nodeRef) {
	if t.last < len(t.nodes) && t.nodes[t.last] == n {
		return
	}
	i, found := slices.BinarySearchFunc(t.nodes, n, compareRefs)
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

func (t *nodeTable) all() []identity.Node {
	nodes := make([]identity.Node, len(t.nodes))
	for i, m := range t.nodes {
		nodes[i] = m.Value()
	}
	return nodes
}

func (t *nodeTable) index(n nodeRef) uint64 {
	if t.last >= len(t.nodes) || t.nodes[t.last] != n {
		t.last, _ = slices.BinarySearchFunc(t.nodes, n, compareRefs)
	}
	return uint64(t.last) //nolint:gosec // not negative
}

// encoder appends an encoded value. An error of a user's type is kept until the end.
type encoder struct {
	dst    []byte
	nodes  nodeTable
	inline [4]nodeRef // backing array of the node table for small values
	err    error
}

func appendBinary(dst []byte, version byte, v interface {
	shape() shape
	eachNode(t *nodeTable)
	encode(e *encoder)
},
) ([]byte, error) {
	if n := v.shape().depth(); n > maxDepth {
		return nil, fmt.Errorf("%w: types are nested %d levels deep, at most %d are allowed", ErrLimit, n, maxDepth)
	}
	start := len(dst)
	e := &encoder{dst: append(dst, version)}
	e.nodes.nodes = e.inline[:0]
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
		return nil, fmt.Errorf("%w: %v has %d bytes, at most %d are allowed", ErrLimit, v.shape(), n, MaxSize)
	}
	if n := len(e.nodes.nodes); n > MaxNodes {
		return nil, fmt.Errorf("%w: %v has %d nodes, at most %d are allowed", ErrLimit, v.shape(), n, MaxNodes)
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
	if s.kind == kindCustom {
		e.text(s.custom.name)
	} else if s.of != nil {
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

// dots encodes a single dot, the usual case, with fewer bytes than vector.
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
