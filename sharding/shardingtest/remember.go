// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding"
)

func entityChecks() []check {
	all := []check{
		{name: "EntitiesNone", rule: "without stored data there are no entities and no shards", run: func(f *fixture) {
			f.wantEntities(0, 7)
			f.wantEntities(1, 7)
			f.wantShards(0)
		}},
		{name: "Entities", rule: "each node loads the entities that were started and not stopped", run: func(f *fixture) {
			a := f.entities(0, account())
			f.wantLoaded(a, 7)
			f.update(a, 7, []string{"x", "y", "z"}, nil)
			f.update(a, 7, []string{"w"}, []string{"y"})
			f.update(a, 7, nil, []string{"x"})
			f.update(a, 7, nil, nil)
			f.update(a, 7, []string{"y"}, nil)
			for node := range 3 {
				f.wantEntities(node, 7, "w", "y", "z")
			}
			b := f.entities(1, account())
			f.wantLoaded(b, 7, "w", "y", "z")
			f.update(b, 7, nil, []string{"w", "y", "z"})
			f.wantEntities(2, 7)
		}},
		{name: "EntitiesTwice", rule: "an entity that is started twice is loaded once, and an unknown entity may be stopped", run: func(f *fixture) {
			a := f.entities(0, account())
			f.wantLoaded(a, 0)
			f.update(a, 0, []string{"x", "y"}, []string{"z"})
			f.update(a, 0, []string{"x", "z"}, []string{"w"})
			f.wantEntities(1, 0, "x", "y", "z")
			f.wantLoaded(a, 0, "x", "y", "z")
			f.update(a, 0, nil, []string{"x"})
			f.wantEntities(1, 0, "y", "z")
		}},
		{name: "EntitiesMany", rule: "an update may have thousands of entities", run: func(f *fixture) {
			a := f.entities(0, account())
			f.wantLoaded(a, 3)
			var ids []string
			for i := range 5000 {
				ids = append(ids, fmt.Sprintf("%036d", i))
			}
			f.update(a, 3, ids, nil)
			f.wantEntities(1, 3, ids...)
			f.wantLoaded(a, 3, ids...)
			f.update(a, 3, nil, ids[1:])
			f.wantEntities(1, 3, ids[0])
		}},
		{name: "EntitiesOdd", rule: "IDs are stored unchanged", run: func(f *fixture) {
			a := f.entities(0, account())
			f.wantLoaded(a, 0)
			ids := []string{
				" ", "a", "A", "a ", "a|b", "|", "a\x00b", "\x00", "\xff\xfe", "ä", "a\u0308", "日本", "*", "a*", "a.b", "a/b", "'; drop table", strings.Repeat("x", sharding.MaxEntityID),
			}
			f.update(a, 0, ids, nil)
			f.wantEntities(1, 0, ids...)
			f.wantLoaded(a, 0, ids...)
			f.update(a, 0, nil, ids)
			f.wantEntities(1, 0)
		}},
		{name: "EntitiesInvalid", rule: "invalid IDs, shards and scopes are refused", run: func(f *fixture) {
			a := f.entities(0, account())
			f.wantLoaded(a, 0)
			for _, ids := range [][]string{{""}, {"x", ""}, {strings.Repeat("x", sharding.MaxEntityID+1)}} {
				f.want(a.Update(f.ctx, 0, ids, nil), sharding.ErrInvalid, "Update that starts %.40q", ids)
				f.want(a.Update(f.ctx, 0, nil, ids), sharding.ErrInvalid, "Update that stops %.40q", ids)
			}
			f.want(a.AddShards(f.ctx, []shard{1, coordinator.MaxShards}), sharding.ErrInvalid, "AddShards of a shard above the maximum")
			_, err := a.Load(f.ctx, coordinator.MaxShards)
			f.want(err, sharding.ErrInvalid, "Load of a shard above the maximum")
			for _, scope := range badScopes() {
				_, err = f.place.Entities(0).OpenEntities(scope)
				f.want(err, sharding.ErrInvalid, "OpenEntities(%.40q, %.40q)", scope.Type, scope.Role)
			}
			f.update(a, 0, []string{"x"}, nil)
			f.wantEntities(1, 0, "x")
			f.wantShards(1)
		}},
		{name: "EntitiesApart", rule: "each type, role and shard has its own entities, and its own entities with pending work", run: func(f *fixture) {
			all := []sharding.Scope{{Type: "account"}, {Type: "account", Pending: true}, {Type: "account", Role: "a"}, {Type: "account", Role: "a", Pending: true}, {Type: "account", Role: "1"}, {Type: "account-1"}, {Type: "a", Role: "1|1"}, {Type: "a", Role: "all"}}
			for i, scope := range all {
				s := f.entities(0, scope)
				for k := range shard(3) {
					f.wantLoaded(s, k*10)
					f.update(s, k*10, []string{fmt.Sprint(i, k)}, nil)
				}
				f.want(s.AddShards(f.ctx, []shard{shard(i)}), nil, "AddShards")
			}
			for i, scope := range all {
				s := f.entities(1, scope)
				for k := range shard(3) {
					f.wantLoaded(s, k*10, fmt.Sprint(i, k))
				}
				if got, err := s.Shards(f.ctx); err != nil || len(got) != 1 || int(got[0]) != i {
					f.Errorf("Shards of %+v: %v, %v", scope, got, err)
				}
			}
		}},
		{name: "EntitiesFenced", rule: "an owner is fenced after another owner has loaded the shard", run: func(f *fixture) {
			if f.place.Unfenced {
				f.Logf("these stores do not fence owners")
				return
			}
			a, b := f.entities(0, account()), f.entities(1, account())
			f.wantLoaded(a, 1)
			f.wantLoaded(a, 2)
			f.update(a, 1, []string{"x"}, nil)
			f.wantLoaded(b, 1, "x")
			f.want(a.Update(f.ctx, 1, []string{"y"}, nil), sharding.ErrFenced, "Update of a shard that another owner has loaded")
			if err := a.Update(f.ctx, 1, []string{"y"}, nil); err == nil {
				f.Errorf("Update after a failed one: no error")
			}
			f.update(a, 2, []string{"z"}, nil)
			f.update(b, 1, []string{"w"}, []string{"x"})
			f.wantLoaded(a, 1, "w")
			f.update(a, 1, []string{"y"}, nil)
			f.want(b.Update(f.ctx, 1, nil, []string{"y"}), sharding.ErrFenced, "Update of a shard that was taken back")
			f.wantEntities(1, 1, "w", "y")
			f.wantEntities(1, 2, "z")
			f.want(f.entities(0, account()).Update(f.ctx, 2, []string{"y"}, nil), sharding.ErrConflict, "Update of a shard that was not loaded")
		}},
		{name: "EntitiesFaults", rule: "after a failure of any call, a load returns the stored entities, and the owner continues", run: entitiesFaults},
		{name: "EntitiesCancelled", rule: "a call with an ended context fails", run: func(f *fixture) {
			s := f.entities(0, account())
			f.wantLoaded(s, 1)
			f.update(s, 1, []string{"x"}, nil)
			f.failCanceled(map[string]func(context.Context) error{
				"Load":      func(ctx context.Context) error { _, err := s.Load(ctx, 1); return err },
				"Update":    func(ctx context.Context) error { return s.Update(ctx, 1, []string{"x"}, nil) },
				"Shards":    func(ctx context.Context) error { _, err := s.Shards(ctx); return err },
				"AddShards": func(ctx context.Context) error { return s.AddShards(ctx, []shard{1}) },
			})
			f.wantLoaded(s, 1, "x")
		}},
		{name: "Shards", rule: "Shards returns each added shard once, sorted", run: func(f *fixture) {
			s := f.entities(0, account())
			for _, add := range [][]shard{{5, 1}, {1, 5}, {3, 5}, nil, {coordinator.MaxShards - 1}} {
				f.want(s.AddShards(f.ctx, add), nil, "AddShards(%v)", add)
			}
			for node := range 3 {
				f.wantShards(node, 1, 3, 5, coordinator.MaxShards-1)
			}
			f.want(f.entities(1, account()).AddShards(f.ctx, append(span(0, 1000), 5)), nil, "AddShards of 1,000")
			f.wantShards(2, append(span(0, 1000), coordinator.MaxShards-1)...)
		}},
		{name: "ShardsAtOnce", rule: "no shard is lost if several are added concurrently", run: func(f *fixture) {
			var wg sync.WaitGroup
			for node := range 3 {
				s := f.entities(node, account())
				wg.Go(func() {
					for i := range 5 {
						for tries := 0; ; tries++ {
							err := s.AddShards(f.ctx, span(node*100+i*10, 3))
							if err == nil {
								break
							}
							if !errors.Is(err, sharding.ErrConflict) || tries > 100 {
								f.Errorf("AddShards: %v", err)
								return
							}
						}
					}
				})
			}
			wg.Wait()
			var want []shard
			for node := range 3 {
				for i := range 5 {
					want = append(want, span(node*100+i*10, 3)...)
				}
			}
			f.wantShards(0, want...)
		}},
	}
	for i := range all {
		all[i].entities = true
	}
	return all
}

