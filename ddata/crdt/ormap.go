// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"iter"
	"slices"

	"github.com/refold-io/refold/identity"
)

// ormap is the untyped value of all maps. The keys form an ORSet; each value merges independently.
type ormap struct {
	typ   *shape
	keys  *orset
	vals  tree[core] // a multi-map with value deltas also has the values of removed keys
	delta *mapDelta
	base  *ormap
}

// keepsRemovedValues reports whether the value of a removed key is kept until the next merge. The
// kept value is empty. Its history removes the elements on nodes that still have the key.
func (m *ormap) keepsRemovedValues() bool { return m.typ.kind == kindMultiMapDeltas }

func (m *ormap) get(key string) (core, bool) {
	if !m.keys.items.has(key) {
		return nil, false
	}
	return m.valueOrEmpty(key), true
}

func (m *ormap) valueOrEmpty(key string) core {
	if v := m.vals.find(key); v != nil {
		return *v
	}
	return m.typ.of.empty()
}

func (m *ormap) changed(next *ormap, op *mapOp) *ormap {
	next.typ = m.typ
	next.delta = m.delta.with(m.typ, op)
	if next.base = m.base; next.base == nil {
		next.base = m
	}
	return next
}

// addKey adds a key again. It returns the new keys and their delta.
func (m *ormap) addKey(self *Self, key string) (*orset, *orsetDelta) {
	keys := m.keys.reset().add(self, key)
	return keys.reset(), keys.delta
}

// put sets a value. The delta contains the whole value.
func (m *ormap) put(self *Self, key string, v core) *ormap {
	v = v.resetDelta()
	keys, d := m.addKey(self, key)
	return m.changed(&ormap{keys: keys, vals: m.vals.set(key, v)}, &mapOp{kind: mapPut, keys: d, key: key, val: v})
}

// update replaces the value of a key with the result of f. The delta contains only the change. If
// the key has no value, update acts like put.
func (m *ormap) update(self *Self, key string, f func(core) core) *ormap {
	v := f(m.valueOrEmpty(key).resetDelta())
	d := v.changes()
	if d == nil || !m.vals.has(key) {
		return m.put(self, key, v)
	}
	keys, kd := m.addKey(self, key)
	return m.changed(&ormap{keys: keys, vals: m.vals.set(key, v.resetDelta())}, &mapOp{
		kind: mapUpdate, keys: kd, deltas: tree[change]{}.set(key, d),
	})
}

func (m *ormap) remove(self *Self, key string) *ormap {
	if !m.keys.items.has(key) {
		return m
	}
	if v, _ := m.get(key); m.keepsRemovedValues() {
		if s, ok := v.(*orset); ok && s.items.n > 0 {
			m = m.updateSet(self, key, (*orset).clear)
		}
	}
	keys := m.keys.reset().remove(self, key)
	op := &mapOp{kind: mapRemove, keys: keys.delta, key: key}
	next := &ormap{keys: keys.reset(), vals: m.vals}
	if m.keepsRemovedValues() {
		op.kind = mapRemoveKey
	} else {
		next.vals = next.vals.delete(key)
	}
	return m.changed(next, op)
}

func (m *ormap) reset() *ormap {
	if m.base == nil {
		return m
	}
	return &ormap{typ: m.typ, keys: m.keys, vals: m.vals}
}

func (m *ormap) merge(other core) (core, error) {
	o, _ := other.(*ormap)
	switch {
	case o == m:
		return m.reset(), nil
	case o.base == m:
		return m.mergeKeys(o, o.delta.keys())
	}
	next := &ormap{typ: m.typ, keys: m.keys.reset().mergeSet(o.keys.reset())}
	var err error
	next.vals = mergeTrees(m.vals, o.vals, func(key string, a, b *core) (core, bool, bool) {
		v, kept, same, failed := m.mergeValue(next.keys.items.has(key), a, b)
		if failed != nil && err == nil {
			err = failed
		}
		return v, kept, same
	})
	if err != nil {
		return nil, err
	}
	if next.keys == m.keys && next.vals.root == m.vals.root {
		return m.reset(), nil
	}
	return next, nil
}

