// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"encoding/binary"
	"iter"
	"slices"
	"strings"
)

// tree is an immutable sorted map (a B+ tree) keyed by encoded elements. A change copies the path
// to one leaf and shares all other nodes. The zero value is empty.
type tree[V any] struct {
	root *node[V]
	n    int
}

type item[V any] struct {
	key string
	val V
}

// node is a leaf with values, or an inner node with children. All leaves have the same depth. Keys
// are stored apart from values, so that replacing a value does not copy the keys.
type node[V any] struct {
	keys     packedStrings // keys of the values; in an inner node, key i separates children i and i+1
	vals     []V
	children []*node[V]
}

const (
	fullNode = 16 // a larger node is split; each change copies one node per level
	minNode  = 4  // a smaller node is joined with a neighbour if both fit into one
	// maxKeyBytes is the maximum total size of the keys of a leaf in bytes, because inserting a key copies all keys. A leaf with a single key may exceed the limit.
	maxKeyBytes = 4 << 10
)

func (n *node[V]) len() int { return len(n.vals) + len(n.children) }

func (n *node[V]) key(i int) string { return n.keys.at(i, len(n.vals)) }

func (n *node[V]) childFor(key string) int {
	i, found := n.keys.search(key, len(n.children)-1)
	if found {
		return i + 1
	}
	return i
}

// find returns a pointer to the value of a key, or nil if the key is missing.
func (t tree[V]) find(key string) *V {
	n := t.root
	if n == nil {
		return nil
	}
	for n.children != nil {
		n = n.children[n.childFor(key)]
	}
	if i, found := n.keys.search(key, len(n.vals)); found {
		return &n.vals[i]
	}
	return nil
}

func (t tree[V]) get(key string) (val V, found bool) {
	if v := t.find(key); v != nil {
		return *v, true
	}
	return val, false
}

func (t tree[V]) has(key string) bool { return t.find(key) != nil }

func (t tree[V]) set(key string, val V) tree[V] {
	if t.root == nil {
		made := &struct {
			leaf node[V]
			val  [1]V
		}{leaf: node[V]{keys: packedStrings(key)}, val: [1]V{val}}
		made.leaf.vals = made.val[:]
		return tree[V]{root: &made.leaf, n: 1}
	}
	left, right, sep, added := t.root.set(key, val)
	if right != nil {
		left = &node[V]{keys: packedStrings(sep), children: []*node[V]{left, right}}
	}
	if added {
		t.n++
	}
	return tree[V]{root: left, n: t.n}
}

func (n *node[V]) set(key string, val V) (left, right *node[V], sep string, added bool) {
	if n.children == nil {
		i, found := n.keys.search(key, len(n.vals))
		if found {
			next := &node[V]{keys: n.keys, vals: slices.Clone(n.vals)}
			next.vals[i] = val
			return next, nil, "", false
		}
		next := &node[V]{keys: n.keys.inserted(i, len(n.vals), key), vals: inserted(n.vals, i, val)}
		left, right, sep = next.split()
		return left, right, sep, true
	}
	i := n.childFor(key)
	left, right, sep, added = n.children[i].set(key, val)
	next := &node[V]{keys: n.keys, children: slices.Clone(n.children)}
	next.children[i] = left
	if right == nil {
		return next, nil, "", added
	}
	next.keys = next.keys.inserted(i, len(n.children)-1, sep)
	next.children = inserted(next.children, i+1, right)
	left, right, sep = next.split()
	return left, right, sep, added
}

// put sets the value of a key if kept is true, and deletes the key if kept is false.
func (t tree[V]) put(key string, val V, kept bool) tree[V] {
	if !kept {
		return t.delete(key)
	}
	return t.set(key, val)
}

// split divides a full node into two and returns the key that separates them.
func (n *node[V]) split() (left, right *node[V], sep string) {
	if n.len() <= fullNode && (len(n.vals) <= 1 || len(n.keys) <= maxKeyBytes) {
		return n, nil, ""
	}
	half := n.len() / 2
	if n.children == nil {
		all := len(n.vals)
		return &node[V]{keys: n.keys.part(0, half, all), vals: slices.Clone(n.vals[:half])},
			&node[V]{keys: n.keys.part(half, all, all), vals: slices.Clone(n.vals[half:])}, n.key(half)
	}
	all := len(n.children) - 1
	return &node[V]{keys: n.keys.part(0, half-1, all), children: slices.Clone(n.children[:half])},
		&node[V]{keys: n.keys.part(half, all, all), children: slices.Clone(n.children[half:])}, n.keys.at(half-1, all)
}

func inserted[T any](s []T, i int, v T) []T { return with(s, i, false, v) }

// with returns a copy of s in which v is inserted before element i, or replaces element i if
// replace is true.
func with[T any](s []T, i int, replace bool, v T) []T {
	next := append(append(make([]T, 0, len(s)+1), s[:i]...), v)
	if replace {
		i++
	}
	return append(next, s[i:]...)
}

func deleted[T any](s []T, i int) []T {
	next := make([]T, 0, len(s)-1)
	return append(append(next, s[:i]...), s[i+1:]...)
}

