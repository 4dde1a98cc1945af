// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

// Sweeps is how many steps of the delta go through all that a value holds, however short they are themselves: sets that are
// cleared. Whoever takes deltas from elsewhere should have a limit for it. It is 0 for a type of one's own.
func (d Delta) Sweeps() int {
	if d.c == nil {
		return 0
	}
	return sweeps(d.c)
}

func sweeps(d change) int {
	n := 0
	switch d := d.(type) {
	case *orsetDelta:
		for i := range d.ops {
			if d.ops[i].kind == opFull {
				n++
			}
		}
	case *mapDelta:
		for _, op := range d.ops {
			most := 0 // the values of different keys have their own elements
			for _, vd := range op.deltas.all() {
				most = max(most, sweeps(vd))
			}
			n += sweeps(op.keys) + most
		}
	}
	return n
}
