// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "iter"

// LWWMap is a map from keys to values in which the last write of a key wins: an ORMap of
// LWWRegisters. A key that is removed and concurrently written stays. The zero value is empty. It
// is immutable.
//
// K and V are element types as described at GSet.
type LWWMap[K, V any] struct{ keyed[LWWMap[K, V], K] }

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
	c, k, err := m.entry(key)
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

// Get returns the value of a key, and whether the key exists. The error matches ErrElement if the
// value does not fit V or its type is not registered.
func (m LWWMap[K, V]) Get(key K) (V, bool, error) {
	var none V
	c, k, err := m.entry(key)
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

// All yields the keys with their values, with the order and errors of ORMap.All.
func (m LWWMap[K, V]) All() iter.Seq2[Entry[K, V], error] {
	return entries(m.keyed, func(v core) (V, error) {
		var none V
		r, ok := v.(*register)
		if !ok {
			return none, nil
		}
		return registerValue[V](r, m.types)
	})
}
