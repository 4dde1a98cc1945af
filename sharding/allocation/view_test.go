// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

func TestSuitable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		view func(v *allocation.View)
		want string
		best bool
	}{
		"fewer shards first, then by node": {func(*allocation.View) {}, "bcda", true}, // the regions have 2, 0, 1 and 1 shards
		"a newer version first": {func(v *allocation.View) {
			v.Members[0].Version = version(t, "1.10")
			v.Members[3].Version = version(t, "1.9")
		}, "adbc", true},
		"leaving regions are last": {func(v *allocation.View) { v.Members[1].Status = identity.Leaving }, "cdab", true},
		"exiting regions follow leaving ones": {func(v *allocation.View) {
			v.Members[1].Status, v.Members[2].Status = identity.Exiting, identity.Leaving
		}, "dacb", true},
		"down regions are last": {func(v *allocation.View) { v.Members[1].Status = identity.Down }, "cdab", true},
		"leaving counts more than the version": {func(v *allocation.View) {
			v.Members[1].Status, v.Members[1].Version = identity.Leaving, version(t, "9.0")
		}, "cdab", true},
		"the order is the same while the cluster stops": {func(v *allocation.View) {
			v.Members[0].Status, v.Members[1].Status = identity.PreparingForShutdown, identity.ReadyForShutdown
		}, "bcda", true},
		"unreachable regions follow leaving ones": {func(v *allocation.View) {
			v.Unreachable = []identity.Node{node("b"), node("c")}
			v.Members[3].Status = identity.Leaving
		}, "adbc", true},
		"regions of unknown members are omitted":      {func(v *allocation.View) { v.Members = slices.Delete(v.Members, 1, 2) }, "cda", true},
		"regions of an older incarnation are omitted": {func(v *allocation.View) { v.Members[1].Node.UID++ }, "cda", true},
		"regions of a newer incarnation are omitted":  {func(v *allocation.View) { v.Members[1].Node.UID-- }, "cda", true},
		"regions without the role may not host":       {func(v *allocation.View) { v.Role = "entities"; v.Members[0].Roles = []string{"entities"} }, "abcd", true},
		"weakly up and joining regions may not host": {func(v *allocation.View) {
			v.Members[1].Status, v.Members[2].Status = identity.WeaklyUp, identity.Joining
		}, "dabc", true},
		"no region may host shards": {func(v *allocation.View) {
			for i := range v.Members {
				v.Members[i].Status = identity.Down
			}
		}, "bcda", false},
		"no member is known": {func(v *allocation.View) { v.Members = nil }, "", false},
	} {
		v := counts(2, 0, 1, 1)
		test.view(&v)
		got := names(v.Suitable())
		if got != test.want {
			t.Errorf("%s: Suitable = %s, want %s", name, got, test.want)
		}
		best, ok := v.Best()
		if ok != test.best || ok && best.Name != got[:1] {
			t.Errorf("%s: Best = %v, %t, Suitable = %s, want the first suitable region and %t", name, best, ok, got, test.best)
		}
		for _, r := range v.Regions {
			if first := (allocation.View{Regions: []allocation.Region{r}, Members: v.Members, Unreachable: v.Unreachable, Role: v.Role}); v.MayHost(r.Node) != mayHost(first) {
				t.Errorf("%s: MayHost(%v) = %t, want the opposite", name, r.Node, v.MayHost(r.Node))
			}
		}
	}
	v := counts(1)
	if v.MayHost(node("b")) {
		t.Error("MayHost of an unknown node = true, want false")
	}
}

func mayHost(v allocation.View) bool {
	_, ok := v.Best()
	return ok
}

