// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"slices"
)

// owns looks at what the node hosts after a step: a shard has one owner at most, and it is one that was stored as its home.
func (n *node) owns() {
	c := n.c
	if n.m.Turn() == n.turn {
		return
	}
	n.turn = n.m.Turn()
	hosted := n.m.Hosted()
	for _, s := range n.hosted {
		if _, still := slices.BinarySearch(hosted, s); !still && c.owners[s] == n {
			c.owners[s] = nil
			c.owned--
		}
	}
	for _, s := range hosted {
		if _, before := slices.BinarySearch(n.hosted, s); before {
			continue
		}
		if other := c.owners[s]; other != nil && other != n {
			c.result.Owners = 2
			c.violate("%v hosts shard %d, and so does %v", n.self, s, other.self)
			continue
		}
		if home, _ := c.store.state.Home(s); home != n.self {
			c.violate("%v hosts shard %d, and its home is stored as %v", n.self, s, home)
		}
		c.owners[s] = n
		c.owned++
		c.result.Owners = max(c.result.Owners, 1)
	}
	n.hosted = hosted
}
