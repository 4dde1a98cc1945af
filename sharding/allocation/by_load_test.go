// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"errors"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// loaded returns a view of the regions a, b, c and so on whose shards have the given busy times. The
// shards are numbered from 0.
func loaded(regions ...[]float64) allocation.View {
	numbers := make([]int, len(regions))
	for i, r := range regions {
		numbers[i] = len(r)
	}
	v := counts(numbers...)
	v.Load, v.Nodes = map[allocation.Shard]allocation.ShardLoad{}, map[identity.Node]allocation.NodeLoad{}
	next := allocation.Shard(0)
	for i, r := range regions {
		v.Nodes[v.Regions[i].Node] = allocation.NodeLoad{}
		for _, busy := range r {
			v.Load[next] = allocation.ShardLoad{Busy: busy, Commands: 100 * busy, Settled: math.MaxInt64}
			next++
		}
	}
	return v
}

func each(n int, busy float64) []float64 { return slices.Repeat([]float64{busy}, n) }

// levels returns the load of each region.
func levels(v allocation.View) []float64 {
	all := make([]float64, len(v.Regions))
	for i, r := range v.Regions {
		for _, s := range r.Shards {
			all[i] += v.Load[s].Busy
		}
	}
	return all
}

// imbalance returns the load of the busiest region in relation to the mean.
func imbalance(v allocation.View) float64 {
	most, sum := 0.0, 0.0
	for _, l := range levels(v) {
		most, sum = max(most, l), sum+l
	}
	return most / sum * float64(len(v.Regions))
}

// copied returns a view whose regions can be changed.
func copied(v allocation.View) allocation.View {
	v.Regions = slices.Clone(v.Regions)
	return v
}

func with(v allocation.View, change func(v *allocation.View)) allocation.View {
	change(&v)
	return v
}

