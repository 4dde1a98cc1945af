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
)

// decoder takes bytes apart. After the first error it returns zeroes. It accepts
// only what the encoder writes, so that a value has one form.
type decoder struct {
	b      []byte
	err    error
	types  *Types
	nodes  []nodeRef
	used   []bool
	inline struct { // where those are, if they are few
		nodes [4]nodeRef
		used  [4]bool
	}
}

// begin reads what every value and delta begins with.
func (t *Types) begin(data []byte, version byte) (*decoder, shape, error) {
	if len(data) > MaxSize {
		return nil, shape{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrLimit, len(data), MaxSize)
	}
	d := &decoder{b: data, types: t}
	if v := d.byte("version"); v != version {
		d.fail("version %#x, want %#x", v, version)
	}
	s := d.shape(maxDepth)
	n := d.count(MaxNodes, 10, "nodes")
	d.nodes, d.used = d.inline.nodes[:0], d.inline.used[:0]
	var last identity.Node
	for i := range n {
		node := d.node()
		if i > 0 && last.Compare(node) >= 0 {
			d.fail("nodes are not in order")
		}
		if d.err != nil {
			break
		}
		d.nodes = append(d.nodes, refOf(node))
		last = node
	}
	d.used = append(d.used, make([]bool, len(d.nodes))...)
	return d, s, d.err
}

// end returns the first error, or that something is left over.
func (d *decoder) end() error {
	if len(d.b) > 0 {
		d.fail("%d bytes are left over", len(d.b))
	}
	for i, used := range d.used {
		if !used {
			d.fail("node %v does not occur", d.nodes[i].Value())
		}
	}
	return d.err
}

func (d *decoder) fail(format string, args ...any) {
	d.failed(fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...)))
}

func (d *decoder) failed(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) byte(what string) byte {
	if len(d.b) == 0 {
		d.fail("%s is missing", what)
		return 0
	}
	b := d.b[0]
	d.b = d.b[1:]
	return b
}

func (d *decoder) uint(most uint64, what string) uint64 {
	u, n := binary.Uvarint(d.b)
	switch {
	case n <= 0 || n > 1 && d.b[n-1] == 0:
		d.fail("%s is missing or not in its shortest form", what)
		return 0
	case u > most:
		d.fail("%s is %d, at most %d is allowed", what, u, most)
		return 0
	}
	d.b = d.b[n:]
	return u
}

// count reads how many things of at least size bytes follow.
func (d *decoder) count(most, size int, what string) int {
	n := int(d.uint(uint64(most), what)) //nolint:gosec // at most most, which is not negative
	if n*size > len(d.b) {
		d.fail("%d %s don't fit into %d bytes", n, what, len(d.b))
		return 0
	}
	return n
}

// bytes reads a length and as many bytes, which are not copied.
func (d *decoder) bytes(most int, what string) []byte {
	n := d.count(most, 1, what)
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) node() identity.Node {
	name := string(d.bytes(identity.MaxNameLength, "name of a node"))
	if len(d.b) < 8 {
		d.fail("a UID is missing")
		return identity.Node{}
	}
	uid := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	if err := identity.CheckName(name); err != nil || uid == 0 {
		d.fail("node %.20q can't be", name)
	}
	return identity.Node{Name: name, UID: uid}
}

// member reads the place of a node. NeedsFullState the last one, it is in order.
func (d *decoder) nodeRef(i uint64) nodeRef {
	if i >= uint64(len(d.nodes)) {
		d.fail("node %d of %d", i, len(d.nodes))
		return nodeRef{}
	}
	d.used[i] = true
	return d.nodes[i]
}

// some reads n dots in order.
func (d *decoder) dotList(n int) vector {
	if n == 0 || d.err != nil {
		return nil
	}
	v := make(vector, 0, n)
	least := uint64(0)
	for range n {
		i := d.uint(math.MaxInt64, "node")
		if i < least {
			d.fail("dots are not in order")
		}
		least = i + 1
		v = append(v, dot{d.nodeRef(i), d.version()})
		if d.err != nil {
			return nil
		}
	}
	return v
}

// version reads the number of a change.
func (d *decoder) version() uint64 {
	u := d.uint(math.MaxInt64, "version")
	if u == 0 {
		d.fail("a version is 0")
	}
	return u
}

func (d *decoder) vector() vector { return d.dotList(d.count(MaxNodes, 2, "versions")) }

