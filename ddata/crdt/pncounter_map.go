// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "iter"

// PNCounterMap is a map from keys to counters. The zero value is empty. It is
// immutable. Its caveats are those of ORMap: a key that is removed while it is
// counted elsewhere keeps its whole count.
//
// K is as E for GSet.
type PNCounterMap[K any] struct{ handle[PNCounterMap[K]] }

func (PNCounterMap[K]) empty(*Types) shape {
	return shape{kind: kindCounterMap, elem: kindOf[K](), of: &shape{kind: kindPNCounter}}
}

// Add returns the map with n more for a key, less if n is negative. If it is 0, a
// key that is not there is added.
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

// Remove returns the map without some keys. What is not there is no error.
func (m PNCounterMap[K]) Remove(self *Self, keys ...K) (PNCounterMap[K], error) {
	return removeKeys(m, m.handle, self, keys)
}

// Get returns the counter of a key, and whether the key is there.
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

// Value returns the count of a key, 0 if it is not there.
func (m PNCounterMap[K]) Value(key K) int64 {
	c, _ := m.Get(key)
	return c.Value()
}

// Contains reports whether a key is there. One that can't be encoded never is.
func (m PNCounterMap[K]) Contains(key K) bool { return containsKey(m.handle, key) }

// Len returns how many keys there are.
func (m PNCounterMap[K]) Len() int { return m.mapLen() }

// All yields the keys with their counters, as ORMap.All.
func (m PNCounterMap[K]) All() iter.Seq2[Entry[K, PNCounter], error] {
	return entries[K](m.handle, func(v core) (PNCounter, error) { return typed[PNCounter](m.types, v) })
}

// Keys returns the keys, as All.
func (m PNCounterMap[K]) Keys() ([]K, error) { return mapKeys[K](m.handle) }