// wantEntities loads a shard from another store and compares its entities.
func (f *fixture) wantEntities(node int, s shard, want ...string) {
	f.Helper()
	f.wantLoaded(f.entities(node, account()), s, want...)
}

func (f *fixture) wantLoaded(store sharding.RememberStore, s shard, want ...string) {
	f.Helper()
	got, err := store.Load(f.ctx, s)
	if err != nil {
		f.Fatalf("Load of shard %d: %v", s, err)
	}
	got = slices.Sorted(slices.Values(got))
	if slices.Sort(want); !slices.Equal(got, want) {
		f.Errorf("Load of shard %d: %d entities, %.200q, want %d, %.200q", s, len(got), got, len(want), want)
	}
}

func (f *fixture) wantShards(node int, want ...shard) {
	f.Helper()
	got, err := f.entities(node, account()).Shards(f.ctx)
	if err != nil || !slices.Equal(got, want) {
		f.Errorf("Shards: %v, %v, want %v", got, err, want)
	}
}

func (f *fixture) update(store sharding.RememberStore, s shard, started, stopped []string) {
	f.Helper()
	if err := store.Update(f.ctx, s, started, stopped); err != nil {
		f.Fatalf("Update of shard %d with %.100q, %.100q: %v", s, started, stopped, err)
	}
}

