// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"github.com/refold-io/refold/identity"
)

// Find returns where a node is in a list of members that is sorted by node, or where it would be, and whether it is there.
func Find(members []Member, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(members, n, func(m Member, n identity.Node) int { return m.Node.Compare(n) })
}

// Gone returns the nodes of a list of members that are not in a later one. Both are sorted by node, and so is what it returns. Mostly nobody is
// gone: that takes one pass, and no memory.
func Gone(before, now []Member) []identity.Node {
	var gone []identity.Node
	for i := range before {
		n := before[i].Node
		for len(now) > 0 && now[0].Node != n && now[0].Node.Compare(n) < 0 {
			now = now[1:]
		}
		if len(now) == 0 || now[0].Node != n {
			gone = append(gone, n)
			continue
		}
		now = now[1:]
	}
	return gone
}
