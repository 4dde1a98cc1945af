// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "slices"

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