func (t tree[V]) delete(key string) tree[V] {
	if !t.has(key) {
		return t
	}
	root := t.root.delete(key)
	for root != nil && len(root.children) == 1 {
		root = root.children[0]
	}
	return tree[V]{root: root, n: t.n - 1}
}

// delete removes a key that exists. It returns nil if the node becomes empty.
func (n *node[V]) delete(key string) *node[V] {
	if n.children == nil {
		if len(n.vals) == 1 {
			return nil
		}
		i, _ := n.keys.search(key, len(n.vals))
		return &node[V]{keys: n.keys.deleted(i, len(n.vals)), vals: deleted(n.vals, i)}
	}
	i := n.childFor(key)
	kid := n.children[i].delete(key)
	if kid == nil {
		if len(n.children) == 1 {
			return nil
		}
		return &node[V]{keys: n.keys.deleted(max(0, i-1), len(n.children)-1), children: deleted(n.children, i)}
	}
	next := &node[V]{keys: n.keys, children: slices.Clone(n.children)}
	next.children[i] = kid
	if kid.len() < minNode && len(n.children) > 1 {
		next.join(max(0, i-1))
	}
	return next
}

// join merges the children i and i+1 if they fit into one node.
func (n *node[V]) join(i int) {
	a, b := n.children[i], n.children[i+1]
	if a.len()+b.len() > fullNode {
		return
	}
	all := len(n.children) - 1
	keys := newPacker()
	both := &node[V]{}
	if a.children == nil {
		if len(a.keys)+len(b.keys) > maxKeyBytes/2 {
			return
		}
		keys.addAll(a.keys, 0, len(a.vals), len(a.vals))
		keys.addAll(b.keys, 0, len(b.vals), len(b.vals))
		both.vals = slices.Concat(a.vals, b.vals)
	} else {
		keys.addAll(a.keys, 0, len(a.children)-1, len(a.children)-1)
		keys.add(n.keys.at(i, all))
		keys.addAll(b.keys, 0, len(b.children)-1, len(b.children)-1)
		both.children = slices.Concat(a.children, b.children)
	}
	both.keys = keys.pack()
	n.keys, n.children = n.keys.deleted(i, all), deleted(n.children, i)
	n.children[i] = both
}

func (t tree[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if t.root != nil {
			t.root.all(yield)
		}
	}
}

func (n *node[V]) all(yield func(string, V) bool) bool {
	for i := range n.vals {
		if !yield(n.key(i), n.vals[i]) {
			return false
		}
	}
	for _, kid := range n.children {
		if !kid.all(yield) {
			return false
		}
	}
	return true
}

// newNodeFill is the fill of the nodes of a newly built tree.
const newNodeFill = fullNode * 3 / 4

// treeOf builds a tree from items that are sorted by distinct keys.
func treeOf[V any](items []item[V]) tree[V] {
	b := builder[V]{left: len(items)}
	for i := range items {
		b.keys.add(items[i].key)
		b.addVal(items[i].val)
	}
	return b.tree()
}

// builder builds a tree. Items must be added in ascending order of their keys, and the keys must be distinct.
type builder[V any] struct {
	left   int // number of items to come
	n      int
	keys   packer // keys of the leaf under construction
	vals   []V
	leaves []*node[V]
}

// addVal adds the value of the key that was added last.
func (b *builder[V]) addVal(val V) {
	if b.vals == nil {
		b.vals = make([]V, 0, min(newNodeFill, b.left))
	}
	b.vals = append(b.vals, val)
	b.n++
	b.left--
	if len(b.vals) == newNodeFill || b.left == 0 || len(b.keys.text) > maxKeyBytes/2 {
		b.leaves = append(b.leaves, &node[V]{keys: b.keys.pack(), vals: b.vals})
		b.keys.n, b.keys.text, b.vals = 0, b.keys.text[:0], nil
	}
}

func (b *builder[V]) tree() tree[V] {
	level := b.leaves
	if len(level) == 0 {
		return tree[V]{}
	}
	if len(level) == 1 {
		return tree[V]{root: level[0], n: b.n}
	}
	lows := make([]string, len(level))
	for i, leaf := range level {
		lows[i] = leaf.key(0)
	}
	for len(level) > 1 {
		var above []*node[V]
		var lowsAbove []string
		for i := 0; i < len(level); i += newNodeFill {
			end := min(i+newNodeFill, len(level))
			keys := newPacker()
			for _, low := range lows[i+1 : end] {
				keys.add(low)
			}
			above = append(above, &node[V]{keys: keys.pack(), children: slices.Clone(level[i:end])})
			lowsAbove = append(lowsAbove, lows[i])
		}
		level, lows = above, lowsAbove
	}
	return tree[V]{root: level[0], n: b.n}
}

type cursor[V any] struct {
	stack []step[V]
	leaf  *node[V]
	at    int // index of the current item in the leaf
}

type step[V any] struct {
	node *node[V]
	next int
}