// mergeValue merges the values of a key; nil means that a map has no value. It returns the merged
// value, whether the map keeps a value, and whether the result equals a.
func (m *ormap) mergeValue(present bool, a, b *core) (v core, kept, same bool, err error) {
	switch {
	case !present: // the node that removed the key had seen all of the value
		return nil, false, a == nil, nil
	case a == nil && b == nil:
		return nil, false, true, nil
	case b == nil:
		v, same = *a, true
	case a == nil:
		v = (*b).resetDelta()
	default:
		if v, err = mergeCores(*a, *b); err != nil {
			return nil, false, false, err
		}
		same = v == *a
	}
	return v, true, same, nil
}

// mergeKeys merges a map that differs in the touched keys only.
func (m *ormap) mergeKeys(o *ormap, touched []string) (*ormap, error) {
	next := &ormap{typ: m.typ, vals: m.vals}
	keys := &orset{elem: m.keys.elem, vv: m.keys.vv.max(o.keys.vv), items: m.keys.items}
	for _, key := range touched {
		added, kept, same := mergeElement(m.keys.items.find(key), m.keys.vv, o.keys.items.find(key), o.keys.vv)
		if kept && !same {
			keys.items = keys.items.set(key, added)
		} else if !kept {
			keys.items = keys.items.delete(key)
		}
		v, some, asBefore, err := m.mergeValue(kept, m.vals.find(key), o.vals.find(key))
		switch {
		case err != nil:
			return nil, err
		case some && !asBefore:
			next.vals = next.vals.set(key, v)
		case !some:
			next.vals = next.vals.delete(key)
		}
	}
	next.keys = keys
	return next, nil
}

func (m *ormap) resetDelta() core { return m.reset() }
func (m *ormap) shape() shape     { return *m.typ }

func (m *ormap) changes() change {
	if m.delta == nil {
		return nil
	}
	return m.delta
}

func (m *ormap) modifiedBy() []identity.Node {
	var t nodeTable
	t.vector(m.keys.vv)
	for _, v := range m.vals.all() {
		for _, n := range modifiedBy(v) {
			t.add(refOf(n))
		}
	}
	return t.all()
}

func (m *ormap) needsPruning(removed identity.Node) bool {
	if m.keys.needsPruning(removed) {
		return true
	}
	for _, v := range m.vals.all() {
		if v.needsPruning(removed) {
			return true
		}
	}
	return false
}

func (m *ormap) pruned(self *Self, removed identity.Node) (core, error) {
	return m.mapHistory(m.keys.prune(self, removed), removed, func(v core) (core, error) { return v.pruned(self, removed) })
}

func (m *ormap) cleaned(removed identity.Node) (core, error) {
	return m.mapHistory(m.keys.cleanup(removed), removed, func(v core) (core, error) { return v.cleaned(removed) })
}

// mapHistory returns the map with other keys, and with f applied to the values that hold history of
// a node.
func (m *ormap) mapHistory(keys *orset, removed identity.Node, f func(core) (core, error)) (core, error) {
	next := &ormap{typ: m.typ, keys: keys, vals: m.vals}
	for key, v := range m.vals.all() {
		if !v.needsPruning(removed) {
			continue
		}
		pruned, err := f(v)
		if err != nil {
			return nil, err
		}
		next.vals = next.vals.set(key, pruned)
	}
	if next.keys == m.keys && next.vals.root == m.vals.root {
		return m.reset(), nil
	}
	return next, nil
}

func (m *ormap) eachNode(t *nodeTable) {
	m.keys.eachNode(t)
	for _, v := range m.vals.all() {
		v.eachNode(t)
	}
}

// Flags after each key of an encoded map: whether the key exists, and whether it has a value.
const (
	entryKey   = 1
	entryValue = 2
)

func (m *ormap) encode(e *encoder) {
	e.vector(m.keys.vv)
	e.count(m.entries())
	keys, vals := m.keys.items.cursor(), m.vals.cursor()
	for {
		key, added := keys.item()
		of, val := vals.item()
		if added == nil && val == nil {
			return
		}
		hasKey := added != nil && (val == nil || key <= of)
		hasVal := val != nil && (added == nil || of <= key)
		flags := byte(0)
		if hasVal {
			key, flags = of, entryValue // key and of are equal if both exist
		}
		if hasKey {
			flags |= entryKey
		}
		e.text(key)
		e.dst = append(e.dst, flags)
		if hasKey {
			e.dots(added.vector())
			keys.advance()
		}
		if hasVal {
			(*val).encode(e)
			vals.advance()
		}
	}
}

func (m *ormap) entries() int {
	n := m.keys.items.n
	for key := range m.vals.all() {
		if !m.keys.items.has(key) {
			n++
		}
	}
	return n
}

