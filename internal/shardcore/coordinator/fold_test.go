// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

func proxy(kind coordinator.EventKind, name string) event { return event{Kind: kind, Node: node(name)} }

func terminated(name string) event {
	return event{Kind: coordinator.RegionTerminated, Node: node(name)}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	s := apply(t, append(registered("b", "a"), started(3), allocated("a", 5, 1, 9), allocated("b", 2), proxy(coordinator.ProxyRegistered, "p"), deallocated(1), allocated("b", 1))...)
	if s.Term() != 3 || s.Holder() != node("c") || s.Shards() != 4 || !s.HasProxy(node("p")) || s.HasProxy(node("a")) || len(s.Proxies()) != 1 {
		t.Errorf("the state is %+v, want term 3 of c, 4 shards and the proxy p", s)
	}
	if regions := s.Regions(); len(regions) != 2 || regions[0].Node != node("a") || !slices.Equal(regions[0].Shards, []shard{5, 9}) || !slices.Equal(regions[1].Shards, []shard{2, 1}) {
		t.Errorf("the regions are %+v, want a with [5 9] and b with [2 1]", regions)
	}
	if n, ok := s.Home(1); !ok || n != node("b") {
		t.Errorf("after allocation, deallocation and allocation to b, shard 1 is on %v, %t, want b", n, ok)
	}
	if n, ok := s.Home(99_999); ok {
		t.Errorf("Home of a shard that was never allocated = %v, want none", n)
	}
	before := coordinator.AppendState(nil, s)
	after, err := s.Apply(terminated("b"), proxy(coordinator.ProxyTerminated, "p"), allocated("a", 2), deallocated(5))
	if err != nil || after.Shards() != 2 || len(after.Proxies()) != 0 || len(after.Regions()) != 1 {
		t.Errorf("after the termination of b: %+v, %v, want 2 shards, one region and no proxy", after, err)
	}
	if _, ok := after.Home(1); ok {
		t.Error("shard 1 of the terminated region b has a home")
	}
	if again := coordinator.AppendState(nil, s); !slices.Equal(again, before) {
		t.Error("Apply changed the state on which it was called")
	}
	if s.Equal(after) || !s.Equal(apply(t, append(registered("a", "b"), started(3), allocated("b", 2, 1), allocated("a", 5, 9), proxy(coordinator.ProxyRegistered, "p"))...)) {
		t.Error("Equal ignores a part of the state")
	}
}

func TestImpossibleEvents(t *testing.T) {
	t.Parallel()
	s := apply(t, append(registered("a", "b"), started(3), allocated("a", 1, 2), proxy(coordinator.ProxyRegistered, "p"))...)
	for why, e := range map[string]event{
		"term 3 after term 3": started(3), "term 2 after term 3": started(2),
		"region registered a#7 (0 shards): it is already registered": registered("a")[0],
		"proxy registered p#7 (0 shards): it is already registered":  proxy(coordinator.ProxyRegistered, "p"),
		"region terminated x#7 (0 shards): it is not registered":     terminated("x"),
		"proxy terminated a#7 (0 shards): it is not registered":      proxy(coordinator.ProxyTerminated, "a"),
		"homes allocated p#7 (1 shards): it is not registered":       allocated("p", 3),
		"shard 2 is on a#7":                 allocated("b", 3, 2),
		"shard 4 occurs twice":              allocated("b", 4, 4),
		"shard 100000 is above the maximum": allocated("b", coordinator.MaxShards),
		"shard 3 has no home":               deallocated(1, 3),
		"shard 1 occurs twice":              deallocated(1, 1),
		"unknown kind":                      {Kind: 99},
	} {
		f := coordinator.NewFold(s)
		if err := f.Apply(e); !errors.Is(err, coordinator.ErrImpossible) || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v, want an error with %q", e, err, why)
		}
		if !f.State().Equal(s) {
			t.Errorf("the rejected event %+v changed the state", e)
		}
		if _, err := s.Apply(e); err == nil {
			t.Errorf("the invalid event %+v was applied", e)
		}
	}
}

// A history that two coordinators wrote at the same time leads to a consistent state, with all
// repairs reported.
func TestReplayRepairs(t *testing.T) {
	t.Parallel()
	f := coordinator.NewFold(coordinator.State{})
	for _, e := range []event{
		started(1), registered("a")[0], allocated("a", 1, 2, 3),
		started(1),                             // event of the other coordinator
		registered("b")[0], registered("a")[0], // a is already registered
		allocated("b", 2, 3, 4),          // 2 and 3 are on a
		allocated("a", 1, 5),             // 1 is already on a
		terminated("z"), terminated("b"), // z is unknown
		proxy(coordinator.ProxyTerminated, "z"),  // z is not a proxy either
		allocated("b", 2),                        // event of a coordinator in whose state b is registered
		deallocated(3, 5),                        // 3 lost its home with b
		allocated("a", coordinator.MaxShards, 6), // the first shard does not exist
		proxy(coordinator.ProxyRegistered, "p"), proxy(coordinator.ProxyRegistered, "p"),
	} {
		f.Replay(e)
	}
	want := apply(t, started(1), registered("a")[0], registered("b")[0], allocated("a", 1, 6), allocated("b", 2), proxy(coordinator.ProxyRegistered, "p"))
	if got := f.State(); !got.Equal(want) || got.Shards() != 3 {
		t.Errorf("the state is %+v, want %+v", got, want)
	}
	repairs, n := f.Repairs()
	wantRepairs := []string{
		"term 1 of c#7 is not higher", "a#7 is registered twice", "shard 2 of a#7 is allocated to b#7: the later home holds",
		"shard 3 of a#7 is allocated to b#7: the later home holds", "shard 1 is allocated to a#7 twice",
		"b#7 is not registered: it is registered from now on, because it may host shards", "shard 3 has no home", "shard 100000 of a#7 does not exist",
		"p#7 is registered twice",
	}
	if n != len(repairs) || !slices.Equal(repairs, wantRepairs) {
		t.Errorf("Repairs = %q, %d, want %q", repairs, n, wantRepairs)
	}
}

