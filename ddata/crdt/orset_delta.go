// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "slices"

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
				d.Fail("an element was added by a change outside of the step")
			}
			return add
		})
	case opRemove:
		op.vv = d.vector()
		op.key = d.element(k, nil, true)
		op.context = d.vector()
		if len(op.vv) > 1 || !op.context.covers(op.vv) {
			d.Fail("a removal by a change that its node had not seen")
		}
	case opFull:
		op.full = d.orset(k)
	default:
		d.Fail("unknown step %d", op.kind)
	}
	return op
}