func (m *ormap) decode(d *decoder) {
	type entry struct {
		flags byte
		dots  dots
		val   core
	}
	m.keys.vv = d.vector()
	all := items(d, m.typ.elem, 4, func() entry {
		e := entry{flags: d.Byte("entry")}
		if e.flags == 0 || e.flags > entryKey|entryValue || e.flags == entryValue && !m.keepsRemovedValues() {
			d.Fail("entry %d", e.flags)
		}
		if e.flags&entryKey != 0 {
			e.dots = d.dots()
		}
		if !m.keys.vv.covers(e.dots.vector()) {
			d.Fail("the version vector does not cover the dots of a key")
		}
		if e.flags&entryValue != 0 && d.Err() == nil {
			e.val = d.value(*m.typ.of)
		}
		return e
	})
	var keys []item[dots]
	var vals []item[core]
	for key, e := range all.all() {
		if e.flags&entryKey != 0 {
			keys = append(keys, item[dots]{key, e.dots})
		}
		if e.flags&entryValue != 0 {
			vals = append(vals, item[core]{key, e.val})
		}
	}
	m.keys.items, m.vals = treeOf(slices.Clip(keys)), treeOf(slices.Clip(vals))
}

// ORMap is a map whose keys are added and removed like the elements of an ORSet, and whose values
// are of any data type and merge independently. The zero value is empty. It is immutable.
//
// K is an element type as described at GSet. All values have the type V.
//
// # Caveats
//
// Removing a key discards the history of its value, because a map does not remember removed keys.
// This has the following consequences:
//
//   - A key that is removed on one node and concurrently updated on another returns with the whole
//     value of the node that updated it.
//   - A key that is removed and put again may regain its former content: grow-only sets become the
//     union of both values, counters the higher count of each node.
//   - Where removals and updates of a key race, the result depends on the order in which nodes
//     exchange messages. All nodes end with the same result.
//
// For maps of sets, ORMultiMap with value deltas does not have these problems.
//
// Ten maps of a hundred entries replicate faster than one map of a thousand entries.
type ORMap[K any, V Data[V]] struct{ keyed[ORMap[K, V], K] }

// Entry is a key of a map with its value.
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

// keyed is the common part of the maps T with keys of type K.
type keyed[T, K any] struct{ handle[T] }

func (m keyed[T, K]) core() (*ormap, error) {
	v, err := m.untyped(nil)
	if err != nil {
		return nil, err
	}
	c, ok := v.(*ormap)
	if !ok {
		return nil, wrongType(shape{kind: kindMap}, v)
	}
	return c, nil
}

func (m keyed[T, K]) entry(key K) (*ormap, string, error) {
	k, err := encodeElement(key, m.types)
	if err != nil {
		return nil, "", err
	}
	c, err := m.core()
	return c, k, err
}

// Remove returns the map without some keys. Missing keys are ignored.
func (m keyed[T, K]) Remove(self *Self, keys ...K) (T, error) {
	c, err := m.core()
	if err != nil {
		return m.of(m.v), err
	}
	encoded, err := encodeElements(keys, m.types)
	for _, k := range encoded {
		c = c.remove(self, k)
	}
	return m.changed(c, err)
}

// Contains reports whether a key exists. It is false for a key that cannot be encoded.
func (m keyed[T, K]) Contains(key K) bool {
	c, k, err := m.entry(key)
	return err == nil && c.keys.items.has(k)
}

// Len returns the number of keys.
func (m keyed[T, K]) Len() int {
	if c, ok := m.v.(*ormap); ok {
		return c.keys.items.n
	}
	return 0
}

// Keys returns the keys in the order of GSet.All. The error matches ErrElement if a key does not
// fit K or its type is not registered.
func (m keyed[T, K]) Keys() ([]K, error) {
	c, ok := m.v.(*ormap)
	if !ok {
		return nil, nil
	}
	return collect(c.keys.items.n, decodeAll[K](c.keys.items, m.types))
}

func valueOf[V, T, K any](m keyed[T, K], key K) (v V, found bool) {
	c, k, err := m.entry(key)
	if err != nil {
		return v, false
	}
	held, found := c.get(k)
	if !found {
		return v, false
	}
	v, err = typed[V](m.types, held)
	return v, err == nil
}

