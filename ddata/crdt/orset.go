// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"iter"
	"slices"

	"github.com/refold-io/refold/identity"
)

// orset is the untyped value of an ORSet, an optimized OR-set without tombstones (Bieniusa et al.,
// 2012). For each element it stores the dots of its additions; an element has more than one dot
// only after concurrent additions. It also stores vv, a version vector of all changes seen. An
// element that is missing although vv covers its dots was removed. vv covers all dots. Cleanup of a
// node can leave an element without dots. Such an element stays until a merge with a set that has
// seen more changes.
type orset struct {
	elem  elementKind
	vv    vector
	items tree[dots]
	delta *orsetDelta // nil if there is none
	base  *orset      // the value before the changes in delta; nil if delta is nil
}

// changed sets the element type, the delta and the base of next, which is the result of op on s.
func (s *orset) changed(next *orset, op orsetOp) *orset {
	next.elem = s.elem
	next.delta = s.deltaWith(op)
	if next.base = s.base; next.base == nil {
		next.base = s
	}
	return next
}

func (s *orset) add(self *Self, key string) *orset {
	d := self.next()
	added := dots{one: [1]dot{d}}
	var replaced vector
	if old := s.items.find(key); old != nil {
		replaced = old.vector().without(self.ref) // the new dot covers older dots of this node
	}
	next := &orset{vv: s.vv.with(d), items: s.items.set(key, added)}
	return s.changed(next, orsetOp{kind: opAdd, vv: next.vv.only(self.ref), added: tree[addition]{}.set(key, addition{added, replaced})})
}

func (s *orset) addAll(self *Self, keys []string) *orset {
	for _, key := range keys {
		s = s.add(self, key)
	}
	return s
}

func (s *orset) remove(self *Self, key string) *orset {
	if !s.items.has(key) {
		return s
	}
	op := orsetOp{kind: opRemove, key: key, context: s.vv, vv: s.vv.only(self.ref)}
	return s.changed(&orset{vv: s.vv, items: s.items.delete(key)}, op)
}

func (s *orset) clear() *orset {
	if s.items.n == 0 {
		return s
	}
	return s.changed(&orset{vv: s.vv}, orsetOp{kind: opFull, full: &orset{elem: s.elem, vv: s.vv}})
}

func (s *orset) reset() *orset {
	if s.base == nil {
		return s
	}
	return &orset{elem: s.elem, vv: s.vv, items: s.items}
}

// mergeSet merges two full states. It returns s itself if o contributes nothing.
func (s *orset) mergeSet(o *orset) *orset {
	if o.base == s || o == s {
		return o.reset()
	}
	next := &orset{elem: s.elem, vv: s.vv.max(o.vv)}
	next.items = mergeTrees(s.items, o.items, func(_ string, a, b *dots) (dots, bool, bool) {
		return mergeElement(a, s.vv, b, o.vv)
	})
	if next.items.root == s.items.root && len(next.vv) == len(s.vv) && s.vv.covers(next.vv) {
		return s.reset()
	}
	return next
}

// mergeElement merges an element of two sets; nil means missing. It returns the dots, whether the
// element stays, and whether the result equals a.
func mergeElement(a *dots, seenA vector, b *dots, seenB vector) (merged dots, kept, same bool) {
	switch {
	case a == nil && b == nil:
		return dots{}, false, true
	case b == nil:
		rest := a.vector().newer(seenB)
		return dotsOf(rest), len(rest) > 0, len(rest) > 0 && len(rest) == len(a.vector())
	case a == nil:
		rest := b.vector().newer(seenA)
		return dotsOf(rest), len(rest) > 0, len(rest) == 0
	}
	va, vb := a.vector(), b.vector()
	both := mergeDots(va, seenA, vb, seenB)
	// If both have no dots, neither side has seen a removal of the element.
	kept = len(both) > 0 || len(va) == 0 && len(vb) == 0
	return dotsOf(both), kept, kept && slices.Equal(both, va)
}

func (s *orset) resetDelta() core                        { return s.reset() }
func (s *orset) needsPruning(removed identity.Node) bool { return s.vv.of(refOf(removed)) > 0 }
func (s *orset) shape() shape                            { return shape{kind: kindORSet, elem: s.elem} }

func (s *orset) merge(other core) (core, error) {
	o, _ := other.(*orset)
	return s.mergeSet(o), nil
}

func (s *orset) changes() change {
	if s.delta == nil {
		return nil
	}
	return s.delta
}

func (s *orset) pruned(self *Self, removed identity.Node) (core, error) {
	return s.prune(self, removed), nil
}

func (s *orset) prune(self *Self, removed identity.Node) *orset {
	gone := refOf(removed)
	if s.vv.of(gone) == 0 || gone == self.ref {
		return s.reset()
	}
	next := &orset{elem: s.elem, vv: s.vv.without(gone), items: s.items}
	for key, added := range s.items.all() {
		if added.of(gone) > 0 {
			d := self.next()
			next.items = next.items.set(key, dots{one: [1]dot{d}})
			next.vv = next.vv.with(d)
		}
	}
	next.vv = next.vv.with(self.next())
	return next
}