// entitiesFaults injects a fault before each call in turn. A failed shard is loaded again, as a
// restarting shard does.
func entitiesFaults(f *fixture) {
	const calls = 5
	for n, fault := range f.place.Faults {
		for at := range calls {
			scope := sharding.Scope{Type: fmt.Sprint("account", n, "-", at)}
			s := f.entities(0, scope)
			t := trouble{fault: fault, at: at}
			do := func(subject func(ctx context.Context) error) bool { return t.do(f.ctx, subject) == nil }
			load := func(wants ...[]string) {
				for tries := 0; ; tries++ {
					if tries > 100 {
						f.Fatalf("%s: Load has failed 100 times", fault.Name)
					}
					var got []string
					if !do(func(ctx context.Context) (err error) { got, err = s.Load(ctx, 1); return err }) {
						continue
					}
					slices.Sort(got)
					if !slices.ContainsFunc(wants, func(want []string) bool { return slices.Equal(got, want) }) {
						f.Fatalf("%s at call %d: Load = %q, want one of %q", fault.Name, at, got, wants)
					}
					return
				}
			}
			load(nil)
			was := []string(nil)
			for i := range 3 {
				want := slices.Sorted(slices.Values(append(slices.Clone(was), fmt.Sprint("e", i))))
				for !do(func(ctx context.Context) error { return s.Update(ctx, 1, []string{fmt.Sprint("e", i)}, nil) }) {
					load(was, want)
				}
				was = want
			}
			for !do(func(ctx context.Context) error { return s.AddShards(ctx, []shard{1, 2}) }) {
				f.Logf("%s at call %d: AddShards failed, trying again", fault.Name, at)
			}
			t.mend()
			f.wantLoaded(f.entities(1, scope), 1, was...)
			if got, err := f.entities(1, scope).Shards(f.ctx); err != nil || !slices.Equal(got, []shard{1, 2}) {
				f.Errorf("%s at call %d: Shards: %v, %v", fault.Name, at, got, err)
			}
		}
	}
}