func TestByLoadRebalance(t *testing.T) {
	t.Parallel()
	hot := loaded([]float64{0.5, 0.1, 0.1}, []float64{0.1, 0.1}, []float64{0.1})
	settle := func(v *allocation.View, s allocation.Shard, d time.Duration) {
		l := v.Load[s]
		l.Settled = d
		v.Load[s] = l
	}
	for name, test := range map[string]struct {
		strategy allocation.ByLoad
		view     allocation.View
		want     []allocation.Shard
	}{
		"no regions":                   {view: loaded()},
		"one region":                   {view: loaded(each(5, 0.1))},
		"even":                         {view: loaded(each(3, 0.1), each(3, 0.1))},
		"within the imbalance":         {view: loaded([]float64{0.5, 0.07}, []float64{0.5})},
		"below the default imbalance":  {view: loaded([]float64{0.5, 0.055}, []float64{0.445})},
		"above the default imbalance":  {view: loaded([]float64{0.5, 0.065}, []float64{0.435}), want: shards(1)},
		"a smaller imbalance":          {strategy: allocation.ByLoad{Imbalance: 0.05}, view: loaded([]float64{0.5, 0.04}, []float64{0.44}), want: shards(1)},
		"idle nodes":                   {view: loaded(each(4, 0.01), nil)},
		"a region that never reported": {view: with(loaded(each(4, 0.1), nil), func(v *allocation.View) { delete(v.Nodes, node("b")) })},
		"no load":                      {view: loaded(each(4, 0), nil)},
		"the hot shard stays, and others leave its node": {view: hot, want: shards(1, 2)},
		"two busy shards":                         {view: loaded(each(2, 0.3), []float64{0.1}), want: shards(0)},
		"a new region takes the fewest shards":    {view: loaded(append([]float64{0.4}, each(8, 0.05)...), nil), want: shards(0)},
		"one large shard instead of many":         {view: loaded(append(each(8, 0.05), 0.4), each(1, 0.1)), want: shards(8)},
		"at most MaxMoves":                        {strategy: allocation.ByLoad{MaxMoves: 2}, view: loaded(each(20, 0.1), nil), want: shards(0, 1)},
		"no round while a shard moves":            {view: moving(loaded(each(4, 0.1), nil), 0)},
		"a shard that has moved rests":            {view: with(loaded(each(2, 0.3), []float64{0.1}), func(v *allocation.View) { settle(v, 0, time.Minute) }), want: shards(1)},
		"after its rest it may move":              {view: with(loaded(each(2, 0.3), []float64{0.1}), func(v *allocation.View) { settle(v, 0, 5*time.Minute) }), want: shards(0)},
		"Rest":                                    {strategy: allocation.ByLoad{Rest: time.Second}, view: with(loaded(each(2, 0.3), []float64{0.1}), func(v *allocation.View) { settle(v, 0, time.Minute) }), want: shards(0)},
		"pinned shards stay":                      {view: with(loaded(each(2, 0.3), []float64{0.1}), func(v *allocation.View) { v.Pinned = shards(0) }), want: shards(1)},
		"Weight":                                  {strategy: allocation.ByLoad{Weight: func(s allocation.Shard) float64 { return float64(1 + 9*min(s, 1)) }}, view: loaded(each(2, 0.1), each(2, 0.1)), want: nil},
		"Capacity":                                {strategy: allocation.ByLoad{Capacity: func(n identity.Node) float64 { return map[string]float64{"a": 3, "b": 1}[n.Name] }}, view: loaded(each(6, 0.1), each(6, 0.1)), want: shards(6, 7, 8)},
		"invalid hints count as 1":                {strategy: allocation.ByLoad{Weight: func(allocation.Shard) float64 { return -1 }, Capacity: func(identity.Node) float64 { return math.NaN() }}, view: loaded(each(2, 0.3), []float64{0.1}), want: shards(0)},
		"commands count if no busy time is known": {view: withoutBusy(loaded(each(2, 30), []float64{10})), want: shards(0)},
		"commands count for shards without a known busy time":    {view: with(loaded(each(3, 0.3), []float64{0.1, 0.1}), func(v *allocation.View) { v.Load[1] = allocation.ShardLoad{Commands: 31, Settled: math.MaxInt64} }), want: shards(1)},
		"shards of no known load count as the average of others": {view: with(loaded(each(6, 0.1), nil), func(v *allocation.View) { delete(v.Load, 0) }), want: shards(0, 1, 2)},
	} {
		if got := test.strategy.Rebalance(test.view); !slices.Equal(got, test.want) {
			t.Errorf("%s: Rebalance = %v, want %v", name, got, test.want)
		}
	}
}

func withoutBusy(v allocation.View) allocation.View {
	for s, l := range v.Load {
		l.Busy = 0
		v.Load[s] = l
	}
	return v
}

func TestByLoadAllocate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		strategy allocation.ByLoad
		view     allocation.View
		want     string
	}{
		"least loaded":                       {view: loaded(each(1, 0.4), each(3, 0.1), each(2, 0.3)), want: "b"},
		"equal loads: fewest shards":         {view: loaded(each(2, 0.2), each(1, 0.4), each(4, 0.1)), want: "b"},
		"no load: fewest shards":             {view: counts(3, 2, 4), want: "b"},
		"load after the move":                {strategy: allocation.ByLoad{Capacity: func(n identity.Node) float64 { return map[string]float64{"a": 4, "b": 1}[n.Name] }}, view: loaded(each(4, 0.2), each(1, 0.1)), want: "a"},
		"reachable before least loaded":      {view: with(loaded(each(1, 0.4), nil), func(v *allocation.View) { v.Unreachable = []identity.Node{node("b")} }), want: "a"},
		"staying before least loaded":        {view: with(loaded(each(1, 0.4), nil), func(v *allocation.View) { v.Members[1].Status = identity.Leaving }), want: "a"},
		"newest version before least loaded": {view: with(loaded(each(1, 0.4), nil), func(v *allocation.View) { v.Members[0].Version = version(t, "2.0.0") }), want: "a"},
	} {
		n, ok := test.strategy.Allocate(test.view, allocation.Request{Shard: 99})
		if !ok || n.Name != test.want {
			t.Errorf("%s: Allocate = %v, %t, want %s", name, n, ok, test.want)
		}
	}
	if n, ok := (allocation.ByLoad{}).Allocate(with(counts(1), func(v *allocation.View) { v.Members[0].Status = identity.Down }), allocation.Request{}); ok {
		t.Errorf("Allocate = %v with only a downed node, want none", n)
	}
	// New shards of no known load spread by their number.
	v := loaded(each(3, 0.1), each(3, 0.1), nil)
	var requests []allocation.Request
	for s := range allocation.Shard(6) {
		requests = append(requests, allocation.Request{Shard: 100 + s})
	}
	on := map[string]int{}
	for _, n := range allocation.All(v, requests, allocation.ByLoad{}.Allocate) {
		on[n.Name]++
	}
	if on["c"] != 4 || on["a"] != 1 || on["b"] != 1 {
		t.Errorf("six new shards are on %v, want 4 on c", on)
	}
}

