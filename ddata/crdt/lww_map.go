// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "iter"

// LWWMap is a map from keys to values in which the last write of a key wins: an ORMap of
// LWWRegisters. A key that is removed and concurrently written stays. The zero value is empty. It
// is immutable.
//
// K and V are element types as described at GSet.
type LWWMap[K, V any] struct{ handle[LWWMap[K, V]] }

func (LWWMap[K, V]) empty(*Types) shape {
	return shape{kind: kindRegisterMap, elem: kindOf[K](), of: &shape{kind: kindRegister, elem: kindOf[V]()}}
}

// Put returns the map with a value, timestamped by DefaultClock. The error matches ErrElement,
// ErrLimit or ErrClock.
func (m LWWMap[K, V]) Put(self *Self, key K, value V) (LWWMap[K, V], error) {
	return m.PutBy(self, key, value, DefaultClock[V])
}

// PutBy is Put with a clock. A nil clock is DefaultClock.
func (m LWWMap[K, V]) PutBy(self *Self, key K, value V, clock Clock[V]) (LWWMap[K, V], error) {
	c, k, err := entry(m.handle, key)
	if err != nil {
		return m, err
	}
	old, _ := c.get(k)
	r, ok := old.(*register)
	if !ok {
		r = &register{elem: kindOf[V]()}
	}
	if r, err = setRegister(r, self, value, clock, m.types); err != nil {
		return m, err
	}
	return m.of(c.put(self, k, r)), nil
}

// Remove returns the map without some keys. Missing keys are ignored.
func (m LWWMap[K, V]) Remove(self *Self, keys ...K) (LWWMap[K, V], error) {
	return removeKeys(m, m.handle, self, keys)
}

// Get returns the value of a key, and whether the key exists. The error matches ErrElement if the
// value does not fit V or its type is not registered.
func (m LWWMap[K, V]) Get(key K) (V, bool, error) {
	var none V
	c, k, err := entry(m.handle, key)
	if err != nil {
		return none, false, err
	}
	held, found := c.get(k)
	r, ok := held.(*register)
	if !found || !ok {
		return none, false, nil
	}
	v, err := registerValue[V](r, m.types)
	return v, err == nil, err
}

// Contains reports whether a key exists. It is false for a key that cannot be encoded.
func (m LWWMap[K, V]) Contains(key K) bool { return containsKey(m.handle, key) }

// Len returns the number of keys.
func (m LWWMap[K, V]) Len() int { return m.mapLen() }

// All yields the keys with their values, with the order and errors of ORMap.All.
func (m LWWMap[K, V]) All() iter.Seq2[Entry[K, V], error] {
	return entries[K](m.handle, func(v core) (V, error) {
		var none V
		r, ok := v.(*register)
		if !ok {
			return none, nil
		}
		return registerValue[V](r, m.types)
	})
}

// Keys returns the keys, with the order and errors of ORMap.All.
func (m LWWMap[K, V]) Keys() ([]K, error) { return mapKeys[K](m.handle) }
