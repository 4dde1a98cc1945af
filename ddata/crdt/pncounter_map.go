// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "iter"

// PNCounterMap is a map from keys to counters. The zero value is empty. It is immutable. The
// caveats of ORMap apply: a key that is removed while another node counts keeps its whole count.
//
// K is an element type as described at GSet.
type PNCounterMap[K any] struct{ keyed[PNCounterMap[K], K] }

func (PNCounterMap[K]) empty(*Types) shape {
	return shape{kind: kindCounterMap, elem: kindOf[K](), of: &shape{kind: kindPNCounter}}
}

// Add returns the map with the counter of a key changed by n, which may be negative. If n is 0 and
// the key is missing, the key is added.
func (m PNCounterMap[K]) Add(self *Self, key K, n int64) (PNCounterMap[K], error) {
	c, k, err := m.entry(key)
	if err != nil {
		return m, err
	}
	old, found := c.get(k)
	if n == 0 && found {
		return m, nil
	}
	p, ok := old.(*pncounter)
	if !ok {
		p = &pncounter{}
	}
	if n != 0 {
		p = p.add(self, n < 0, magnitude(n), nil)
	}
	return m.of(c.put(self, k, p)), nil
}

// Get returns the counter of a key, and whether the key exists.
func (m PNCounterMap[K]) Get(key K) (PNCounter, bool) { return valueOf[PNCounter](m.keyed, key) }

// Value returns the count of a key, 0 if the key does not exist.
func (m PNCounterMap[K]) Value(key K) int64 {
	c, _ := m.Get(key)
	return c.Value()
}

// All yields the keys with their counters, with the order and errors of ORMap.All.
func (m PNCounterMap[K]) All() iter.Seq2[Entry[K, PNCounter], error] {
	return typedEntries[PNCounter](m.keyed)
}
