// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

// cursor walks through a tree.
type cursor[V any] struct {
	stack []step[V]
	leaf  *node[V]
	at    int // the current item of it
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
	for n.kids != nil {
		c.stack = append(c.stack, step[V]{n, 1})
		n = n.kids[0]
	}
	c.leaf, c.at = n, 0
}

// item returns the current key and its value, nil at the end.
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
		if top.next == len(top.node.kids) {
			c.stack = c.stack[:len(c.stack)-1]
			continue
		}
		kid := top.node.kids[top.next]
		top.next++
		c.descend(kid)
	}
}

// mergeTrees returns what keep makes of the items of two trees, key by key; an
// item that is on one side only comes with nil for the other. The third result
// of keep tells whether the item is the one of a: if all are, a itself is
// returned.
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
