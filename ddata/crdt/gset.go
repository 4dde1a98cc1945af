// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "iter"

// GSet is a set that only grows. The zero value is empty. It is immutable.
//
// E is a string, integer, bool, float or byte slice type, or a type that is registered in Types. If
// E is an interface type, the set can hold elements of several types.
type GSet[E any] struct{ handle[GSet[E]] }

func (GSet[E]) empty(*Types) shape { return shape{kind: kindGSet, elem: kindOf[E]()} }

func (s GSet[E]) core() *gset { return coreOf[*gset](s.handle) }

// Add returns the set with the elements added. The error matches ErrElement if an element cannot be
// encoded, ErrLimit if it is too large.
func (s GSet[E]) Add(elements ...E) (GSet[E], error) {
	keys, err := encodeElements(elements, s.types)
	if err != nil {
		return s, err
	}
	g := s.core()
	next := *g
	for _, key := range keys {
		if !next.items.has(key) {
			next.items = next.items.set(key, struct{}{})
			next.delta = next.delta.set(key, struct{}{})
		}
	}
	if next.items.n == g.items.n {
		return s, nil
	}
	if next.base == nil {
		next.base = g
	}
	return s.of(&next), nil
}

// Contains reports whether an element is in the set. It is false for an element that cannot be
// encoded; Add returns an error for such an element.
func (s GSet[E]) Contains(e E) bool {
	key, err := encodeElement(e, s.types)
	return err == nil && s.core().items.has(key)
}

// Len returns the number of elements.
func (s GSet[E]) Len() int { return s.core().items.n }

// All yields the elements in the order of their encoded form: strings bytewise, numbers by value.
// The error matches ErrElement if an element does not fit E or its type is not registered.
func (s GSet[E]) All() iter.Seq2[E, error] { return decodeAll[E](s.core().items, s.types) }

// Elements returns the elements that All yields.
func (s GSet[E]) Elements() ([]E, error) { return collect(s.Len(), s.All()) }

func decodeAll[E, V any](t tree[V], types *Types) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for key := range t.all() {
			if !yield(decodeElement[E](key, types)) {
				return
			}
		}
	}
}

func collect[E any](n int, all iter.Seq2[E, error]) ([]E, error) {
	elements := make([]E, 0, n)
	for e, err := range all {
		if err != nil {
			return nil, err
		}
		elements = append(elements, e)
	}
	return elements, nil
}

type gset struct {
	noHistory
	elem  elementKind
	items tree[struct{}]
	delta tree[struct{}]
	base  *gset // the value before the additions in delta; nil if delta is empty
}

func (g *gset) shape() shape        { return shape{kind: kindGSet, elem: g.elem} }
func (g *gset) eachNode(*nodeTable) {}

func (g *gset) merge(other core) (core, error) {
	o, _ := other.(*gset)
	if o.base == g {
		return o.resetDelta(), nil
	}
	next := gset{elem: g.elem, items: g.items}
	if o.items.n < g.items.n/8 { // probably a delta
		for key := range o.items.all() {
			if !next.items.has(key) {
				next.items = next.items.set(key, struct{}{})
			}
		}
	} else {
		next.items = mergeTrees(g.items, o.items, func(_ string, a, _ *struct{}) (struct{}, bool, bool) {
			return struct{}{}, true, a != nil
		})
	}
	if next.items.n == g.items.n {
		return g.resetDelta(), nil
	}
	return &next, nil
}

func (g *gset) changes() change {
	if g.delta.n == 0 {
		return nil
	}
	return whole{&gset{elem: g.elem, items: g.delta}}
}

func (g *gset) resetDelta() core {
	if g.base == nil {
		return g
	}
	return &gset{elem: g.elem, items: g.items}
}

func (g *gset) encode(e *encoder) {
	e.count(g.items.n)
	for key := range g.items.all() {
		e.text(key)
	}
}

func (g *gset) decode(d *decoder) {
	g.items = items(d, g.elem, 2, func() struct{} { return struct{}{} })
}
