// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"unique"

	"github.com/refold-io/refold/identity"
)

// member is a node within a value. Values are full of the same few nodes: as one word each they take little memory, and the
// garbage collector does not have to look at each of their names. The zero member is no node.
type member = unique.Handle[identity.Node]

func memberOf(n identity.Node) member { return unique.Make(n) }

// nodeOf returns the node of a member, the zero Node if it is none.
func nodeOf(m member) identity.Node {
	if m == (member{}) {
		return identity.Node{}
	}
	return m.Value()
}

// compareMembers is identity.Node.Compare. None of them may be the zero member, unless both are.
func compareMembers(a, b member) int {
	if a == b {
		return 0
	}
	return a.Value().Compare(b.Value())
}
