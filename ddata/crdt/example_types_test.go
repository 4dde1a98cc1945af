// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"fmt"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// selves returns one Self for each node. A program uses the Self of its replicator.
func selves(names ...string) (all []*crdt.Self) {
	for i, name := range names {
		self, err := crdt.NewSelf(identity.Node{Name: name, UID: uint64(i + 1)})
		if err != nil {
			panic(err)
		}
		all = append(all, self)
	}
	return all
}

// Each node has its own count, so repeated merges count nothing twice.
func ExamplePNCounter() {
	nodes := selves("a:1", "b:1")
	var atA, atB crdt.PNCounter
	atA = atA.Add(nodes[0], 5)
	atB = atB.Add(nodes[1], -2)
	atA, _ = atA.Merge(atB)
	atA, _ = atA.Merge(atB)
	fmt.Println(atA.Value())
	// Output: 3
}

// The highest version of another system wins, not the last write.
func ExampleLWWRegister_SetBy() {
	byVersion := func(version int64) crdt.Clock[string] {
		return func(*crdt.Self, int64, string) (int64, error) { return version, nil }
	}
	nodes := selves("a:1", "b:1")
	var atA, atB crdt.LWWRegister[string]
	atB, _ = atB.SetBy(nodes[1], "1.20 a pound", byVersion(8))
	atA, _ = atA.SetBy(nodes[0], "1.00 a pound", byVersion(7)) // written later, with a lower version
	atA, _ = atA.Merge(atB)
	fmt.Println(atA.Value())
	// Output: 1.20 a pound <nil>
}

// With value deltas, a key that one node removes while another adds an element keeps only that
// element.
func ExampleORMultiMap_WithValueDeltas() {
	nodes := selves("a:1", "b:1")
	atA, err := crdt.ORMultiMap[string, string]{}.WithValueDeltas() // before the first change
	if err != nil {
		fmt.Println(err)
		return
	}
	atA, _ = atA.Add(nodes[0], "team", "ann", "bob")
	atB, _ := crdt.ORMultiMap[string, string]{}.WithValueDeltas()
	atB, _ = atB.Merge(atA)

	atA, _ = atA.Remove(nodes[0], "team")
	atB, _ = atB.ResetDelta().Add(nodes[1], "team", "cid") // concurrently
	added, _ := atB.Delta()
	atA, _ = atA.MergeDelta(added)

	team, _ := atA.Get("team")
	fmt.Println(team.Elements())
	// Output: [cid] <nil>
}
