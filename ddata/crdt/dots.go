// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

// dots are the changes by which an element was added, as an element of a tree holds them: mostly there is one, which takes no
// memory of its own. The zero value are none.
type dots struct {
	one  [1]dot  // if there is one
	more *vector // if there are more
}

func dotsOf(v vector) dots {
	switch len(v) {
	case 0:
		return dots{}
	case 1:
		return dots{one: [1]dot{v[0]}}
	}
	more := append(vector(nil), v...) // a copy, so that v need not be on the heap
	return dots{more: &more}
}

// vector returns them. It may refer to d.
func (d *dots) vector() vector {
	switch {
	case d.more != nil:
		return *d.more
	case d.one[0].n != 0:
		return d.one[:]
	}
	return nil
}

// of returns the number of a node, 0 if there is none.
func (d *dots) of(m member) uint64 {
	if d.more == nil && d.one[0].node == m {
		return d.one[0].n
	}
	return d.vector().of(m)
}