// entries yields the keys of a map with their values, which read decodes.
func entries[V, T, K any](m keyed[T, K], read func(core) (V, error)) iter.Seq2[Entry[K, V], error] {
	return func(yield func(Entry[K, V], error) bool) {
		c, ok := m.v.(*ormap)
		if !ok {
			return
		}
		for k := range c.keys.items.all() {
			var e Entry[K, V]
			var err error
			if e.Key, err = decodeElement[K](k, m.types); err == nil {
				v, _ := c.get(k)
				e.Value, err = read(v)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func typedEntries[V, T, K any](m keyed[T, K]) iter.Seq2[Entry[K, V], error] {
	return entries(m, func(v core) (V, error) { return typed[V](m.types, v) })
}

// Put returns the map with a value, which is merged with concurrent puts. A key that holds an ORSet
// cannot be put again, because the history of the set would be lost (ErrReplace); use Update. The
// error may also match ErrElement, ErrLimit or ErrUndefined.
func (m ORMap[K, V]) Put(self *Self, key K, value V) (ORMap[K, V], error) {
	c, k, err := m.entry(key)
	if err != nil {
		return m, err
	}
	if c.typ.of.kind == kindORSet && c.keys.items.has(k) {
		return m, ErrReplace
	}
	return m.put(self, c, k, value)
}

func (m ORMap[K, V]) put(self *Self, c *ormap, key string, value V) (ORMap[K, V], error) {
	v, err := m.types.core(value)
	if err != nil {
		return m, err
	}
	if !c.typ.of.equal(v.shape()) {
		return m, wrongType(*c.typ.of, v)
	}
	return m.of(c.put(self, key, v)), nil
}

// Update returns the map with the value of a key replaced by the result of f. f receives the
// current value, or the empty value if the key does not exist. The error is the error of f, or an
// error that Put returns.
func (m ORMap[K, V]) Update(self *Self, key K, f func(V) (V, error)) (ORMap[K, V], error) {
	c, k, err := m.entry(key)
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
	return m.put(self, c, k, after)
}

// Get returns the value of a key, and whether the key exists.
func (m ORMap[K, V]) Get(key K) (V, bool) { return valueOf[V](m.keyed, key) }

// All yields the keys with their values in the order of GSet.All. The error matches ErrElement if a
// key does not fit K or its type is not registered.
func (m ORMap[K, V]) All() iter.Seq2[Entry[K, V], error] { return typedEntries[V](m.keyed) }

// mapKind is the kind of a step of a map's delta. The numbers are part of the format.
type mapKind byte

const (
	mapPut mapKind = iota + 1
	mapUpdate
	mapRemove
	mapRemoveKey
)

// mapOp is one step: a change of the keys and a change of the values.
type mapOp struct {
	kind   mapKind
	keys   *orsetDelta
	key    string       // unused by mapUpdate
	val    core         // mapPut
	deltas tree[change] // mapUpdate
}

type mapDelta struct {
	typ *shape
	ops []*mapOp
}

// with returns the delta with one more step. d may be nil.
func (d *mapDelta) with(typ *shape, op *mapOp) *mapDelta {
	if d == nil {
		return &mapDelta{typ, []*mapOp{op}}
	}
	ops, err := joinMapOps(d.ops, []*mapOp{op})
	if err != nil { // cannot happen: the deltas of one key have one type
		ops = slices.Concat(d.ops, []*mapOp{op})
	}
	return &mapDelta{typ, ops}
}

// keys returns the keys that a delta changes. d may be nil.
func (d *mapDelta) keys() []string {
	if d == nil {
		return nil
	}
	var keys []string
	for _, op := range d.ops {
		if op.kind != mapUpdate {
			keys = append(keys, op.key)
			continue
		}
		for key := range op.deltas.all() {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// joinMapOps concatenates two lists of steps. Adjacent steps are combined into one where possible.
func joinMapOps(a, b []*mapOp) ([]*mapOp, error) {
	ops := slices.Clone(a)
	for _, op := range b {
		if len(ops) == 0 {
			ops = append(ops, op)
			continue
		}
		both, err := ops[len(ops)-1].join(op)
		if err != nil {
			return nil, err
		}
		if both == nil {
			ops = append(ops, op)
		} else {
			ops[len(ops)-1] = both
		}
	}
	return ops, nil
}

// join returns one step with the effect of this step and a later one, or nil if no single step has this effect.
func (op *mapOp) join(later *mapOp) (*mapOp, error) {
	if op.kind != mapPut && op.kind != mapUpdate || later.kind != mapPut && later.kind != mapUpdate {
		return nil, nil
	}
	keys := &orsetDelta{op.keys.elem, joinOps(op.keys.ops, later.keys.ops)}
	switch {
	case op.kind == mapUpdate && later.kind == mapUpdate:
		deltas := op.deltas
		for key, d := range later.deltas.all() {
			if former, found := deltas.get(key); found {
				var err error
				if d, err = join(former, d); err != nil {
					return nil, err
				}
			}
			deltas = deltas.set(key, d)
		}
		return &mapOp{kind: mapUpdate, keys: keys, deltas: deltas}, nil
	case later.kind == mapUpdate:
		d, found := later.deltas.get(op.key)
		if !found || later.deltas.n > 1 {
			return nil, nil
		}
		val, err := applyDelta(op.val, d)
		if err != nil {
			return nil, err
		}
		return &mapOp{kind: mapPut, keys: keys, key: op.key, val: val}, nil
	case op.kind == mapPut && op.key != later.key,
		op.kind == mapUpdate && (op.deltas.n > 1 || !op.deltas.has(later.key)):
		return nil, nil
	}
	return &mapOp{kind: mapPut, keys: keys, key: later.key, val: later.val}, nil
}

// replay returns the map after the steps of a delta, without merging concurrent changes.
func (m *ormap) replay(d *mapDelta) (*ormap, error) {
	next := &ormap{typ: m.typ, keys: m.keys.reset(), vals: m.vals}
	for _, op := range d.ops {
		next.keys = next.keys.apply(op.keys)
		switch op.kind {
		case mapPut:
			next.vals = next.vals.set(op.key, op.val)
		case mapRemove:
			next.vals = next.vals.delete(op.key)
		case mapRemoveKey: // a value without a key
		case mapUpdate:
			for key, vd := range op.deltas.all() {
				if !next.keys.items.has(key) {
					continue
				}
				v, err := applyDelta(next.valueOrEmpty(key), vd)
				if err != nil {
					return nil, err
				}
				next.vals = next.vals.set(key, v)
			}
		}
	}
	return next, nil
}

func (d *mapDelta) applyTo(c core) (core, error) {
	m, _ := c.(*ormap)
	after, err := m.replay(d)
	if err != nil {
		return nil, err
	}
	// The previous values may be concurrent, so merge instead of replacing them.
	return m.mergeKeys(after, d.keys())
}

func (d *mapDelta) opCount() int { return len(d.ops) }
func (d *mapDelta) shape() shape { return *d.typ }

func (d *mapDelta) then(later change) (change, error) {
	l, _ := later.(*mapDelta)
	ops, err := joinMapOps(d.ops, l.ops)
	return &mapDelta{d.typ, ops}, err
}

func (d *mapDelta) eachNode(t *nodeTable) {
	for _, op := range d.ops {
		op.keys.eachNode(t)
		if op.val != nil {
			op.val.eachNode(t)
		}
		for _, vd := range op.deltas.all() {
			vd.eachNode(t)
		}
	}
}

func (d *mapDelta) encode(e *encoder) {
	e.count(len(d.ops))
	for _, op := range d.ops {
		e.dst = append(e.dst, byte(op.kind))
		op.keys.encode(e)
		if op.kind == mapUpdate {
			e.count(op.deltas.n)
			for key, vd := range op.deltas.all() {
				e.text(key)
				vd.encode(e)
			}
			continue
		}
		e.text(op.key)
		if op.kind == mapPut {
			op.val.encode(e)
		}
	}
}

func (d *decoder) mapDelta(s shape) *mapDelta {
	return &mapDelta{&s, steps(d, 6, func() *mapOp { return d.mapOp(s) })}
}

func (d *decoder) mapOp(s shape) *mapOp {
	op := &mapOp{kind: mapKind(d.Byte("step"))}
	if op.kind == 0 || op.kind > mapRemoveKey || op.kind == mapRemoveKey && s.kind != kindMultiMapDeltas {
		d.Fail("step %d is unknown", op.kind)
		return op
	}
	op.keys = d.orsetDelta(s.elem)
	switch {
	case d.Err() != nil:
	case op.kind == mapUpdate && s.of.deltas() == NoDeltas:
		d.Fail("%v has no deltas", s.of)
	case op.kind == mapUpdate:
		op.deltas = items(d, s.elem, 4, func() change { return d.delta(*s.of) })
	default:
		op.key = string(d.element(s.elem))
		if op.kind == mapPut && d.Err() == nil {
			op.val = d.value(*s.of)
		}
	}
	return op
}