func (s *orset) cleaned(removed identity.Node) (core, error) { return s.cleanup(removed), nil }

func (s *orset) cleanup(removed identity.Node) *orset {
	gone := refOf(removed)
	if s.vv.of(gone) == 0 {
		return s.reset()
	}
	next := &orset{elem: s.elem, vv: s.vv.without(gone), items: s.items}
	for key, added := range s.items.all() {
		if added.of(gone) > 0 {
			next.items = next.items.set(key, dotsOf(added.vector().without(gone)))
		}
	}
	return next
}

func (s *orset) eachNode(t *nodeTable) { t.vector(s.vv) } // vv covers all dots

func (s *orset) encode(e *encoder) {
	e.vector(s.vv)
	e.count(s.items.n)
	if s.items.root != nil {
		encodeDots(e, s.items.root)
	}
}

func encodeDots(e *encoder, n *node[dots]) {
	for i := range n.vals {
		e.text(n.key(i))
		e.dots(n.vals[i].vector())
	}
	for _, child := range n.children {
		encodeDots(e, child)
	}
}

func (s *orset) decode(d *decoder) {
	s.vv = d.vector()
	s.items = items(d, s.elem, 3, func() dots {
		added := d.dots()
		if !s.vv.covers(added.vector()) {
			d.Fail("the version vector does not cover the dots of an element")
		}
		return added
	})
}

// ORSet is a set with addition and removal. If one node adds an element while another removes it,
// the element stays: a removal affects only the additions that the removing node has seen. The zero
// value is empty. It is immutable.
//
// Removed elements leave no tombstones. A set is as large as its elements, plus one number for each
// node that has changed the set and was not pruned.
//
// E is an element type as described at GSet.
type ORSet[E any] struct{ handle[ORSet[E]] }

func (ORSet[E]) empty(*Types) shape { return shape{kind: kindORSet, elem: kindOf[E]()} }

func (s ORSet[E]) core() *orset { return coreOf[*orset](s.handle) }

// Add returns the set with the elements added. Adding an existing element protects it from
// concurrent removal. The error matches ErrElement if an element cannot be encoded, ErrLimit if it
// is too large.
func (s ORSet[E]) Add(self *Self, elements ...E) (ORSet[E], error) {
	if len(elements) == 0 {
		return s, nil
	}
	c := s.core()
	for _, e := range elements {
		key, err := encodeElement(e, s.types)
		if err != nil {
			return s, err
		}
		c = c.add(self, key)
	}
	return ORSet[E]{handle[ORSet[E]]{v: c, types: s.types}}, nil
}

// Remove returns the set without the elements. Missing elements are ignored.
func (s ORSet[E]) Remove(self *Self, elements ...E) (ORSet[E], error) {
	keys, err := encodeElements(elements, s.types)
	if err != nil {
		return s, err
	}
	before := s.core()
	c := before
	for _, key := range keys {
		c = c.remove(self, key)
	}
	if c == before {
		return s, nil
	}
	return s.of(c), nil
}

// Clear returns the set without elements.
func (s ORSet[E]) Clear() ORSet[E] {
	if s.Len() == 0 {
		return s
	}
	return s.of(s.core().clear())
}

// Contains reports whether an element is in the set. It is false for an element that cannot be
// encoded; Add returns an error for such an element.
func (s ORSet[E]) Contains(e E) bool {
	key, err := encodeElement(e, s.types)
	return err == nil && s.core().items.has(key)
}

// Len returns the number of elements.
func (s ORSet[E]) Len() int { return s.core().items.n }

// All yields the elements, with the order and errors of GSet.All.
func (s ORSet[E]) All() iter.Seq2[E, error] { return decodeAll[E](s.core().items, s.types) }

// Elements returns the elements that All yields.
func (s ORSet[E]) Elements() ([]E, error) { return collect(s.Len(), s.All()) }

// opKind is the kind of a step of an ORSet's delta. The numbers are part of the format.
type opKind byte

const (
	opAdd opKind = iota + 1
	opRemove
	opFull
)

type orsetOp struct {
	kind    opKind
	added   tree[addition] // opAdd
	key     string         // opRemove
	context vector         // opRemove: the changes that the removing node had seen
	full    *orset         // opFull
	vv      vector         // the changes of the sending node that the receiver has seen after this step
}

// addition describes how an element was added: the dots of the addition, and the dots of other
// nodes that it replaces.
type addition struct {
	dots     dots
	replaced vector
}

type orsetDelta struct {
	elem elementKind
	ops  []orsetOp
}

func (s *orset) deltaWith(op orsetOp) *orsetDelta {
	ops := []orsetOp{op}
	if s.delta != nil {
		ops = joinOps(s.delta.ops, ops)
	}
	return &orsetDelta{s.elem, ops}
}