func (d *decoder) dots() dots {
	u := d.uint(math.MaxInt64, "dots")
	if u&1 == 0 {
		one := dot{d.nodeRef(u >> 1), d.version()}
		if d.err != nil {
			return dots{}
		}
		return dots{one: [1]dot{one}}
	}
	n := int(min(u>>1, MaxNodes+1))
	if n == 1 || n > MaxNodes || 2*n > len(d.b) {
		d.fail("%d dots", u>>1)
		return dots{}
	}
	return dotsOf(d.dotList(n))
}

// element reads an element. NeedsFullState the last one, it is in order.
func (d *decoder) element(k elementKind, after []byte, first bool) string {
	return string(d.elementBytes(k, after, first))
}

// elementBytes is element without a copy.
func (d *decoder) elementBytes(k elementKind, after []byte, first bool) []byte {
	b := d.bytes(MaxElement, "element")
	if d.err != nil {
		return nil
	}
	if !k.isPlain(b) {
		if err := checkElement(k, string(b)); err != nil {
			d.failed(err)
		}
	}
	if !first && bytes.Compare(b, after) <= 0 {
		d.fail("elements are not in order")
	}
	return b
}

// items reads a sorted list of elements with something behind each. An element
// with it has at least size bytes.
func items[V any](d *decoder, k elementKind, size int, read func() V) tree[V] {
	n := d.count(MaxSize, size, "elements")
	if d.err != nil {
		return tree[V]{}
	}
	b := builder[V]{left: n}
	var last []byte
	for i := range n {
		key := d.elementBytes(k, last, i == 0)
		if d.err != nil {
			return tree[V]{}
		}
		val := read()
		if d.err != nil {
			return tree[V]{}
		}
		if n == 1 { // as in most deltas
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
	s := shape{kind: kind(d.byte("type"))}
	if depth == 0 {
		d.failed(fmt.Errorf("%w: types in types, more than %d levels", ErrLimit, maxDepth))
	}
	if d.err != nil || s.kind == 0 || s.kind > kindCustom {
		d.fail("type %d is unknown", s.kind)
		return s
	}
	if s.kind.hasElements() {
		s.elem = elementKind(d.byte("type of elements"))
		if s.elem == 0 || s.elem > elementAny {
			d.fail("type of elements %d is unknown", s.elem)
			return s
		}
	}
	switch {
	case s.kind == kindCustom:
		name := string(d.bytes(maxName, "name of a type"))
		if d.err != nil {
			return s
		}
		if s.custom = d.types.named(name); s.custom == nil {
			d.failed(fmt.Errorf("%w: %.80q", ErrUndefined, name))
		}
	case s.kind.isMap():
		of := d.shape(depth - 1)
		s.of = &of
		if d.err == nil && !s.fits() {
			d.fail("%v can't be", s)
		}
	}
	return s
}

// fits reports whether a map's values are of a type that such maps have.
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

// value reads a value of a shape.
func (d *decoder) value(s shape) core {
	switch s.kind {
	case kindGCounter:
		return &gcounter{tallies: d.tallies()}
	case kindPNCounter:
		return &pncounter{up: d.tallies(), down: d.tallies()}
	case kindGSet:
		return &gset{elem: s.elem, items: items(d, s.elem, 2, func() struct{} { return struct{}{} })}
	case kindORSet:
		return d.orset(s.elem)
	case kindFlag:
		return d.flag()
	case kindRegister:
		return d.register(s.elem)
	case kindVersions:
		return &versions{d.vector()}
	case kindCustom:
		return d.customValue(s.custom)
	case kindMap, kindMultiMap, kindMultiMapDeltas, kindCounterMap, kindRegisterMap:
	}
	return d.ormap(s)
}

// The first byte of what is encoded: the version of the format.
const (
	versionValue = 0x01
	versionDelta = 0x41
)

// nodeTable collects the nodes of a value, sorted.
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

// all returns the nodes.
func (t *nodeTable) all() []identity.Node {
	nodes := make([]identity.Node, len(t.nodes))
	for i, m := range t.nodes {
		nodes[i] = m.Value()
	}
	return nodes
}

// index returns the place of a node that was added.
func (t *nodeTable) index(n nodeRef) uint64 {
	if t.last >= len(t.nodes) || t.nodes[t.last] != n {
		t.last, _ = slices.BinarySearchFunc(t.nodes, n, compareRefs)
	}
	return uint64(t.last) //nolint:gosec // not negative
}

// encoder appends a value. The error of a user's type waits for the end.
type encoder struct {
	dst    []byte
	nodes  nodeTable
	inline [4]nodeRef // where those are, if they are few
	err    error
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
	case s.kind == kindCustom:
		e.text(s.custom.name)
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
