// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func node(name string) identity.Node { return identity.Node{Name: name, UID: 7} }

// counts returns a view of the regions a, b, c and so on with the given numbers of shards, which
// are numbered from 0. All members are Up.
func counts(numbers ...int) allocation.View {
	var v allocation.View
	next := allocation.Shard(0)
	for i, n := range numbers {
		r := allocation.Region{Node: node(string(rune('a' + i)))}
		for range n {
			r.Shards = append(r.Shards, next)
			next++
		}
		v.Regions = append(v.Regions, r)
		v.Members = append(v.Members, identity.Member{Node: r.Node, Status: identity.Up, UpNumber: int32(i)})
	}
	return v
}

func version(t *testing.T, s string) identity.Version {
	t.Helper()
	v, err := identity.ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func names(regions []allocation.Region) string {
	text := ""
	for _, r := range regions {
		text += r.Node.Name
	}
	return text
}

func shards(numbers ...allocation.Shard) []allocation.Shard { return numbers }

// apply moves shards to the choice of a strategy.
func apply(v allocation.View, moved []allocation.Shard, pick func(allocation.View, allocation.Request) (identity.Node, bool)) allocation.View {
	var requests []allocation.Request
	for _, s := range moved {
		for i := range v.Regions {
			r := &v.Regions[i]
			for k, has := range r.Shards {
				if has == s {
					r.Shards = append(append([]allocation.Shard(nil), r.Shards[:k]...), r.Shards[k+1:]...)
					break
				}
			}
		}
		requests = append(requests, allocation.Request{Shard: s})
	}
	for k, n := range allocation.All(v, requests, pick) {
		if i, found := allocation.Find(v.Regions, n); found {
			v.Regions[i].Shards = append(v.Regions[i].Shards, moved[k])
		}
	}
	return v
}

func sizes(v allocation.View) string {
	var all []int
	for _, r := range v.Regions {
		all = append(all, len(r.Shards))
	}
	return fmt.Sprint(all)
}