// joinOps concatenates two lists of steps. Adjacent additions are combined into one.
func joinOps(a, b []orsetOp) []orsetOp {
	if len(a) == 0 || len(b) == 0 || a[len(a)-1].kind != opAdd || b[0].kind != opAdd {
		return slices.Concat(a, b)
	}
	x, y := &a[len(a)-1], &b[0]
	both := orsetOp{kind: opAdd, added: x.added, vv: x.vv.max(y.vv)}
	for key, later := range y.added.all() {
		if former, found := both.added.get(key); found {
			later.replaced = former.replaced.max(later.replaced)
		}
		both.added = both.added.set(key, later)
	}
	return slices.Concat(a[:len(a)-1], []orsetOp{both}, b[1:])
}

func (s *orset) apply(d *orsetDelta) *orset {
	next := s.reset()
	for i := range d.ops {
		op := &d.ops[i]
		switch op.kind {
		case opAdd:
			next = next.applyAdd(op)
		case opRemove:
			next = next.applyRemove(op)
		case opFull:
			next = next.mergeSet(op.full)
		}
	}
	return next
}

// applyAdd merges the added elements without affecting other elements.
func (s *orset) applyAdd(op *orsetOp) *orset {
	next := &orset{elem: s.elem, vv: s.vv.max(op.vv), items: s.items}
	for key, add := range op.added.all() {
		local := s.items.find(key)
		if local != nil && len(add.replaced) > 0 {
			rest := dotsOf(local.vector().filter(func(d dot) bool { return !add.replaced.has(d) }))
			local = &rest
		}
		merged, kept, _ := mergeElement(local, s.vv, &add.dots, op.vv)
		next.items = next.items.put(key, merged, kept)
	}
	return next
}

// applyRemove removes the dots of the element that the removing node had seen. Other dots are
// concurrent additions and stay.
func (s *orset) applyRemove(op *orsetOp) *orset {
	next := &orset{elem: s.elem, vv: s.vv.max(op.vv), items: s.items}
	if local := s.items.find(op.key); local != nil {
		rest := local.vector().newer(op.context)
		next.items = next.items.put(op.key, dotsOf(rest), len(rest) > 0)
	}
	return next
}

func (d *orsetDelta) opCount() int { return len(d.ops) }
func (d *orsetDelta) shape() shape { return shape{kind: kindORSet, elem: d.elem} }

func (d *orsetDelta) applyTo(c core) (core, error) {
	s, _ := c.(*orset)
	return s.apply(d), nil
}

func (d *orsetDelta) then(later change) (change, error) {
	l, _ := later.(*orsetDelta)
	return &orsetDelta{d.elem, joinOps(d.ops, l.ops)}, nil
}

func (d *orsetDelta) eachNode(t *nodeTable) {
	for i := range d.ops {
		op := &d.ops[i]
		t.vector(op.vv)
		t.vector(op.context)
		for _, add := range op.added.all() {
			t.vector(add.dots.vector())
			t.vector(add.replaced)
		}
		if op.full != nil {
			op.full.eachNode(t)
		}
	}
}

func (d *orsetDelta) encode(e *encoder) {
	e.count(len(d.ops))
	for i := range d.ops {
		op := &d.ops[i]
		e.dst = append(e.dst, byte(op.kind))
		switch op.kind {
		case opAdd:
			e.vector(op.vv)
			e.count(op.added.n)
			for key, add := range op.added.all() {
				e.text(key)
				e.dots(add.dots.vector())
				e.vector(add.replaced)
			}
		case opRemove:
			e.vector(op.vv)
			e.text(op.key)
			e.vector(op.context)
		case opFull:
			op.full.encode(e)
		}
	}
}

func (d *decoder) orsetDelta(k elementKind) *orsetDelta {
	return &orsetDelta{k, steps(d, 2, func() orsetOp { return d.orsetOp(k) })}
}

func steps[Op any](d *decoder, size int, read func() Op) []Op {
	n := d.Count(MaxSize, size, "steps")
	if n == 0 {
		d.Fail("a delta without steps")
	}
	var ops []Op
	for ; n > 0 && d.Err() == nil; n-- {
		ops = append(ops, read())
	}
	return ops
}

func (d *decoder) orsetOp(k elementKind) orsetOp {
	op := orsetOp{kind: opKind(d.Byte("step"))}
	switch op.kind {
	case opAdd:
		op.vv = d.vector()
		op.added = items(d, k, 4, func() addition {
			add := addition{d.dots(), d.vector()}
			if added := add.dots.vector(); len(added) == 0 || !op.vv.covers(added) {
				d.Fail("the version vector of a step does not cover the dots of an element")
			}
			return add
		})
	case opRemove:
		op.vv = d.vector()
		op.key = string(d.element(k))
		op.context = d.vector()
		if len(op.vv) > 1 || !op.context.covers(op.vv) {
			d.Fail("the context of a removal does not cover the version of the removing node")
		}
	case opFull:
		op.full = &orset{elem: k}
		op.full.decode(d)
	default:
		d.Fail("unknown step %d", op.kind)
	}
	return op
}
