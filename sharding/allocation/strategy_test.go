// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

func TestLeastShardsRebalance(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		strategy allocation.LeastShards
		view     allocation.View
		want     []allocation.Shard
	}{
		"no shards":                                  {view: counts(0, 0)},
		"no regions":                                 {view: counts()},
		"even":                                       {view: counts(2, 2, 2)},
		"difference of one":                          {view: counts(3, 2, 2)},
		"one shard":                                  {view: counts(1, 0)},
		"shards in excess of the part":               {view: counts(4, 0), want: shards(0)},
		"RelativeLimit 1":                            {strategy: allocation.LeastShards{RelativeLimit: 1}, view: counts(4, 0), want: shards(0, 1)},
		"at least one shard moves":                   {strategy: allocation.LeastShards{RelativeLimit: 0.0001}, view: counts(8, 0), want: shards(0)},
		"AbsoluteLimit 3":                            {strategy: allocation.LeastShards{AbsoluteLimit: 3, RelativeLimit: 1}, view: counts(10, 0), want: shards(0, 1, 2)},
		"default absolute limit":                     {view: counts(300, 0), want: upTo(20)},
		"default relative limit":                     {view: counts(110, 0), want: upTo(11)},
		"RelativeLimit without rounding loss":        {strategy: allocation.LeastShards{AbsoluteLimit: 100, RelativeLimit: 0.29}, view: counts(100, 0), want: upTo(29)},
		"best region first":                          {strategy: allocation.LeastShards{RelativeLimit: 1}, view: counts(5, 4, 0), want: shards(5, 0, 1)},
		"part is rounded up":                         {strategy: allocation.LeastShards{RelativeLimit: 1}, view: counts(3, 3, 2), want: nil},
		"region that lacks two shards":               {strategy: allocation.LeastShards{RelativeLimit: 1}, view: counts(3, 3, 1), want: shards(0)},
		"only one shard for a region that lacks two": {strategy: allocation.LeastShards{RelativeLimit: 1}, view: counts(3, 3, 3, 1), want: shards(0)},
		"two regions that lack two shards":           {strategy: allocation.LeastShards{RelativeLimit: 1}, view: counts(4, 4, 4, 4, 2, 2), want: shards(0, 4)},
		"AbsoluteLimit 1 with two regions that lack shards": {strategy: allocation.LeastShards{AbsoluteLimit: 1, RelativeLimit: 1}, view: counts(4, 4, 4, 4, 2, 2), want: shards(0)},
		"no round while a shard moves":                      {view: moving(counts(10, 0), 0)},
	} {
		if got := test.strategy.Rebalance(test.view); !slices.Equal(got, test.want) {
			t.Errorf("%s: Rebalance = %v, want %v", name, got, test.want)
		}
	}
}

func TestThresholdRebalance(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		strategy allocation.Threshold
		view     allocation.View
		want     []allocation.Shard
	}{
		"no shards":                                        {view: counts(0, 0)},
		"difference equal to the threshold":                {view: counts(1, 0)},
		"difference above the threshold":                   {view: counts(2, 0), want: shards(0)},
		"at most the threshold in one decision":            {view: counts(9, 0), want: shards(0)},
		"difference equal to a threshold of 10":            {strategy: allocation.Threshold{Difference: 10}, view: counts(10, 0)},
		"difference above a threshold of 10":               {strategy: allocation.Threshold{Difference: 10}, view: counts(12, 0), want: shards(0, 1)},
		"at most MaxMoving shards":                         {strategy: allocation.Threshold{Difference: 10}, view: counts(19, 0), want: shards(0, 1, 2)},
		"MaxMoving includes moving shards":                 {strategy: allocation.Threshold{Difference: 10}, view: moving(counts(30, 0), 0, 2), want: shards(1)},
		"MaxMoving shards are moving":                      {strategy: allocation.Threshold{Difference: 10}, view: moving(counts(30, 0), 0, 1, 2)},
		"moving shards of the fullest region do not count": {strategy: allocation.Threshold{Difference: 2}, view: moving(counts(4, 0), 0, 1)},
		"moving shards of the best region count":           {strategy: allocation.Threshold{Difference: 1}, view: moving(counts(2, 4), 0, 1), want: shards(2)},
		"first of several fullest regions":                 {view: counts(3, 1, 3, 5, 5), want: shards(7)},
		"lowest shard numbers first":                       {strategy: allocation.Threshold{Difference: 2}, view: reversed(counts(6, 0)), want: shards(0, 1)},
	} {
		if got := test.strategy.Rebalance(test.view); !slices.Equal(got, test.want) {
			t.Errorf("%s: Rebalance = %v, want %v", name, got, test.want)
		}
	}
}

