// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// adoptedTallies are the tallies whose histories are stored as "old-ID".
func adoptedTallies() eventsourcing.Type[tally, counted] {
	typ := tallyType()
	typ.PersistenceID = func(id string) string { return "old-" + id }
	typ.EntityID = func(persistenceID string) (string, bool) { return strings.CutPrefix(persistenceID, "old-") }
	return typ
}

// storeOld stores an event of another program with a persistence ID of its own.
func storeOld(tb testing.TB, db store.DB, persistenceID string) {
	tb.Helper()
	manifest, payload, err := tallyType().Events.Encode(counted{By: 5})
	if err != nil {
		tb.Fatal(err)
	}
	w := journal.Write{ID: persistenceID, Writer: "old", Events: []journal.Event{{SequenceNr: 1, Manifest: manifest, Payload: payload}}}
	if errs := db.Journal().Append(tb.Context(), []journal.Write{w}); errs != nil {
		tb.Fatal(errs)
	}
}

// An existing history continues under its own persistence ID.
func TestAdoptedHistory(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		storeOld(t, db, "old-a")
		rt := openRuntime(t, db)
		tallies, err := eventsourcing.Host(rt, adoptedTallies())
		if err != nil {
			t.Fatal(err)
		}
		if n, asked := eventsourcing.Ask(within(t), tallies.Ref("a"), count{By: 2}); n != 7 || asked != nil {
			t.Errorf("the reply is %d, %v, want 7", n, asked)
		}
		if ids := listed(t, tallies); !slices.Equal(ids, []string{"a"}) {
			t.Errorf("the IDs are %q, want a", ids)
		}
		if highest, err := db.Journal().HighestSequenceNr(within(t), "old-a"); highest != 2 || err != nil {
			t.Errorf("the history has %d events, %v, want 2", highest, err)
		}
	})
}

// Every node of a cluster finds the adopted history and lists its entity, also a node with a proxy.
func TestAdoptedHistoryOfAShardedEntity(t *testing.T) {
	t.Parallel()
	f, ctx := threeNodes(t), within(t)
	storeOld(t, f.db, "old-a")
	for i, node := range f.nodes {
		r, err := sharding.Host(ctx, node, f.runtimes[i], adoptedTallies(), sharding.Options{Shards: 10, ProxyOnly: i == 2})
		if err != nil {
			t.Fatal(err)
		}
		if n, asked := askAgain(ctx, r.Ref("a"), count{}); n != 5 || asked != nil {
			t.Errorf("node %d: the reply is %d, %v, want 5", i, n, asked)
		}
		if ids := listed(t, r); !slices.Equal(ids, []string{"a"}) {
			t.Errorf("node %d: the IDs are %q, want a", i, ids)
		}
	}
}

func listed(tb testing.TB, tallies eventsourcing.Entities[tally]) (ids []string) {
	tb.Helper()
	for id, err := range tallies.IDs(within(tb)) {
		if err != nil {
			tb.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}