func (t tree[V]) cursor() *cursor[V] {
	c := &cursor[V]{leaf: &node[V]{}}
	if t.root != nil {
		c.descend(t.root)
	}
	return c
}

func (c *cursor[V]) descend(n *node[V]) {
	for n.children != nil {
		c.stack = append(c.stack, step[V]{n, 1})
		n = n.children[0]
	}
	c.leaf, c.at = n, 0
}

// item returns the current key and its value. The value is nil at the end.
func (c *cursor[V]) item() (key string, val *V) {
	if c.at == len(c.leaf.vals) {
		return "", nil
	}
	return c.leaf.key(c.at), &c.leaf.vals[c.at]
}

func (c *cursor[V]) advance() {
	c.at++
	for c.at == len(c.leaf.vals) && len(c.stack) > 0 {
		top := &c.stack[len(c.stack)-1]
		if top.next == len(top.node.children) {
			c.stack = c.stack[:len(c.stack)-1]
			continue
		}
		kid := top.node.children[top.next]
		top.next++
		c.descend(kid)
	}
}

// mergeTrees merges two trees key by key. It calls keep for each key of either tree; the value of a
// tree without the key is nil. keep returns the merged value, whether the key stays, and whether
// the result equals the value of a. If all results equal those of a, mergeTrees returns a itself.
func mergeTrees[V any](a, b tree[V], keep func(key string, a, b *V) (val V, kept, same bool)) tree[V] {
	var items []item[V]
	same := true
	ca, cb := a.cursor(), b.cursor()
	for {
		key, va := ca.item()
		kb, vb := cb.item()
		if va == nil && vb == nil {
			break
		}
		switch {
		case vb == nil || va != nil && key < kb:
			vb = nil
			ca.advance()
		case va == nil || kb < key:
			key, va = kb, nil
			cb.advance()
		default:
			ca.advance()
			cb.advance()
		}
		val, kept, asBefore := keep(key, va, vb)
		if !asBefore {
			same = false
		}
		if kept {
			if items == nil {
				items = make([]item[V], 0, max(a.n, b.n))
			}
			items = append(items, item[V]{key, val})
		}
	}
	if same {
		return a
	}
	return treeOf(items)
}

// packedStrings is a list of strings in one block of memory. Sets of many short elements therefore
// need few allocations, cost the garbage collector little, and have good locality in searches. The
// number of strings is stored elsewhere. The block begins with the start offsets of all strings
// except the first, so a single string is stored as it is.
type packedStrings string

const startSize = 4

func (t packedStrings) at(i, n int) string {
	from, to := startSize*(n-1), len(t)
	if i > 0 {
		from = t.start(i)
	}
	if i+1 < n {
		to = t.start(i + 1)
	}
	return string(t[from:to])
}

func (t packedStrings) start(i int) int {
	b := t[startSize*(i-1):][:startSize]
	return int(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
}

// search returns the index of s among n sorted strings, or where to insert it.
func (t packedStrings) search(s string, n int) (i int, found bool) {
	end := n
	for i < end {
		middle := (i + end) / 2
		switch c := strings.Compare(t.at(middle, n), s); {
		case c == 0:
			return middle, true
		case c < 0:
			i = middle + 1
		default:
			end = middle
		}
	}
	return i, false
}

func (t packedStrings) inserted(i, n int, s string) packedStrings {
	p := newPacker()
	p.addAll(t, 0, i, n)
	p.add(s)
	p.addAll(t, i, n, n)
	return p.pack()
}

func (t packedStrings) deleted(i, n int) packedStrings {
	p := newPacker()
	p.addAll(t, 0, i, n)
	p.addAll(t, i+1, n, n)
	return p.pack()
}

// part returns the strings [from, to) of t, which has n strings.
func (t packedStrings) part(from, to, n int) packedStrings {
	p := newPacker()
	p.addAll(t, from, to, n)
	return p.pack()
}

// packer builds packedStrings of up to fullNode+1 strings.
type packer struct {
	n    int
	ends [fullNode + 1]int
	text []byte
}

// newPacker returns a packer whose buffer stays on the stack for short strings, if the packer does
// not escape.
func newPacker() packer { return packer{text: make([]byte, 0, 384)} }

func (p *packer) add(s string) {
	p.text = append(p.text, s...)
	p.end()
}

// end completes a string whose bytes were appended to text.
func (p *packer) end() {
	p.ends[p.n] = len(p.text)
	p.n++
}

// addAll adds the strings [from, to) of t, which has n strings.
func (p *packer) addAll(t packedStrings, from, to, n int) {
	for i := from; i < to; i++ {
		p.add(t.at(i, n))
	}
}

func (p *packer) pack() packedStrings {
	if p.n < 2 {
		return packedStrings(p.text)
	}
	var b strings.Builder
	head := startSize * (p.n - 1)
	b.Grow(head + len(p.text))
	var start [startSize]byte
	for _, end := range p.ends[:p.n-1] {
		binary.LittleEndian.PutUint32(start[:], uint32(head+end)) //nolint:gosec // at most some elements of MaxElement
		b.Write(start[:])
	}
	b.Write(p.text)
	return packedStrings(b.String())
}
