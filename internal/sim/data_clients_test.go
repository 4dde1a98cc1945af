// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/sim"
)

// On a replicator that has deleted a key, no addition to the key counts as present. Replicators
// without the addition have therefore lost nothing.
func TestDeletedHoldsNoAddition(t *testing.T) {
	t.Parallel()
	with, without := dict(t, "x"), dict(t, "y")
	for _, c := range []struct {
		name           string
		value          crdt.Value
		deleted, found bool
		addition       [2]bool // whether it counts as contained, and as present
		deletion       [2]bool
	}{
		{"with it", with, false, true, [2]bool{true, true}, [2]bool{}},
		{"without it", without, false, true, [2]bool{}, [2]bool{}},
		{"key not found", crdt.Value{}, false, false, [2]bool{}, [2]bool{}},
		{"deleted", crdt.Value{}, true, true, [2]bool{true, false}, [2]bool{true, true}},
	} {
		p := sim.NewPresence("x")
		there, present := p.Addition(c.value, c.deleted, c.found)
		if got := [2]bool{there, present}; got != c.addition {
			t.Errorf("%s: the addition is contained and present: got %v, want %v", c.name, got, c.addition)
		}
		there, present = p.Deletion(c.value, c.deleted, c.found)
		if got := [2]bool{there, present}; got != c.deletion {
			t.Errorf("%s: the deletion is contained and present: got %v, want %v", c.name, got, c.deletion)
		}
	}
}

func dict(t *testing.T, key string) crdt.Value {
	t.Helper()
	self, err := crdt.NewSelf(identity.Node{Name: "n1", UID: 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := crdt.LWWMap[string, string]{}.Put(self, key, "")
	if err != nil {
		t.Fatal(err)
	}
	v, err := (*crdt.Types)(nil).Value(m)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
