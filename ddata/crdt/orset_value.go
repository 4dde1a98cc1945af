// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "github.com/refold-io/refold/identity"

// orset is the value of an ORSet: for each element the changes by which it was
// added, of which there is more than one only when nodes did so at the same time,
// and the changes that were seen at all. An element that is missing though its
// changes were seen was removed.
//
// No dot is above vv. An element without dots is one whose node was cleaned up: it
// stays until a side that has seen more says what became of it.
type orset struct {
	elem  elementKind
	vv    vector
	items tree[vector]
	delta *orsetDelta // nil if there is none
	base  *orset      // what it was when delta was nil, nil if it is
}

// changed returns next as it follows from s by an operation.
func (s *orset) changed(next *orset, op *orsetOp) *orset {
	next.elem = s.elem
	next.delta = s.delta.with(op)
	if next.base = s.base; next.base == nil {
		next.base = s
	}
	return next
}

func (s *orset) add(self *Self, key string) *orset {
	d := self.next()
	dots := vector{d}
	old, _ := s.items.get(key)
	return s.changed(&orset{vv: s.vv.with(d), items: s.items.set(key, dots)}, &orsetOp{
		kind: opAdd, vv: dots,
		// Those of its own are below the new one, which says as much.
		added: tree[addition]{}.set(key, addition{dots, old.without(self.node)}),
	})
}

func (s *orset) remove(self *Self, key string) *orset {
	if !s.items.has(key) {
		return s
	}
	op := &orsetOp{kind: opRemove, key: key, context: s.vv}
	if n := s.vv.of(self.node); n > 0 {
		op.vv = vector{{self.node, n}}
	}
	return s.changed(&orset{vv: s.vv, items: s.items.delete(key)}, op)
}

func (s *orset) clear() *orset {
	if s.items.n == 0 {
		return s
	}
	next := &orset{vv: s.vv}
	return s.changed(next, &orsetOp{kind: opFull, full: &orset{elem: s.elem, vv: s.vv}})
}

func (s *orset) reset() *orset {
	if s.base == nil {
		return s
	}
	return &orset{elem: s.elem, vv: s.vv, items: s.items}
}

// merge is the full merge. It returns s itself if the other side adds nothing.
func (s *orset) mergeSet(o *orset) *orset {
	if o.base == s || o == s {
		return o.reset()
	}
	next := &orset{elem: s.elem, vv: s.vv.max(o.vv)}
	next.items = mergeTrees(s.items, o.items, func(_ string, a, b *vector) (vector, bool, bool) {
		return mergeElement(a, s.vv, b, o.vv)
	})
	if next.items.root == s.items.root && len(next.vv) == len(s.vv) && s.vv.covers(next.vv) {
		return s.reset()
	}
	return next
}

// mergeElement merges an element of two sets, nil where it is missing. It tells
// whether the element stays, and whether that is what a is.
func mergeElement(a *vector, seenA vector, b *vector, seenB vector) (dots vector, kept, same bool) {
	switch {
	case a == nil && b == nil:
		return nil, false, true
	case b == nil:
		dots = a.newer(seenB)
		return dots, len(dots) > 0, len(dots) > 0 && len(dots) == len(*a)
	case a == nil:
		dots = b.newer(seenA)
		return dots, len(dots) > 0, len(dots) == 0
	}
	dots = mergeDots(*a, seenA, *b, seenB)
	// Both without dots: neither has seen what became of the element.
	kept = len(dots) > 0 || len(*a) == 0 && len(*b) == 0
	return dots, kept, kept && dots.equal(*a)
}

// find returns the dots of an element, nil if it is missing.
func (s *orset) find(key string) *vector {
	if dots, found := s.items.get(key); found {
		return &dots
	}
	return nil
}

func (s *orset) resetDelta() core                        { return s.reset() }
func (s *orset) modifiedBy() []identity.Node             { return s.vv.nodes() }
func (s *orset) needsPruning(removed identity.Node) bool { return s.vv.of(removed) > 0 }
func (s *orset) shape() shape                            { return shape{kind: kindORSet, elem: s.elem} }

func (s *orset) merge(other core) (core, error) {
	o, err := same(s, other)
	if err != nil {
		return nil, err
	}
	return s.mergeSet(o), nil
}

func (s *orset) changes() change {
	if s.delta == nil {
		return nil
	}
	return s.delta.of(s.elem)
}

func (s *orset) applyDelta(d change) (core, error) {
	o, err := sameChange[*orsetDelta](s.shape(), d)
	if err != nil {
		return nil, err
	}
	return s.apply(o), nil
}

func (s *orset) pruned(self *Self, removed identity.Node) (core, error) {
	return s.prune(self, removed), nil
}

func (s *orset) prune(self *Self, removed identity.Node) *orset {
	if s.vv.of(removed) == 0 || removed == self.node {
		return s.reset()
	}
	next := &orset{elem: s.elem, vv: s.vv.without(removed), items: s.items}
	for key, dots := range s.items.all() {
		if dots.of(removed) > 0 {
			d := self.next()
			next.items = next.items.set(key, vector{d})
			next.vv = next.vv.with(d)
		}
	}
	next.vv = next.vv.with(self.next())
	return next
}

func (s *orset) cleaned(removed identity.Node) (core, error) { return s.cleanup(removed), nil }

func (s *orset) cleanup(removed identity.Node) *orset {
	if s.vv.of(removed) == 0 {
		return s.reset()
	}
	next := &orset{elem: s.elem, vv: s.vv.without(removed), items: s.items}
	for key, dots := range s.items.all() {
		if dots.of(removed) > 0 {
			next.items = next.items.set(key, dots.without(removed))
		}
	}
	return next
}

func (s *orset) eachNode(t *nodeTable) { t.vector(s.vv) } // no dot is of another

func (s *orset) encode(e *encoder) {
	e.vector(s.vv)
	e.count(s.items.n)
	for key, dots := range s.items.all() {
		e.text(key)
		e.dots(dots)
	}
}

func (d *decoder) orset(k elementKind) *orset {
	s := &orset{elem: k, vv: d.vector()}
	s.items = items(d, k, 3, func() vector {
		dots := d.dots()
		if !s.vv.covers(dots) {
			d.fail("an element was added by a change that was not seen")
		}
		return dots
	})
	return s
}
