// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"slices"
	"testing"

	"github.com/refold-io/refold/cluster"
)

// What is attached to a node is made once, and is of that node only.
func TestAttached(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		type key struct{}
		type other struct{}
		a := w.start("a", func(c *cluster.Config) { c.Roles = []string{"web", "db", "web"} })
		b := w.start("b")
		one, two := new(int), new(int)
		for _, n := range []*int{one, two} {
			if got := a.Attached(key{}, func() any { return n }); got != one {
				t.Error("it was made again")
			}
		}
		if a.Attached(other{}, func() any { return two }) != two || b.Attached(key{}, func() any { return two }) != two {
			t.Error("another key, or another node, got the same")
		}
		if got := a.Roles(); !slices.Equal(got, []string{"db", "web"}) {
			t.Errorf("roles: %v", got)
		}
	})
}
