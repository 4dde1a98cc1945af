// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "iter"

// ORMap is a map whose keys come and go as the elements of an ORSet, and whose
// values are of any data type and merge by themselves. The zero value is empty. It
// is immutable.
//
// K is as E for GSet. All values are of the type V.
//
// # Caveats
//
// To remove a key is to forget what its value has seen. So, and this can't be
// helped without remembering all keys for ever:
//
//   - what is removed here while it is updated elsewhere comes back with all that
//     it was there;
//   - a key that is removed and put again may get back what it had: sets that only
//     grow become the union of both, counters the higher count of each node;
//   - where removals and updates of a key race, what it becomes depends on the
//     order in which nodes hear of each other. They all end with the same.
//
// For maps of sets, ORMultiMap with value deltas does better.
//
// Ten maps of a hundred entries spread faster than one of a thousand.
type ORMap[K any, V Data[V]] struct{ handle[ORMap[K, V]] }

// Entry is one key of a map with its value.
type Entry[K, V any] struct {
	Key   K
	Value V
}

func (ORMap[K, V]) empty(types *Types) shape {
	var v V
	held, err := types.core(v)
	if err != nil {
		return shape{}
	}
	of := held.shape()
	return shape{kind: kindMap, elem: kindOf[K](), of: &of}
}

// mapCore returns the value of a map.
func (h handle[T]) mapCore() (*ormap, error) {
	v, err := h.held(nil)
	if err != nil {
		return nil, err
	}
	m, ok := v.(*ormap)
	if !ok {
		return nil, wrongType(shape{kind: kindMap}, v)
	}
	return m, nil
}

// Put returns the map with a value. It is merged with what others have put there.
// A key that holds an ORSet can't be put again, as what the set has seen would be
// lost (ErrReplace); Update does it. The error may also match ErrElement, ErrLimit
// or ErrUndefined.
func (m ORMap[K, V]) Put(self *Self, key K, value V) (ORMap[K, V], error) {
	c, k, err := entry(m.handle, key)
	if err != nil {
		return m, err
	}
	v, err := m.types.core(value)
	if err != nil {
		return m, err
	}
	if !c.typ.of.equal(v.shape()) {
		return m, wrongType(*c.typ.of, v)
	}
	if c.typ.of.kind == kindORSet && c.keys.items.has(k) {
		return m, ErrReplace
	}
	return m.of(c.put(self, k, v)), nil
}

// entry returns the value of a map, and the encoded form of one of its keys.
func entry[T, K any](h handle[T], key K) (*ormap, string, error) {
	k, err := encodeElement(key, h.types)
	if err != nil {
		return nil, "", err
	}
	c, err := h.mapCore()
	return c, k, err
}

// Update returns the map with what f makes of a value, of the empty one if the key
// is not there. The error is that of f, or as for Put.
func (m ORMap[K, V]) Update(self *Self, key K, f func(V) (V, error)) (ORMap[K, V], error) {
	c, k, err := entry(m.handle, key)
	if err != nil {
		return m, err
	}
	old, _ := c.get(k)
	if old != nil {
		old = old.resetDelta()
	}
	before, err := typed[V](m.types, old)
	if err != nil {
		return m, err
	}
	after, err := f(before)
	if err != nil {
		return m, err
	}
	v, err := m.types.core(after)
	if err != nil {
		return m, err
	}
	if !c.typ.of.equal(v.shape()) {
		return m, wrongType(*c.typ.of, v)
	}
	return m.of(c.put(self, k, v)), nil
}

// Remove returns the map without some keys. What is not there is no error.
func (m ORMap[K, V]) Remove(self *Self, keys ...K) (ORMap[K, V], error) {
	return removeKeys(m, m.handle, self, keys)
}

func removeKeys[T, K any](m T, h handle[T], self *Self, keys []K) (T, error) {
	c, err := h.mapCore()
	if err != nil {
		return m, err
	}
	encoded, err := encodeElements(keys, h.types)
	if err != nil {
		return m, err
	}
	next := c
	for _, k := range encoded {
		next = next.remove(self, k)
	}
	if next == c {
		return m, nil
	}
	return h.of(next), nil
}

// Get returns the value of a key, and whether the key is there.
func (m ORMap[K, V]) Get(key K) (V, bool) {
	var none V
	c, k, err := entry(m.handle, key)
	if err != nil {
		return none, false
	}
	held, found := c.get(k)
	if !found {
		return none, false
	}
	v, err := typed[V](m.types, held)
	return v, err == nil
}

// Contains reports whether a key is there. One that can't be encoded never is.
func (m ORMap[K, V]) Contains(key K) bool { return containsKey(m.handle, key) }

func containsKey[T, K any](h handle[T], key K) bool {
	c, k, err := entry(h, key)
	return err == nil && c.keys.items.has(k)
}

// Len returns how many keys there are.
func (h handle[T]) mapLen() int {
	if c, ok := h.v.(*ormap); ok {
		return c.keys.items.n
	}
	return 0
}

// Len returns how many keys there are.
func (m ORMap[K, V]) Len() int { return m.mapLen() }

// All yields the keys with their values, in the order of GSet.All. An error
// matches ErrElement: a key does not fit K, or its type has no name here.
func (m ORMap[K, V]) All() iter.Seq2[Entry[K, V], error] {
	return entries[K](m.handle, func(v core) (V, error) { return typed[V](m.types, v) })
}

func entries[K, V, T any](h handle[T], read func(core) (V, error)) iter.Seq2[Entry[K, V], error] {
	return func(yield func(Entry[K, V], error) bool) {
		c, ok := h.v.(*ormap)
		if !ok {
			return
		}
		for k := range c.keys.items.all() {
			var e Entry[K, V]
			var err error
			if e.Key, err = decodeElement[K](k, h.types); err == nil {
				v, _ := c.get(k)
				e.Value, err = read(v)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Keys returns the keys, as All.
func (m ORMap[K, V]) Keys() ([]K, error) { return mapKeys[K](m.handle) }

func mapKeys[K, T any](h handle[T]) ([]K, error) {
	c, ok := h.v.(*ormap)
	if !ok {
		return nil, nil
	}
	return collect(c.keys.items.n, decodeAll[K](c.keys.items, h.types))
}