// A third region joins two that have all the shards. Rounds of moves balance the regions without
// moving a shard twice.
func TestRebalanceEnds(t *testing.T) {
	t.Parallel()
	least, threshold, hashing := allocation.LeastShards{}, allocation.Threshold{Difference: 10, MaxMoving: 3}, &allocation.Hashing{Limit: 7}
	for name, test := range map[string]struct {
		rebalance func(allocation.View) []allocation.Shard
		allocate  func(allocation.View, allocation.Request) (identity.Node, bool)
		want      string // sizes at the end
		rounds    int
	}{
		"least":     {least.Rebalance, least.Allocate, "[100 100 100]", 5},
		"threshold": {threshold.Rebalance, threshold.Allocate, "[102 103 95]", 32},
	} {
		v := counts(150, 150, 0)
		moved, rounds := map[allocation.Shard]bool{}, 0
		for {
			chosen := test.rebalance(v)
			if len(chosen) == 0 {
				break
			}
			rounds++
			for _, s := range chosen {
				if moved[s] {
					t.Errorf("%s: shard %d moved twice", name, s)
				}
				moved[s] = true
			}
			v = apply(v, chosen, test.allocate)
		}
		if got := sizes(v); got != test.want || rounds != test.rounds {
			t.Errorf("%s: sizes %s after %d rounds, want %s after %d", name, got, rounds, test.want, test.rounds)
		}
	}
	v := counts(150, 150, 0)
	for range 100 {
		v = apply(v, hashing.Rebalance(v), hashing.Allocate)
	}
	if left := hashing.Rebalance(v); len(left) > 0 {
		t.Errorf("hashing: Rebalance = %v at the end, want none", left)
	}
}

// By default a round moves a tenth of all shards, twenty at most, from the first regions that
// exceed their part. The sizes still differ much after a round.
func TestRoundsOfLeastShards(t *testing.T) {
	t.Parallel()
	v := counts(99, 98, 0)
	for round, want := range []string{"[99 79 19]", "[93 66 38]", "[74 66 57]", "[66 66 65]", "[66 66 65]"} {
		v = apply(v, allocation.LeastShards{}.Rebalance(v), allocation.LeastShards{}.Allocate)
		if got := sizes(v); got != want {
			t.Errorf("sizes after round %d: %s, want %s", round+1, got, want)
		}
	}
}

// From any start, rounds end after the minimum number of moves, with regions that differ by at most
// one.
func TestLeastShardsBalancesRandomViews(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		having := make([]int, 1+rnd.IntN(26))
		n, moves := 0, 0
		for i := range having {
			if rnd.IntN(4) > 0 {
				having[i] = rnd.IntN(1 + rnd.IntN(40))
			}
			n += having[i]
		}
		part, beyond, short := (n+len(having)-1)/len(having), 0, 0
		for _, k := range having {
			beyond, short = beyond+max(0, k-part), short+max(0, part-1-k)
		}
		v := counts(having...)
		for {
			chosen := allocation.LeastShards{}.Rebalance(v)
			if moves += len(chosen); len(chosen) == 0 || moves > n {
				break
			}
			v = apply(v, chosen, allocation.LeastShards{}.Allocate)
		}
		least, most := n, 0
		for _, r := range v.Regions {
			least, most = min(least, len(r.Shards)), max(most, len(r.Shards))
		}
		if most-least > 1 || moves != max(beyond, short) {
			t.Errorf("sizes %v become %s with %d moves, want %d moves", having, sizes(v), moves, max(beyond, short))
		}
	}
}

func TestLimitsAreChecked(t *testing.T) {
	t.Parallel()
	for _, s := range []interface{ Validate() error }{
		allocation.LeastShards{}, allocation.LeastShards{AbsoluteLimit: 1, RelativeLimit: 1}, allocation.Threshold{}, allocation.Threshold{Difference: 1, MaxMoving: 1}, &allocation.Hashing{}, &allocation.Hashing{Limit: 1},
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("Validate of %+v: %v, want no error", s, err)
		}
	}
	for field, s := range map[string]interface{ Validate() error }{
		"AbsoluteLimit": allocation.LeastShards{AbsoluteLimit: -1}, "Limit": &allocation.Hashing{Limit: -1},
		"RelativeLimit is 1.5": allocation.LeastShards{RelativeLimit: 1.5}, "RelativeLimit is -1": allocation.LeastShards{RelativeLimit: -1},
		"RelativeLimit is NaN": allocation.LeastShards{RelativeLimit: math.NaN()},
		"Difference":           allocation.Threshold{Difference: -1}, "MaxMoving": allocation.Threshold{MaxMoving: -1},
	} {
		if err := s.Validate(); !errors.Is(err, allocation.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("Validate of %+v: %v, want an error with %q", s, err, field)
		}
	}
}

// The owners on a ring never change. If they changed, an upgrade of the library would move shards.
func TestHashingIsStable(t *testing.T) {
	t.Parallel()
	h := &allocation.Hashing{}
	v := counts(0, 0, 0, 0)
	owners, all := "", map[string]int{}
	for s := range allocation.Shard(1000) {
		n, ok := h.Allocate(v, allocation.Request{Shard: s})
		if !ok {
			t.Fatal("Allocate found no owner")
		}
		if all[n.Name]++; s < 40 {
			owners += n.Name
		}
	}
	if want := "bababcdcbaddacbacacdbdbbcccbadcbbbadbbbd"; owners != want {
		t.Errorf("owners of the first shards: %s, want %s", owners, want)
	}
	for _, r := range v.Regions {
		if all[r.Node.Name] < 100 {
			t.Errorf("shards of the regions: %v of 1000, want at least 100 for each", all)
		}
	}
	if n, ok := h.Allocate(counts(), allocation.Request{}); ok {
		t.Errorf("owner on an empty ring: %v, want none", n)
	}
}

