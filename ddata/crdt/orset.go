// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "iter"

// ORSet is a set whose elements come and go. An element that one node adds while
// another removes it stays: only what a node has seen can it remove. The zero
// value is empty. It is immutable.
//
// It remembers no removed elements. Its size is that of what it holds, and of one
// number for each node that ever changed it and was not pruned.
//
// E is as for GSet.
type ORSet[E any] struct{ handle[ORSet[E]] }

func (ORSet[E]) empty(*Types) shape { return shape{kind: kindORSet, elem: kindOf[E]()} }

func (s ORSet[E]) core() *orset {
	if o, ok := s.v.(*orset); ok {
		return o
	}
	return &orset{elem: kindOf[E]()}
}

// Add returns the set with the elements. An element that is there already is added
// again: a concurrent removal does not take it away. The error matches ErrElement
// if one can't be encoded, ErrLimit if it is too large.
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

// Remove returns the set without the elements. What is not there is no error.
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

// Clear returns the set without what it holds.
func (s ORSet[E]) Clear() ORSet[E] {
	if s.Len() == 0 {
		return s
	}
	return s.of(s.core().clear())
}

// Contains reports whether an element is in the set. One that can't be encoded, as its type
// has no name in Types, is in none: Add would say so.
func (s ORSet[E]) Contains(e E) bool {
	key, err := encodeElement(e, s.types)
	return err == nil && s.core().items.has(key)
}

// Len returns how many elements there are.
func (s ORSet[E]) Len() int { return s.core().items.n }

// All yields the elements, as GSet.All.
func (s ORSet[E]) All() iter.Seq2[E, error] { return decodeAll[E](s.core().items, s.types) }

// Elements returns what All yields.
func (s ORSet[E]) Elements() ([]E, error) { return collect(s.Len(), s.All()) }
