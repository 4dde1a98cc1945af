// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"iter"
	"slices"
)

// tree is a sorted map from encoded elements that is never changed: what looks
// like a change copies the path to a leaf and shares the rest. The zero value is
// empty.
type tree[V any] struct {
	root *node[V]
	n    int
}

type item[V any] struct {
	key string
	val V
}

// node is a leaf with values, or has kids. All leaves are equally deep. Keys are apart from values, so that they need not be copied
// where a value is replaced.
type node[V any] struct {
	keys []string // those of the values; or keys[i] is above all of kids[i], and not above any of kids[i+1]
	vals []V
	kids []*node[V]
}

const (
	fullNode = 16 // a larger node is split: each change copies one of each level
	slimNode = 4  // a smaller one is joined with a neighbour, if they fit
)

func (n *node[V]) len() int { return len(n.vals) + len(n.kids) }

// kid returns which kid is responsible for a key.
func (n *node[V]) kid(key string) int {
	i, found := slices.BinarySearch(n.keys, key)
	if found {
		return i + 1
	}
	return i
}

// find returns the value of a key, nil if it is not there.
func (t tree[V]) find(key string) *V {
	n := t.root
	if n == nil {
		return nil
	}
	for n.kids != nil {
		n = n.kids[n.kid(key)]
	}
	if i, found := slices.BinarySearch(n.keys, key); found {
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
			key  [1]string
			val  [1]V
		}{key: [1]string{key}, val: [1]V{val}}
		made.leaf.keys, made.leaf.vals = made.key[:], made.val[:]
		return tree[V]{root: &made.leaf, n: 1}
	}
	left, right, sep, added := t.root.set(key, val)
	if right != nil {
		left = &node[V]{keys: []string{sep}, kids: []*node[V]{left, right}}
	}
	if added {
		t.n++
	}
	return tree[V]{root: left, n: t.n}
}

func (n *node[V]) set(key string, val V) (left, right *node[V], sep string, added bool) {
	if n.kids == nil {
		i, found := slices.BinarySearch(n.keys, key)
		if found {
			next := &node[V]{keys: n.keys, vals: slices.Clone(n.vals)}
			next.vals[i] = val
			return next, nil, "", false
		}
		next := &node[V]{keys: inserted(n.keys, i, key), vals: inserted(n.vals, i, val)}
		if len(next.vals) <= fullNode {
			return next, nil, "", true
		}
		half := len(next.vals) / 2
		left = &node[V]{keys: slices.Clone(next.keys[:half]), vals: slices.Clone(next.vals[:half])}
		right = &node[V]{keys: slices.Clone(next.keys[half:]), vals: slices.Clone(next.vals[half:])}
		return left, right, next.keys[half], true
	}
	i := n.kid(key)
	left, right, sep, added = n.kids[i].set(key, val)
	next := &node[V]{keys: n.keys, kids: slices.Clone(n.kids)}
	next.kids[i] = left
	if right == nil {
		return next, nil, "", added
	}
	next.keys = inserted(next.keys, i, sep)
	next.kids = inserted(next.kids, i+1, right)
	if len(next.kids) <= fullNode {
		return next, nil, "", added
	}
	half := len(next.kids) / 2
	left = &node[V]{keys: slices.Clone(next.keys[:half-1]), kids: slices.Clone(next.kids[:half])}
	right = &node[V]{keys: slices.Clone(next.keys[half:]), kids: slices.Clone(next.kids[half:])}
	return left, right, next.keys[half-1], added
}

func inserted[T any](s []T, i int, v T) []T {
	next := make([]T, 0, len(s)+1)
	return append(append(append(next, s[:i]...), v), s[i:]...)
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
	for root != nil && len(root.kids) == 1 {
		root = root.kids[0]
	}
	return tree[V]{root: root, n: t.n - 1}
}

// delete removes a key that is there. It returns nil if nothing is left.
func (n *node[V]) delete(key string) *node[V] {
	if n.kids == nil {
		if len(n.vals) == 1 {
			return nil
		}
		i, _ := slices.BinarySearch(n.keys, key)
		return &node[V]{keys: deleted(n.keys, i), vals: deleted(n.vals, i)}
	}
	i := n.kid(key)
	kid := n.kids[i].delete(key)
	if kid == nil {
		if len(n.kids) == 1 {
			return nil
		}
		return &node[V]{keys: deleted(n.keys, max(0, i-1)), kids: deleted(n.kids, i)}
	}
	next := &node[V]{keys: n.keys, kids: slices.Clone(n.kids)}
	next.kids[i] = kid
	if kid.len() < slimNode && len(n.kids) > 1 {
		next.join(max(0, i-1))
	}
	return next
}

// join makes one kid of two neighbours, if they fit.
func (n *node[V]) join(i int) {
	a, b := n.kids[i], n.kids[i+1]
	if a.len()+b.len() > fullNode {
		return
	}
	both := &node[V]{keys: slices.Concat(a.keys, b.keys), vals: slices.Concat(a.vals, b.vals)}
	if a.kids != nil {
		both = &node[V]{keys: slices.Concat(a.keys, n.keys[i:i+1], b.keys), kids: slices.Concat(a.kids, b.kids)}
	}
	n.keys, n.kids = deleted(n.keys, i), deleted(n.kids, i)
	n.kids[i] = both
}

// all yields the items in order.
func (t tree[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if t.root != nil {
			t.root.all(yield)
		}
	}
}

func (n *node[V]) all(yield func(string, V) bool) bool {
	for i := range n.vals {
		if !yield(n.keys[i], n.vals[i]) {
			return false
		}
	}
	for _, kid := range n.kids {
		if !kid.all(yield) {
			return false
		}
	}
	return true
}

// leafPart is how full the nodes of a new tree are.
const leafPart = fullNode * 3 / 4

// treeOf makes a tree of items that are sorted by their distinct keys.
func treeOf[V any](items []item[V]) tree[V] {
	b := builder[V]{left: len(items)}
	for i := range items {
		b.add(items[i])
	}
	return b.tree()
}

// builder makes a tree of items, which are added sorted by their distinct keys.
type builder[V any] struct {
	left   int // how many items are to come
	n      int
	leaves []*node[V]
}

func (b *builder[V]) add(i item[V]) {
	if b.n%leafPart == 0 {
		size := min(leafPart, b.left)
		b.leaves = append(b.leaves, &node[V]{keys: make([]string, 0, size), vals: make([]V, 0, size)})
	}
	leaf := b.leaves[len(b.leaves)-1]
	leaf.keys, leaf.vals = append(leaf.keys, i.key), append(leaf.vals, i.val)
	b.n++
	b.left--
}

// tree returns the tree.
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
		lows[i] = leaf.keys[0]
	}
	for len(level) > 1 {
		var above []*node[V]
		var lowsAbove []string
		for i := 0; i < len(level); i += leafPart {
			end := min(i+leafPart, len(level))
			above = append(above, &node[V]{keys: slices.Clone(lows[i+1 : end]), kids: slices.Clone(level[i:end])})
			lowsAbove = append(lowsAbove, lows[i])
		}
		level, lows = above, lowsAbove
	}
	return tree[V]{root: level[0], n: b.n}
}