func TestGoodTime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		view func(v *allocation.View)
		want bool
	}{
		"all members up with one version": {func(*allocation.View) {}, true},
		"no regions":                      {func(v *allocation.View) { v.Regions = nil }, false},
		"no members":                      {func(v *allocation.View) { v.Members = nil }, false},
		"two versions":                    {func(v *allocation.View) { v.Members[1].Version = version(t, "1.0.0") }, false},
		"one version": {func(v *allocation.View) {
			v.Members[0].Version, v.Members[1].Version = version(t, "0.0"), version(t, "0.0.0")
		}, true},
		"a version without a region": {func(v *allocation.View) {
			v.Members = append(v.Members, identity.Member{Node: node("z"), Status: identity.Up, Version: version(t, "3.0")})
		}, true},
		"a member is unreachable":               {func(v *allocation.View) { v.Unreachable = []identity.Node{node("z")} }, false},
		"a member is joining":                   {func(v *allocation.View) { v.Members[1].Status = identity.Joining }, false},
		"a member is weakly up":                 {func(v *allocation.View) { v.Members[1].Status = identity.WeaklyUp }, false},
		"a member is leaving":                   {func(v *allocation.View) { v.Members[2].Status = identity.Leaving }, true},
		"the cluster prepares its shutdown":     {func(v *allocation.View) { v.Members[1].Status = identity.PreparingForShutdown }, false},
		"the cluster is ready for its shutdown": {func(v *allocation.View) { v.Members[1].Status = identity.ReadyForShutdown }, false},
	} {
		v := counts(4, 0, 0)
		test.view(&v)
		if got := v.GoodTime(); got != test.want {
			t.Errorf("%s: GoodTime = %t, want %t", name, got, test.want)
		}
		// No strategy moves shards if GoodTime is false.
		for name, moved := range map[string][]allocation.Shard{
			"least": allocation.LeastShards{}.Rebalance(v), "threshold": allocation.Threshold{}.Rebalance(v), "hashing": new(allocation.Hashing).Rebalance(v),
		} {
			if (len(moved) > 0) != test.want {
				t.Errorf("%s.Rebalance = %v, want moves only at a good time, which is %t", name, moved, test.want)
			}
		}
	}
}

// The order is total, so the result does not depend on the sort algorithm.
func TestSuitableOrderIsTotal(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		v := counts(rnd.IntN(3), rnd.IntN(3), rnd.IntN(3), rnd.IntN(3), rnd.IntN(3), rnd.IntN(3))
		for i := range v.Members {
			v.Members[i].Status = identity.Joining + identity.Status(rnd.IntN(9))
			v.Members[i].Version = version(t, []string{"1.0", "1.1", "2.0"}[rnd.IntN(3)])
		}
		order := v.Suitable()
		for i := range order {
			for k := i + 1; k < len(order); k++ {
				pair := []allocation.Region{order[i], order[k]}
				slices.SortFunc(pair, func(a, b allocation.Region) int { return a.Node.Compare(b.Node) })
				two := allocation.View{Regions: pair, Members: v.Members}
				if got := names(two.Suitable()); got != order[i].Node.Name+order[k].Node.Name {
					t.Fatalf("order of all candidates: %s, order of two of them: %s, want the same order", names(order), got)
				}
			}
		}
	}
}

func TestAllIncludesEarlierHomes(t *testing.T) {
	t.Parallel()
	v := counts(3, 0, 1)
	before := sizes(v)
	var requests []allocation.Request
	for s := range allocation.Shard(5) {
		requests = append(requests, allocation.Request{Shard: 10 + s, Requester: node("a")})
	}
	got := ""
	for _, n := range allocation.All(v, requests, allocation.LeastShards{}.Allocate) {
		got += n.Name
	}
	if got != "bbcbc" {
		t.Errorf("All allocated to %s, want bbcbc", got)
	}
	if after := sizes(v); after != before {
		t.Errorf("All changed its view from %s to %s, want no change", before, after)
	}
	for _, n := range allocation.All(v, requests, func(allocation.View, allocation.Request) (identity.Node, bool) { return node("z"), true }) {
		if !n.IsZero() {
			t.Errorf("All allocated to %v for a region that is not in the view, want no node", n)
		}
	}
	for _, n := range allocation.All(v, requests, func(allocation.View, allocation.Request) (identity.Node, bool) { return node("a"), false }) {
		if !n.IsZero() {
			t.Errorf("All allocated to %v without a region, want no node", n)
		}
	}
}
