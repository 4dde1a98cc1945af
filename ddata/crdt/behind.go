// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "slices"

// Behind reports whether a delta takes something away that its node had seen and the value has
// not. Merged it would say nothing of that, which then could come later and stay: whoever has to
// know of the removal needs the whole value instead. What has come from the delta's own node does
// not count, see Delta.NeedsCausal. A type of one's own is never behind.
func (v Value) Behind(d Delta) bool {
	if d.c == nil || !v.c.shape().equal(d.c.shape()) {
		return false
	}
	return behind(v.c, d.c)
}

func behind(c core, d change) bool {
	switch d := d.(type) {
	case *orsetDelta:
		s, ok := c.(*orset)
		return ok && s.behind(d)
	case *mapDelta:
		m, ok := c.(*ormap)
		return ok && m.behind(d)
	}
	return false
}

func (s *orset) behind(d *orsetDelta) bool {
	if !slices.ContainsFunc(d.ops, func(op orsetOp) bool { return op.kind == opRemove }) {
		return false
	}
	seen := s.vv
	for i := range d.ops {
		op := &d.ops[i]
		switch op.kind {
		case opAdd:
		case opRemove:
			if !seen.max(op.vv).covers(op.context) {
				return true
			}
		case opFull:
			seen = seen.max(op.full.vv)
		}
		seen = seen.max(op.vv)
	}
	return false
}

func (m *ormap) behind(d *mapDelta) bool {
	seen := m.keys
	for _, op := range d.ops {
		if seen.behind(op.keys) {
			return true
		}
		seen = &orset{elem: seen.elem, vv: seen.vv}
		for i := range op.keys.ops {
			step := &op.keys.ops[i]
			if seen.vv = seen.vv.max(step.vv); step.full != nil {
				seen.vv = seen.vv.max(step.full.vv)
			}
		}
		for key, vd := range op.deltas.all() {
			v, found := m.vals.get(key)
			if !found {
				v = m.typ.of.empty()
			}
			if behind(v, vd) {
				return true
			}
		}
	}
	return false
}