func TestByLoadValidate(t *testing.T) {
	t.Parallel()
	if err := (allocation.ByLoad{}).Validate(); err != nil || !(allocation.ByLoad{}).ReadsLoad() {
		t.Errorf("the zero value: %v, want it to be valid and to read the load", err)
	}
	for _, s := range []allocation.ByLoad{{Imbalance: -0.1}, {Imbalance: math.NaN()}, {Imbalance: 11}, {MaxMoves: -1}, {Rest: -1}} {
		if err := s.Validate(); !errors.Is(err, allocation.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", s, err)
		}
	}
}

// zipf returns the loads of shards, of which the first has the highest.
func zipf(n int, exponent float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = math.Pow(float64(i+1), -exponent)
	}
	return all
}

// spread distributes shards over regions at random. No shard has more than the mean load, so that an
// even distribution is possible.
func spread(rnd *rand.Rand, regions, shards int) allocation.View {
	parts := make([][]float64, regions)
	sum := 0.0
	all := zipf(shards, 0.3+rnd.Float64()*0.8)
	for _, l := range all {
		sum += l
	}
	for _, l := range all {
		i := rnd.IntN(regions)
		parts[i] = append(parts[i], min(l, sum/float64(2*regions)))
	}
	return loaded(parts...)
}

// rounds runs rounds until no shard moves, and returns the moved shards.
func rounds(t *testing.T, v allocation.View, s allocation.ByLoad) (allocation.View, []allocation.Shard) {
	t.Helper()
	var moved []allocation.Shard
	for {
		chosen := s.Rebalance(v)
		if len(chosen) == 0 {
			return v, moved
		}
		for _, one := range chosen {
			if slices.Contains(moved, one) {
				t.Fatalf("shard %d moves twice while the loads are constant", one)
			}
			l := v.Load[one]
			l.Settled = 0
			v.Load[one] = l
		}
		moved = append(moved, chosen...)
		v = apply(v, chosen, s.Allocate)
	}
}

// Rounds of moves even out random loads, and each round lowers the load of the busiest node.
func TestByLoadConverges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		v := spread(rnd, 2+rnd.IntN(6), 100+rnd.IntN(200))
		before := imbalance(v)
		after, moved := rounds(t, copied(v), allocation.ByLoad{MaxMoves: 1 + rnd.IntN(20)})
		if got := imbalance(after); got > 1.15+1e-9 {
			t.Errorf("seed %d: imbalance %.3f at the end and %.3f before, want at most 1.15", seed, got, before)
		}
		if len(moved) > len(v.Load)/3 {
			t.Errorf("seed %d: %d of %d shards moved for an imbalance of %.2f", seed, len(moved), len(v.Load), before)
		}
	}
}

