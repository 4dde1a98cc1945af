// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "iter"

// PNCounterMap is a map from keys to counters. The zero value is empty. It is immutable. The
// caveats of ORMap apply: a key that is removed while another node counts keeps its whole count.
//
// K is an element type as described at GSet.
type PNCounterMap[K any] struct{ handle[PNCounterMap[K]] }

func (PNCounterMap[K]) empty(*Types) shape {
	return shape{kind: kindCounterMap, elem: kindOf[K](), of: &shape{kind: kindPNCounter}}
}

// Add returns the map with the counter of a key changed by n, which may be negative. If n is 0 and
// the key is missing, the key is added.
func (m PNCounterMap[K]) Add(self *Self, key K, n int64) (PNCounterMap[K], error) {
	c, k, err := entry(m.handle, key)
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

// Remove returns the map without some keys. Missing keys are ignored.
func (m PNCounterMap[K]) Remove(self *Self, keys ...K) (PNCounterMap[K], error) {
	return removeKeys(m, m.handle, self, keys)
}

// Get returns the counter of a key, and whether the key exists.
func (m PNCounterMap[K]) Get(key K) (PNCounter, bool) {
	c, k, err := entry(m.handle, key)
	if err != nil {
		return PNCounter{}, false
	}
	v, found := c.get(k)
	if !found {
		return PNCounter{}, false
	}
	p, err := typed[PNCounter](m.types, v)
	return p, err == nil
}

// Value returns the count of a key, 0 if the key does not exist.
func (m PNCounterMap[K]) Value(key K) int64 {
	c, _ := m.Get(key)
	return c.Value()
}

// Contains reports whether a key exists. It is false for a key that cannot be encoded.
func (m PNCounterMap[K]) Contains(key K) bool { return containsKey(m.handle, key) }

// Len returns the number of keys.
func (m PNCounterMap[K]) Len() int { return m.mapLen() }

// All yields the keys with their counters, with the order and errors of ORMap.All.
func (m PNCounterMap[K]) All() iter.Seq2[Entry[K, PNCounter], error] {
	return entries[K](m.handle, func(v core) (PNCounter, error) { return typed[PNCounter](m.types, v) })
}

// Keys returns the keys, with the order and errors of ORMap.All.
func (m PNCounterMap[K]) Keys() ([]K, error) { return mapKeys[K](m.handle) }
