// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"iter"
	"slices"
	"strings"
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

// node is a leaf with items, or has kids. All leaves are equally deep.
type node[V any] struct {
	items []item[V]
	kids  []*node[V]
	seps  []string // seps[i] is above all of kids[i], and not above any of kids[i+1]
}

const (
	fullNode = 16 // a larger node is split: each change copies one of each level
	slimNode = 4  // a smaller one is joined with a neighbour, if they fit
)

func (n *node[V]) len() int { return len(n.items) + len(n.kids) }

// kid returns which kid is responsible for a key.
func (n *node[V]) kid(key string) int {
	i, found := slices.BinarySearch(n.seps, key)
	if found {
		return i + 1
	}
	return i
}

func (n *node[V]) search(key string) (int, bool) {
	return slices.BinarySearchFunc(n.items, key, func(i item[V], key string) int { return strings.Compare(i.key, key) })
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
	if i, found := n.search(key); found {
		return &n.items[i].val
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
			one  [1]item[V]
		}{one: [1]item[V]{{key, val}}}
		made.leaf.items = made.one[:]
		return tree[V]{root: &made.leaf, n: 1}
	}
	left, right, sep, added := t.root.set(key, val)
	if right != nil {
		left = &node[V]{kids: []*node[V]{left, right}, seps: []string{sep}}
	}
	if added {
		t.n++
	}
	return tree[V]{root: left, n: t.n}
}

func (n *node[V]) set(key string, val V) (left, right *node[V], sep string, added bool) {
	if n.kids == nil {
		i, found := n.search(key)
		if found {
			items := slices.Clone(n.items)
			items[i].val = val
			return &node[V]{items: items}, nil, "", false
		}
		items := inserted(n.items, i, item[V]{key, val})
		if len(items) <= fullNode {
			return &node[V]{items: items}, nil, "", true
		}
		half := len(items) / 2
		return &node[V]{items: slices.Clone(items[:half])}, &node[V]{items: slices.Clone(items[half:])}, items[half].key, true
	}
	i := n.kid(key)
	left, right, sep, added = n.kids[i].set(key, val)
	next := &node[V]{kids: slices.Clone(n.kids), seps: n.seps}
	next.kids[i] = left
	if right == nil {
		return next, nil, "", added
	}
	next.kids = inserted(next.kids, i+1, right)
	next.seps = inserted(next.seps, i, sep)
	if len(next.kids) <= fullNode {
		return next, nil, "", added
	}
	half := len(next.kids) / 2
	left = &node[V]{kids: slices.Clone(next.kids[:half]), seps: slices.Clone(next.seps[:half-1])}
	right = &node[V]{kids: slices.Clone(next.kids[half:]), seps: slices.Clone(next.seps[half:])}
	return left, right, next.seps[half-1], added
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
		if len(n.items) == 1 {
			return nil
		}
		i, _ := n.search(key)
		return &node[V]{items: deleted(n.items, i)}
	}
	i := n.kid(key)
	kid := n.kids[i].delete(key)
	if kid == nil {
		if len(n.kids) == 1 {
			return nil
		}
		return &node[V]{kids: deleted(n.kids, i), seps: deleted(n.seps, max(0, i-1))}
	}
	next := &node[V]{kids: slices.Clone(n.kids), seps: n.seps}
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
	both := &node[V]{items: slices.Concat(a.items, b.items)}
	if a.kids != nil {
		both = &node[V]{kids: slices.Concat(a.kids, b.kids), seps: slices.Concat(a.seps, n.seps[i:i+1], b.seps)}
	}
	n.kids, n.seps = deleted(n.kids, i), deleted(n.seps, i)
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
	for _, i := range n.items {
		if !yield(i.key, i.val) {
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
		b.leaves = append(b.leaves, &node[V]{items: make([]item[V], 0, min(leafPart, b.left))})
	}
	leaf := b.leaves[len(b.leaves)-1]
	leaf.items = append(leaf.items, i)
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
		lows[i] = leaf.items[0].key
	}
	for len(level) > 1 {
		var above []*node[V]
		var lowsAbove []string
		for i := 0; i < len(level); i += leafPart {
			end := min(i+leafPart, len(level))
			above = append(above, &node[V]{kids: slices.Clone(level[i:end]), seps: slices.Clone(lows[i+1 : end])})
			lowsAbove = append(lowsAbove, lows[i])
		}
		level, lows = above, lowsAbove
	}
	return tree[V]{root: level[0], n: b.n}
}
