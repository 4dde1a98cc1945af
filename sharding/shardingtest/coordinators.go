// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding"
)

func coordinatorChecks() []check {
	return []check{
		{name: "LoadNothing", rule: "without stored data the state is empty", run: func(f *fixture) {
			f.stored(0, coordinator.State{})
			f.stored(1, coordinator.State{})
		}},
		{name: "Save", rule: "each node loads the saved state", run: func(f *fixture) {
			a := f.leader(0)
			f.stored(1, a.state)
			a.mustSave(a.change(registered("a"), registered("b")))
			a.mustSave(a.change(allocated("a", 1, 2, 3), allocated("b", 4)))
			a.mustSave(a.change(coordinator.Event{Kind: coordinator.ProxyRegistered, Node: region("p")}))
			a.mustSave(a.change(coordinator.Event{Kind: coordinator.HomesDeallocated, Shards: []shard{2, 4}}, allocated("b", 2)))
			for node := range 3 {
				f.stored(node, a.state)
			}
			rev := a.rev
			a.mustLoad()
			if a.rev != rev {
				f.Errorf("Load returned event %d, want %d", a.rev, rev)
			}
			a.mustSave(a.change(coordinator.Event{Kind: coordinator.RegionTerminated, Node: region("a")}))
			f.stored(1, a.state)
			b := f.leader(1, registered("c"))
			f.stored(2, b.state)
		}},
		{name: "SaveManyEvents", rule: "one change may have ten thousand shards", run: func(f *fixture) {
			const regions, each = 100, 100
			a := f.leader(0)
			var events []coordinator.Event
			for i := range regions {
				name := fmt.Sprintf("node-%03d.example.com:7000", i)
				events = append(events, registered(name), allocated(name, span(i*each, each)...))
			}
			a.mustSave(a.change(events...))
			if a.state.Shards() != regions*each {
				f.Fatalf("the state has %d shards, want %d", a.state.Shards(), regions*each)
			}
			f.stored(1, a.state)
			f.Logf("the state has %d bytes", len(coordinator.AppendState(nil, a.state)))
		}},
		{name: "SaveAgain", rule: "a change that is saved again is stored once", run: func(f *fixture) {
			a := f.leader(0, registered("a"))
			c := a.change(allocated("a", 1))
			a.mustSave(c)
			a.mustSave(c)
			f.stored(1, c.After)
			a.mustSave(a.change(allocated("a", 2)))
			f.stored(1, a.state)
		}},
		{name: "SaveAtOnce", rule: "a change that is saved several times concurrently is stored once", run: func(f *fixture) {
			a := f.leader(0, registered("a"))
			for i := range 10 {
				c := a.change(allocated("a", shard(i)))
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						f.want(a.store.Save(a.ctx, encode(&c)), nil, "Save of %s", describe(c))
					})
				}
				wg.Wait()
				a.mustLoad()
				if !a.state.Equal(c.After) {
					f.Fatalf("Load: %s, want %s", show(a.state), show(c.After))
				}
			}
		}},
		{name: "SaveBehind", rule: "a change that does not follow the stored state is refused", run: func(f *fixture) {
			a := f.leader(0)
			old := a.change(registered("b"))
			a.mustSave(a.change(registered("a")))
			a.refused(old, sharding.ErrConflict)
			ahead := a.change(registered("c"))
			ahead.Rev += 5
			a.refused(ahead, sharding.ErrConflict)
			f.stored(1, a.state)
			a.mustSave(a.change(registered("b")))
			f.stored(1, a.state)
		}},
		{name: "SaveUnloaded", rule: "a store that has not loaded cannot save", run: func(f *fixture) {
			a := f.actor(0)
			a.refused(a.claim(1), sharding.ErrConflict)
			a.lead()
			b := f.actor(0)
			b.state, b.rev, b.term = a.state, a.rev, a.term
			b.refused(b.change(registered("a")), sharding.ErrConflict)
			f.stored(1, a.state)
		}},
		{name: "SaveInvalid", rule: "incomplete changes are refused", run: func(f *fixture) {
			a := f.leader(0)
			whole := a.change(registered("a"))
			for name, spoil := range map[string]func(c *sharding.Change){
				"no events": func(c *sharding.Change) { c.Events = nil },
				"no term":   func(c *sharding.Change) { c.Term = 0 },
				"no state":  func(c *sharding.Change) { c.After = nil },
			} {
				c := encode(&whole)
				spoil(&c)
				f.want(a.store.Save(f.ctx, c), sharding.ErrInvalid, "Save of a change with %s", name)
			}
			f.stored(1, a.state)
		}},
		{name: "Fenced", rule: "a coordinator of a lower term is fenced, and its change is not stored", run: func(f *fixture) {
			a, b := f.actor(0), f.actor(1)
			a.lead()
			a.mustSave(a.change(registered("a")))
			b.lead()
			a.refused(a.change(allocated("a", 1)), sharding.ErrFenced)
			b.mustLoad()
			if _, found := b.state.Home(1); found {
				f.Errorf("a fenced change is stored")
			}
			b.mustSave(b.change(allocated("a", 2)))
			a.refused(a.change(allocated("a", 1)), sharding.ErrFenced)
			a.refused(a.change(allocated("a", 3)), sharding.ErrFenced)
			f.stored(2, b.state)
		}},
		{name: "FencedLoaded", rule: "a coordinator that has loaded the higher term is fenced, too", run: func(f *fixture) {
			a, b := f.actor(0), f.actor(1)
			a.lead()
			b.lead()
			b.mustSave(b.change(registered("a")))
			a.mustLoad()
			if a.state.Term() != b.term {
				f.Errorf("term %d is loaded, want %d", a.state.Term(), b.term)
			}
			c := a.change(allocated("a", 1))
			c.After, _ = coordinator.State{}.Apply(append([]coordinator.Event{a.starts(1)}, registered("a"), allocated("a", 1))...)
			c.Term = 1
			a.refused(c, sharding.ErrFenced)
			f.stored(2, b.state)
		}},
		{name: "ClaimOnce", rule: "a term is claimed once", run: func(f *fixture) {
			a, b, twin := f.actor(0), f.actor(1), f.actor(0)
			a.mustLoad()
			b.mustLoad()
			twin.mustLoad()
			a.mustSave(a.claim(1))
			b.refused(b.claim(1), sharding.ErrConflict)
			twin.refused(twin.claim(1), sharding.ErrConflict) // differs only in its store
			a.mustSave(a.change(registered("a")))
			f.stored(2, a.state)
			b.lead()
			a.refused(a.change(registered("b")), sharding.ErrFenced)
			f.stored(2, b.state)
		}},
		{name: "ClaimHigher", rule: "only a higher term can be claimed", run: func(f *fixture) {
			a := f.leader(0)
			a.mustLoad()
			a.mustSave(a.claim(a.state.Term() + 4))
			b := f.actor(1)
			b.mustLoad()
			for _, term := range []uint64{b.state.Term(), b.state.Term() - 1} {
				c := b.change(registered("a"))
				c.Term = term
				c.Events = []coordinator.Event{b.starts(term)}
				c.After, _ = coordinator.State{}.Apply(c.Events...)
				b.refused(c, sharding.ErrConflict)
			}
			f.stored(2, a.state)
		}},
		{name: "ClaimStale", rule: "a claim that does not follow the stored state is refused, and no stored change is lost", run: func(f *fixture) {
			a, b := f.actor(0), f.actor(1)
			a.lead()
			b.mustLoad()
			a.mustSave(a.change(registered("a")))
			b.refused(b.claim(a.term+1), sharding.ErrConflict)
			b.mustLoad()
			if _, found := b.state.Region(region("a")); !found {
				f.Errorf("Load = %s, without an acknowledged change", show(b.state))
			}
			f.actor(2).lead() // succeeds although the failed claim may be stored
			b.lead()
			if _, found := b.state.Region(region("a")); !found {
				f.Errorf("the state %s has lost an acknowledged change", show(b.state))
			}
			f.stored(2, b.state)
		}},
		{name: "ClaimLate", rule: "a coordinator holds a term if its claim is stored, even if Save failed", run: claimLate},
		{name: "Unclaimed", rule: "a change of an unclaimed term is refused", run: func(f *fixture) {
			a := f.leader(0, registered("a"))
			c := a.change(registered("b"))
			c.Term += 2
			c.After, _ = coordinator.State{}.Apply(a.starts(c.Term), registered("a"), registered("b"))
			a.refused(c, sharding.ErrConflict)
			f.stored(1, a.state)
		}},
		{name: "Scopes", rule: "each type and role has its own state", run: func(f *fixture) {
			all := []sharding.Scope{
				{Type: "account"},
				{Type: "Account"},
				{Type: "account", Role: "a"},
				{Type: "account", Role: "a|b"},
				{Type: "account", Role: "a|state"},
				{Type: "account", Role: "1"},
				{Type: "a-1"},
				{Type: "a"},
				{Type: "a", Role: "*"},
				{Type: "a*"},
				{Type: "ä ö", Role: "日本"},
				{Type: "state"},
				{Type: strings.Repeat("t", 255), Role: strings.Repeat("r", 128)},
			}
			want := make([]coordinator.State, len(all))
			for i, scope := range all {
				a := f.actorOf(0, scope)
				a.lead()
				a.mustSave(a.change(registered(fmt.Sprint("r", i))))
				want[i] = a.state
			}
			for i, scope := range all {
				f.storedIn(f.coordinators(1, scope), want[i], fmt.Sprintf("%.40q, %.40q: ", scope.Type, scope.Role))
			}
		}},
		{name: "ScopeInvalid", rule: "invalid scopes are refused", run: func(f *fixture) {
			for _, scope := range badScopes() {
				_, err := f.place.Coordinators(0).OpenCoordinator(scope)
				f.want(err, sharding.ErrInvalid, "OpenCoordinator(%.40q, %.40q)", scope.Type, scope.Role)
			}
		}},
		{name: "Cancelled", rule: "a call with an ended context fails", run: func(f *fixture) {
			a := f.leader(0)
			c := a.change(registered("a"))
			f.failCanceled(map[string]func(context.Context) error{
				"Load": func(ctx context.Context) error { _, err := a.store.Load(ctx); return err },
				"Save": func(ctx context.Context) error { return a.store.Save(ctx, encode(&c)) },
			})
			a.mustLoad()
			if !a.state.Equal(c.After) {
				a.mustSave(a.change(registered("a")))
			}
			f.stored(1, a.state)
		}},
		{name: "Faults", rule: "after a failure of any call, a load returns the stored state, and the coordinator continues", run: faults},
		{name: "Rivals", rule: "concurrent coordinators lose no acknowledged change", run: func(f *fixture) { compete(f, false) }},
		{name: "RivalsInTrouble", rule: "concurrent coordinators lose no acknowledged change although their calls fail", run: func(f *fixture) { compete(f, true) }},
	}
}

func badScopes() []sharding.Scope {
	return []sharding.Scope{
		{},
		{Type: " "},
		{Type: "a|b"},
		{Type: "a\x00"},
		{Type: "a\xff"},
		{Type: strings.Repeat("t", 256)},
		{Type: "a", Role: "b\x00"},
		{Type: "a", Role: "\xff"},
		{Type: "a", Role: strings.Repeat("r", 129)},
	}
}
