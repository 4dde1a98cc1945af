// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"iter"
	"slices"
)

// ORMultiMap is a map from keys to sets of elements. The zero value is empty. It is immutable.
//
// There are two variants, which cannot be merged with each other. The plain variant replicates the
// whole set of a key on each change. Removing a key discards the set: if another node concurrently
// adds an element to it, the whole set returns. The variant with value deltas (WithValueDeltas)
// replicates only the changes of a set. Elements of a removed key stay removed if the other nodes
// receive the removal as a delta, or if they have not merged in between. See ORMap for the other
// caveats.
//
// K and E are element types as described at GSet.
type ORMultiMap[K, E any] struct{ keyed[ORMultiMap[K, E], K] }

func (ORMultiMap[K, E]) empty(*Types) shape { return multiShape[K, E](kindMultiMap) }

func multiShape[K, E any](k kind) shape {
	return shape{kind: k, elem: kindOf[K](), of: &shape{kind: kindORSet, elem: kindOf[E]()}}
}

// WithValueDeltas returns the variant with value deltas. The map must be empty and without history,
// or already be of that variant. For any other map, the error matches ErrType.
func (m ORMultiMap[K, E]) WithValueDeltas() (ORMultiMap[K, E], error) {
	c, err := m.core()
	if err != nil {
		return m, err
	}
	s := multiShape[K, E](kindMultiMapDeltas)
	switch {
	case c.keepsRemovedValues():
		return m, nil
	case len(c.keys.vv) > 0:
		return m, wrongType(s, c)
	}
	return m.of(s.empty()), nil
}

// Put returns the map with exactly these elements for a key. Without elements the key has an empty
// set.
func (m ORMultiMap[K, E]) Put(self *Self, key K, elements ...E) (ORMultiMap[K, E], error) {
	return m.change(self, key, elements, func(s *orset, encoded []string) *orset {
		return s.clear().addAll(self, encoded)
	})
}

func (m ORMultiMap[K, E]) encoded(key K, elements []E) (c *ormap, k string, encoded []string, err error) {
	if c, k, err = m.entry(key); err == nil {
		encoded, err = encodeElements(elements, m.types)
	}
	return c, k, encoded, err
}

func (m ORMultiMap[K, E]) change(self *Self, key K, elements []E, f func(s *orset, encoded []string) *orset) (ORMultiMap[K, E], error) {
	c, k, encoded, err := m.encoded(key, elements)
	if err != nil {
		return m, err
	}
	return m.of(c.updateSet(self, k, func(s *orset) *orset { return f(s, encoded) })), nil
}

func (m *ormap) updateSet(self *Self, key string, f func(*orset) *orset) *ormap {
	change := func(v core) core {
		s, _ := v.(*orset)
		return f(s)
	}
	if m.keepsRemovedValues() {
		return m.update(self, key, change)
	}
	return m.put(self, key, change(m.valueOrEmpty(key)))
}

// Add returns the map with elements added to a key.
func (m ORMultiMap[K, E]) Add(self *Self, key K, elements ...E) (ORMultiMap[K, E], error) {
	if len(elements) == 0 {
		return m, nil
	}
	return m.change(self, key, elements, func(s *orset, encoded []string) *orset {
		return s.addAll(self, encoded)
	})
}

// RemoveElements returns the map without some elements of a key, and without the key if its set
// becomes empty. Missing elements are ignored.
func (m ORMultiMap[K, E]) RemoveElements(self *Self, key K, elements ...E) (ORMultiMap[K, E], error) {
	c, k, encoded, err := m.encoded(key, elements)
	if err != nil || !c.hasAnyElement(k, encoded) {
		return m, err
	}
	return m.of(c.removeElements(self, k, encoded)), nil
}

func (m *ormap) hasAnyElement(key string, elements []string) bool {
	v, _ := m.get(key)
	s, ok := v.(*orset)
	return ok && slices.ContainsFunc(elements, s.items.has)
}

func (m *ormap) removeElements(self *Self, key string, elements []string) *ormap {
	next := m.updateSet(self, key, func(s *orset) *orset {
		for _, e := range elements {
			s = s.remove(self, e)
		}
		return s
	})
	if s, ok := next.valueOrEmpty(key).(*orset); ok && s.items.n == 0 {
		return next.remove(self, key)
	}
	return next
}

// Replace returns the map with one element of a key replaced by another. The old element need not
// exist.
func (m ORMultiMap[K, E]) Replace(self *Self, key K, old, with E) (ORMultiMap[K, E], error) {
	c, k, both, err := m.encoded(key, []E{old, with})
	if err != nil || both[0] == both[1] {
		return m, err
	}
	c = c.updateSet(self, k, func(s *orset) *orset { return s.add(self, both[1]) })
	if c.hasAnyElement(k, both[:1]) {
		c = c.removeElements(self, k, both[:1])
	}
	return m.of(c), nil
}

// Get returns the set of a key, and whether the key exists.
func (m ORMultiMap[K, E]) Get(key K) (ORSet[E], bool) { return valueOf[ORSet[E]](m.keyed, key) }

// All yields the keys with their sets, with the order and errors of ORMap.All.
func (m ORMultiMap[K, E]) All() iter.Seq2[Entry[K, ORSet[E]], error] {
	return typedEntries[ORSet[E]](m.keyed)
}
