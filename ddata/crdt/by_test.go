// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

// A delta knows by whose Self it was made.
func TestDeltaBy(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "b")
	for what, change := range map[string]func(self *crdt.Self) (any, error){
		"GCounter":  func(s *crdt.Self) (any, error) { return crdt.GCounter{}.Add(s, 1), nil },
		"PNCounter": func(s *crdt.Self) (any, error) { return crdt.PNCounter{}.Add(s, -1), nil },
		"ORSet":     func(s *crdt.Self) (any, error) { return crdt.ORSet[string]{}.Add(s, "x") },
		"PNCounterMap": func(s *crdt.Self) (any, error) {
			return crdt.PNCounterMap[string]{}.Add(s, "x", 1)
		},
		"LWWMap": func(s *crdt.Self) (any, error) { return crdt.LWWMap[string, int]{}.Put(s, "x", 1) },
		"ORMultiMap": func(s *crdt.Self) (any, error) {
			return crdt.ORMultiMap[string, string]{}.Add(s, "x", "y")
		},
	} {
		if d := value(must(change(a))).Delta(); d.IsZero() || !d.By(a.Node()) || d.By(b.Node()) {
			t.Errorf("%s: by a %t, by b %t", what, d.By(a.Node()), d.By(b.Node()))
		}
	}
	cleared := must(crdt.ORSet[string]{}.Add(a, "x")).ResetDelta().Clear()
	for what, d := range map[string]crdt.Delta{"none": {}, "clear": value(cleared).Delta()} {
		if !d.By(b.Node()) {
			t.Errorf("%s is not by whoever it is", what)
		}
	}
}

// No value is of no type.
func TestNoType(t *testing.T) {
	t.Parallel()
	if got := (crdt.Value{}).Type(); got != "" {
		t.Errorf("%q", got)
	}
}
