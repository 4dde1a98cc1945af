// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/testkit/recorder"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/shardingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCorrectStore(t *testing.T) {
	t.Parallel()
	cfg := config(bug{})
	cfg.Limit = 0 // the default
	shardingtest.Run(t, cfg)
}

// bugs returns faulty stores and the checks that must fail on them.
func bugs() map[string]struct {
	finds []string
	bug   bug
} {
	type planted = struct {
		finds []string
		bug   bug
	}
	return map[string]planted{
		"an empty state has a region": {[]string{"LoadNothing"}, bug{loaded: func(l sharding.Loaded) sharding.Loaded {
			if l.Term == 0 {
				l.Events = [][]byte{coordinator.AppendEvent(nil, coordinator.Event{Kind: coordinator.RegionRegistered, Node: identity.Node{Name: "x", UID: 1}})}
			}
			return l
		}}},
		"nodes do not share their data": {[]string{"Save", "SaveManyEvents", "Fenced", "Entities", "Shards"}, bug{apart: true}},
		"a load forgets the last event": {[]string{"Save", "SaveManyEvents"}, bug{loaded: func(l sharding.Loaded) sharding.Loaded {
			if s, _, err := coordinator.Restore(l.State, nil, 0); err == nil && len(s.Regions()) > 0 {
				e := coordinator.Event{Kind: coordinator.RegionTerminated, Node: s.Regions()[len(s.Regions())-1].Node}
				l.Events = [][]byte{coordinator.AppendEvent(nil, e)}
			}
			return l
		}}},
		"a change that is saved again fails":             {[]string{"SaveAgain", "SaveAtOnce"}, bug{noRepeat: true}},
		"the position of a change is not checked":        {[]string{"SaveBehind", "ClaimStale"}, bug{anyRev: true}},
		"a change without a load is accepted":            {[]string{"SaveUnloaded"}, bug{unloaded: true}},
		"incomplete changes are accepted":                {[]string{"SaveInvalid"}, bug{unchecked: true}},
		"a lower term is accepted at the right position": {[]string{"FencedLoaded"}, bug{lowerTerm: true}},
		"a lower term is a conflict":                     {[]string{"Fenced", "FencedLoaded"}, bug{noFence: true}},
		"a term is claimed several times":                {[]string{"ClaimOnce", "Rivals"}, bug{anyClaim: true, anyRev: true}},
		"any term can be claimed":                        {[]string{"ClaimHigher"}, bug{anyClaim: true}},
		"a term without a claim is accepted":             {[]string{"Unclaimed"}, bug{unclaimed: true}},
		"a stored claim whose Save failed is not held":   {[]string{"ClaimLate"}, bug{dropsFailedClaim: true}},
		"roles share their state":                        {[]string{"Scopes", "EntitiesApart"}, bug{key: func(s sharding.Scope) string { return s.Type }}},
		"remembered entities and pending work share":     {[]string{"EntitiesApart"}, bug{key: func(s sharding.Scope) string { return s.Type + "|" + s.Role }}},
		"types share their state":                        {[]string{"Scopes"}, bug{key: func(s sharding.Scope) string { return strings.ToLower(s.Type) + "|" + s.Role }}},
		"invalid scopes are accepted":                    {[]string{"ScopeInvalid", "EntitiesInvalid"}, bug{anyScope: true}},
		"the context is ignored":                         {[]string{"Cancelled", "EntitiesCancelled"}, bug{ignoresContext: true}},
		"failures are not reported":                      {[]string{"Faults", "EntitiesFaults", "RivalsInTrouble"}, bug{hidesFailures: true}},
		"entities are stored twice":                      {[]string{"EntitiesTwice"}, bug{doubles: true}},
		"an update holds a thousand entities at most":    {[]string{"EntitiesMany"}, bug{limit: 1000}},
		"IDs are trimmed":                                {[]string{"EntitiesOdd"}, bug{id: strings.TrimSpace}},
		"IDs end at NUL":                                 {[]string{"EntitiesOdd"}, bug{id: func(id string) string { id, _, _ = strings.Cut(id, "\x00"); return id }}},
		"shards share their entities":                    {[]string{"EntitiesApart"}, bug{one: true}},
		"a shard begins with an entity":                  {[]string{"EntitiesNone"}, bug{initialEntity: true}},
		"a replaced owner can write":                     {[]string{"EntitiesFenced"}, bug{unfenced: true}},
		"added shards replace the others":                {[]string{"Shards", "ShardsAtOnce"}, bug{replaces: true}},
	}
}

// TestBugs checks that each check of the suite fails on its bug, and that each check has a bug.
func TestBugs(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for name, planted := range bugs() {
		for _, check := range planted.finds {
			found[check] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, check := range planted.finds {
				failures := recorder.Find(t, func(tb testing.TB) { shardingtest.RunOne(tb, config(planted.bug), check) })
				if len(failures) == 0 {
					t.Errorf("%s does not find the planted bug", check)
					continue
				}
				t.Logf("%s: %s", check, failures[0])
			}
		})
	}
	for _, name := range shardingtest.Names() {
		if !found[name] {
			t.Errorf("no bug is planted for %s", name)
		}
	}
	for name := range found {
		if !slices.Contains(shardingtest.Names(), name) {
			t.Errorf("a bug is planted for the unknown check %s", name)
		}
	}
}

var errStruck = errors.New("struck")

func config(b bug) shardingtest.Config {
	return shardingtest.Config{Limit: 10 * time.Second, Open: func(testing.TB) shardingtest.Place {
		places := []*place{{}, {}, {}, {}}
		if !b.apart {
			places = []*place{{}}
		}
		nodes := make([]*node, 4)
		for i := range nodes {
			nodes[i] = &node{place: places[i%len(places)], bug: b}
		}
		return shardingtest.Place{
			Coordinators: func(i int) sharding.CoordinatorStores { return nodes[i%len(nodes)] },
			Entities:     func(i int) sharding.RememberStores { return nodes[i%len(nodes)] },
			Faults: []shardingtest.Fault{
				{Name: "the next call is lost", Once: true, Strike: func(i int) func() { return nodes[i].strike(lost) }},
				{Name: "the next call is stored without a reply", Once: true, Strike: func(i int) func() { return nodes[i].strike(unanswered) }},
				{Name: "all calls hang", Strike: func(i int) func() { return nodes[i].strike(hangs) }},
			},
		}
	}}
}

// call is one call of a store, with its fault.
func (n *node) call(ctx context.Context, b *bug, do func() error) error {
	if ctx.Err() != nil && !b.ignoresContext {
		return ctx.Err()
	}
	switch n.struck() {
	case lost:
		return n.hide(b, errStruck)
	case unanswered:
		if err := do(); err != nil {
			return err
		}
		return n.hide(b, errStruck)
	case hangs:
		<-ctx.Done()
		return n.hide(b, ctx.Err())
	}
	return do()
}