// No round has more moves than twice the smallest number of moves that leads to a busiest node with
// the same load.
func TestByLoadMovesFewShards(t *testing.T) {
	t.Parallel()
	sum, least := 0, 0
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		regions := 2 + rnd.IntN(2)
		parts := make([][]float64, regions)
		n := 4 + rnd.IntN(7)
		for range n {
			i := min(rnd.IntN(regions+1), regions-1)
			parts[i] = append(parts[i], 0.05+rnd.Float64()*0.4)
		}
		v := loaded(parts...)
		chosen := allocation.ByLoad{}.Rebalance(v)
		if len(chosen) == 0 {
			continue
		}
		after := apply(copied(v), chosen, allocation.ByLoad{}.Allocate)
		if unevenness(after) >= unevenness(v)-1e-9 {
			t.Errorf("seed %d: a round of %d moves changes the loads from %v to %v", seed, len(chosen), levels(v), levels(after))
		}
		if slices.Max(levels(after)) == slices.Max(levels(v)) { // no move of one shard helps the busiest node, but another one has less load
			continue
		}
		best := fewest(v, n, slices.Max(levels(after)))
		sum, least = sum+len(chosen), least+best
		if len(chosen) > max(2*best, best+1) {
			t.Errorf("seed %d: %d moves, want at most twice the %d that are needed", seed, len(chosen), best)
		}
	}
	if float64(sum) > 1.25*float64(least) {
		t.Errorf("all rounds have %d moves, want at most 1.25 times the %d that are needed", sum, least)
	}
}

// unevenness returns the sum of the squares of the loads of all regions.
func unevenness(v allocation.View) (sum float64) {
	for _, l := range levels(v) {
		sum += l * l
	}
	return sum
}

// fewest returns the smallest number of moves after which no region has more than a load. It tries
// all sets of shards and all of their distributions.
func fewest(v allocation.View, n int, most float64) int {
	home := make([]int, n)
	for i, r := range v.Regions {
		for _, s := range r.Shards {
			home[s] = i
		}
	}
	best := n
	for set := range uint(1) << n {
		moves := bits.OnesCount(set)
		if moves >= best || moves > 4 {
			continue
		}
		loads := levels(v)
		var out []int
		for s := range n {
			if set>>s&1 == 1 {
				out = append(out, s)
				loads[home[s]] -= v.Load[allocation.Shard(s)].Busy
			}
		}
		if fits(v, loads, out, most) {
			best = moves
		}
	}
	return best
}

// fits reports whether the shards can be distributed so that no region has more than a load.
func fits(v allocation.View, loads []float64, out []int, most float64) bool {
	if len(out) == 0 {
		return slices.Max(loads) <= most+1e-9
	}
	for i := range loads {
		loads[i] += v.Load[allocation.Shard(out[0])].Busy
		ok := fits(v, loads, out[1:], most)
		loads[i] -= v.Load[allocation.Shard(out[0])].Busy
		if ok {
			return true
		}
	}
	return false
}

// Loads that vary around a constant value move no shards back and forth.
func TestByLoadDoesNotOscillate(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		v := spread(rnd, 3, 90)
		actual := map[allocation.Shard]float64{}
		for s, l := range v.Load {
			actual[s] = l.Busy
		}
		late, early := 0, 0
		for round := range 600 { // 100 minutes
			for _, s := range slices.Sorted(maps.Keys(v.Load)) { // in order, so that a seed determines the run
				l := v.Load[s]
				if l.Settled < math.MaxInt64 {
					l.Settled += 10 * time.Second
				}
				// As in the coordinator, a report replaces a quarter of the value.
				l.Busy += 0.28 * (actual[s]*(0.7+0.6*rnd.Float64()) - l.Busy)
				v.Load[s] = l
			}
			chosen := allocation.ByLoad{}.Rebalance(v)
			if round < 60 {
				early += len(chosen)
			} else {
				late += len(chosen)
			}
			for _, s := range chosen {
				l := v.Load[s]
				l.Settled = 0
				v.Load[s] = l
			}
			v = apply(v, chosen, allocation.ByLoad{}.Allocate)
		}
		if late > 2 || early > 30 {
			t.Errorf("seed %d: %d moves in the first ten minutes and %d in the next 90, want at most 30 and 2", seed, early, late)
		}
	}
}