func TestHashingMovesFewShards(t *testing.T) {
	t.Parallel()
	h := &allocation.Hashing{}
	small, large := counts(0, 0, 0), counts(0, 0, 0, 0)
	for s := range allocation.Shard(500) {
		before, _ := h.Allocate(small, allocation.Request{Shard: s})
		after, _ := h.Allocate(large, allocation.Request{Shard: s})
		if before != after && after.Name != "d" {
			t.Errorf("after d was added, shard %d moved from %v to %v", s, before, after)
		}
		restarted := counts(0, 0, 0)
		for i := range restarted.Regions {
			restarted.Regions[i].Node.UID, restarted.Members[i].Node.UID = 8, 8
		}
		if again, _ := h.Allocate(restarted, allocation.Request{Shard: s}); again.Name != before.Name || again.UID != 8 {
			t.Errorf("after a restart, shard %d moved from %v to %v", s, before, again)
		}
	}
}

func TestHashingRebalance(t *testing.T) {
	t.Parallel()
	v := counts(20, 0, 0)
	v.Members[2].Status = identity.Exiting // an exiting region is not on the ring
	all := new(allocation.Hashing).Rebalance(v)
	if len(all) == 0 || !slices.IsSorted(all) {
		t.Fatalf("Rebalance = %v, want some shards, sorted", all)
	}
	h := new(allocation.Hashing)
	for s := range allocation.Shard(20) {
		if owner, _ := h.Allocate(v, allocation.Request{Shard: s}); (owner.Name == "b") != slices.Contains(all, s) {
			t.Errorf("shard %d of owner %v: Rebalance = %v, want only shards of b", s, owner, all)
		}
	}
	if got := (&allocation.Hashing{Limit: 2}).Rebalance(v); !slices.Equal(got, all[:2]) {
		t.Errorf("with Limit 2: Rebalance = %v, want the first two of %v", got, all)
	}
	if got := (&allocation.Hashing{Limit: 2}).Rebalance(moving(v, all[0])); !slices.Equal(got, all[1:3]) {
		t.Errorf("while a shard moves: Rebalance = %v, want the second and third of %v", got, all)
	}
}

func TestExternal(t *testing.T) {
	t.Parallel()
	e := allocation.External{Desired: map[allocation.Shard]string{0: "c", 1: "a", 3: "z", 4: "b"}}
	v := counts(2, 2, 1)
	for name, test := range map[string]struct {
		view      allocation.View
		shard     allocation.Shard
		requester string
		want      string
	}{
		"desired region":                {v, 0, "a", "c"},
		"desired region does not exist": {v, 3, "a", "a"},
		"no desired region":             {v, 9, "b", "b"},
		"requester may not host shards": {v, 9, "z", ""},
		"desired region is down":        {status(v, 2, identity.Down), 0, "a", "a"},
		"desired region is leaving":     {status(v, 2, identity.Leaving), 0, "a", "c"},
	} {
		got, ok := e.Allocate(test.view, allocation.Request{Shard: test.shard, Requester: node(test.requester)})
		if ok != (test.want != "") || ok && got.Name != test.want {
			t.Errorf("%s: Allocate = %v, %t, want %q", name, got, ok, test.want)
		}
	}
	for name, test := range map[string]struct {
		view allocation.View
		want []allocation.Shard
	}{
		"shards on other regions":   {v, shards(0, 4)},
		"without moving shards":     {moving(v, 0), shards(4)},
		"desired region is exiting": {status(v, 1, identity.Exiting), shards(0)},
		"no regions":                {counts(), nil},
	} {
		if got := e.Rebalance(test.view); !slices.Equal(got, test.want) {
			t.Errorf("%s: Rebalance = %v, want %v", name, got, test.want)
		}
	}
	// Of two incarnations of a node, the one that may host shards is chosen.
	two := counts(0)
	second := identity.Node{Name: "a", UID: 9}
	two.Members[0].Status = identity.Down
	two.Regions = append(two.Regions, allocation.Region{Node: second})
	two.Members = append(two.Members, identity.Member{Node: second, Status: identity.Up})
	if got, ok := e.Allocate(two, allocation.Request{Shard: 1}); !ok || got != second {
		t.Errorf("Allocate = %v, %t, want %v", got, ok, second)
	}
}

func upTo(n allocation.Shard) []allocation.Shard {
	var all []allocation.Shard
	for s := range n {
		all = append(all, s)
	}
	return all
}

func moving(v allocation.View, numbers ...allocation.Shard) allocation.View {
	v.Moving = numbers
	return v
}

func reversed(v allocation.View) allocation.View {
	for _, r := range v.Regions {
		slices.Reverse(r.Shards)
	}
	return v
}

func status(v allocation.View, i int, s identity.Status) allocation.View {
	v.Members = slices.Clone(v.Members)
	v.Members[i].Status = s
	return v
}
