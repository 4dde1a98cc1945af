// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "github.com/refold-io/refold/identity"

// By reports whether the changes were made with the Self of a node and of no other, as far as a delta says that: the deltas of
// a user's type do not.
func (d Delta) By(node identity.Node) bool { return d.c == nil || d.c.by(node) }

func (d whole) by(node identity.Node) bool {
	switch c := d.core.(type) {
	case *gcounter:
		return c.tallies.by(node)
	case *pncounter:
		return c.up.by(node) && c.down.by(node)
	}
	return true // it has no history of nodes
}

func (t tallies) by(node identity.Node) bool {
	for i := range t {
		if t[i].node.Value() != node {
			return false
		}
	}
	return true
}

func (d *orsetDelta) by(node identity.Node) bool {
	for i := range d.ops {
		op := &d.ops[i]
		if op.kind != opFull && !op.vv.by(node) { // what a set held before it was cleared is of others
			return false
		}
	}
	return true
}

func (v vector) by(node identity.Node) bool {
	for i := range v {
		if v[i].node.Value() != node {
			return false
		}
	}
	return true
}

func (d *mapDelta) by(node identity.Node) bool {
	for _, op := range d.ops {
		if !op.keys.by(node) {
			return false
		}
		for _, vd := range op.deltas.all() {
			if !vd.by(node) {
				return false
			}
		}
	}
	return true
}

func (d *ownDelta) by(identity.Node) bool { return true }