// Any history leads to a consistent state, whose encoding can be decoded. Each shard has one home:
// the last one that was stored, unless its region has terminated.
func TestReplayOfRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f := coordinator.NewFold(coordinator.State{})
		var strict []event
		last, pins := map[shard]identity.Node{}, map[shard]string{}
		for range 200 {
			e := event{Kind: coordinator.EventKind(1 + rnd.IntN(9)), Term: uint64(rnd.IntN(9)), Node: node(string(rune('a' + rnd.IntN(5))))}
			if e.Kind >= coordinator.HomesAllocated {
				for range rnd.IntN(4) {
					e.Shards = append(e.Shards, shard(rnd.IntN(12)))
				}
			}
			term := f.State().Term()
			f.Replay(e)
			switch e.Kind {
			case coordinator.HomesAllocated:
				for _, s := range e.Shards {
					last[s] = e.Node
				}
			case coordinator.HomesDeallocated:
				for _, s := range e.Shards {
					delete(last, s)
				}
			case coordinator.RegionTerminated:
				for s, n := range last {
					if n == e.Node {
						delete(last, s)
					}
				}
			case coordinator.ShardsPinned:
				for _, s := range e.Shards {
					pins[s] = e.Node.Name
				}
			case coordinator.ShardsReleased: // an event that releases a shard without a pin has no effect
				if !slices.ContainsFunc(e.Shards, func(s shard) bool { return pins[s] == "" }) {
					for _, s := range e.Shards {
						delete(pins, s)
					}
				}
			case coordinator.Started, coordinator.RegionRegistered, coordinator.ProxyRegistered, coordinator.ProxyTerminated:
			}
			strict = append(strict, e)
			s := f.State()
			for n := range shard(12) {
				if name, ok := s.Pin(n); name != pins[n] || ok != (name != "") {
					t.Fatalf("seed %d: after %+v shard %d is pinned to %q, want %q", seed, e, n, name, pins[n])
				}
				if home, ok := s.Home(n); ok != (last[n] != identity.Node{}) || home != last[n] {
					t.Fatalf("seed %d: after %+v shard %d is on %v, want %v", seed, e, n, home, last[n])
				}
			}
			if s.Term() < term || s.Shards() != len(last) {
				t.Fatalf("seed %d: after %+v: term %d and %d shards, was term %d and want %d", seed, e, s.Term(), s.Shards(), term, len(last))
			}
		}
		s := f.State()
		if again, err := coordinator.DecodeState(coordinator.AppendState(nil, s)); err != nil || !again.Equal(s) {
			t.Fatalf("seed %d: decoding the encoded state failed or changed it: %v", seed, err)
		}
		if _, n := f.Repairs(); n == 0 {
			t.Errorf("seed %d: no repair in %d events, want at least one", seed, len(strict))
		}
	}
}

func TestRepairsAreLimited(t *testing.T) {
	t.Parallel()
	f := coordinator.NewFold(coordinator.State{})
	for range 500 {
		f.Replay(deallocated(1))
	}
	if repairs, n := f.Repairs(); n != 500 || len(repairs) != 100 {
		t.Errorf("%d of %d repairs are described, want 100 of 500", len(repairs), n)
	}
}

// A state never has more regions than the maximum.
func TestRegionsAreLimited(t *testing.T) {
	t.Parallel()
	f := coordinator.NewFold(coordinator.State{})
	for i := range coordinator.MaxRegions {
		for _, kind := range []coordinator.EventKind{coordinator.RegionRegistered, coordinator.ProxyRegistered} {
			if err := f.Apply(event{Kind: kind, Node: identity.Node{Name: "n", UID: uint64(i + 1)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, kind := range []coordinator.EventKind{coordinator.RegionRegistered, coordinator.ProxyRegistered} {
		e := event{Kind: kind, Node: node("more")}
		if err := f.Apply(e); !errors.Is(err, coordinator.ErrImpossible) {
			t.Errorf("%v: %v, want ErrImpossible", kind, err)
		}
		f.Replay(e)
	}
	f.Replay(allocated("more", 1))
	repairs, _ := f.Repairs()
	if len(repairs) != 3 || !strings.HasPrefix(repairs[2], "too many regions: more#") {
		t.Errorf("Repairs = %q, want the third to be about too many regions", repairs)
	}
	s := f.State()
	if again, err := coordinator.DecodeState(coordinator.AppendState(nil, s)); err != nil || !again.Equal(s) {
		t.Errorf("decoding the encoded state failed or changed it: %v", err)
	}
}
