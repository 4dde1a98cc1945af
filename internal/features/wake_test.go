// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// After all nodes have crashed, an unconfirmed delivery and a deadline continue without a command when
// the first node has started, on each journal.
func TestWorkContinuesAfterRestart(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		testWorkAfterRestart(t, db, reminderType, eventsourcing.HostOptions{})
	})
}

// The index is in the journal of the runtime, also if the type has a store of its own.
func TestWorkOfStoreOfATypeContinues(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		shared, err := inmem.Open()
		if err != nil {
			t.Fatal(err)
		}
		testWorkAfterRestart(t, shared, reminderType, eventsourcing.HostOptions{Store: db})
		if highest, err := db.Journal().HighestSequenceNr(within(t), "reminder|milk"); highest == 0 || err != nil {
			t.Errorf("the store of the type has %d events of a reminder, %v, want some", highest, err)
		}
	})
}

// The index holds the IDs of entities, also if their persistence IDs are their own.
func TestWorkOfAdoptedHistoriesContinues(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		testWorkAfterRestart(t, db, func(late chan<- string) eventsourcing.Type[reminder, reminderEvent] {
			typ := reminderType(late)
			typ.PersistenceID = func(id string) string { return "old-" + id }
			typ.EntityID = func(persistenceID string) (string, bool) { return strings.CutPrefix(persistenceID, "old-") }
			return typ
		}, eventsourcing.HostOptions{})
		if highest, err := db.Journal().HighestSequenceNr(within(t), "old-milk"); highest == 0 || err != nil {
			t.Errorf("the journal has %d events of a reminder, %v, want some", highest, err)
		}
	})
}

func testWorkAfterRestart(t *testing.T, db store.DB, reminders func(chan<- string) eventsourcing.Type[reminder, reminderEvent], host eventsourcing.HostOptions) {
	t.Helper()
	f, ctx, texts := startNodes(t, db, 0), within(t), make(chan string, 10)
	start := func() *sharding.Region[reminder] {
		i := f.add(nil) //nolint:contextcheck // the node has a context of its own
		r, err := sharding.Host(ctx, f.nodes[i], f.runtimes[i], reminders(texts), sharding.Options{Shards: 4, Host: host})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := start()
	if _, err := eventsourcing.Ask(ctx, first.Ref("milk"), remind{To: "home"}); err != nil { // no node has notebooks
		t.Fatal(err)
	}
	if _, err := eventsourcing.Ask(ctx, first.Ref("tea"), remind{Due: time.Now().Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	f.crash(f.nodes[0])
	closeRuntime(t, f.runtimes[0])
	f.nodes, f.runtimes = nil, nil // the next node has the name of the crashed one
	start()
	if _, err := sharding.Host(ctx, f.nodes[0], f.runtimes[0], notebookType(texts), sharding.Options{Shards: 4}); err != nil {
		t.Fatal(err)
	}
	wantTexts(t, texts, "milk", "tea")
}

// After a node of three has crashed, the work of its entities continues on the other nodes without a
// command.
func TestWorkContinuesOnOtherNodes(t *testing.T) {
	t.Parallel()
	f := threeNodes(t)
	ctx, texts := within(t), make(chan string, 40)
	var regions []*sharding.Region[reminder]
	for i, node := range f.nodes {
		r, err := sharding.Host(ctx, node, f.runtimes[i], reminderType(texts), sharding.Options{Shards: 10})
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	for _, r := range regions { // shards go to registered regions only
		if err := r.AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	due := time.Now().Add(5 * time.Second)
	moved := 0
	for i := range 20 {
		c := remind{Due: due}
		if i%2 == 0 {
			c = remind{To: "home"} // no node has notebooks yet
		}
		id := fmt.Sprint(i)
		if _, err := eventsourcing.Ask(ctx, regions[0].Ref(id), c); err != nil {
			t.Fatal(err)
		}
		want = append(want, id)
		shard, err := regions[0].ShardOf(id)
		if err != nil {
			t.Fatal(err)
		}
		if home, known, asked := regions[0].Home(ctx, shard); asked == nil && known && home == f.nodes[2].Self() {
			moved++
		}
	}
	if moved == 0 {
		t.Fatal("no reminder runs on the node that crashes")
	}
	f.crash(f.nodes[2])
	for i, node := range f.nodes[:2] {
		if _, err := sharding.Host(ctx, node, f.runtimes[i], notebookType(texts), sharding.Options{Shards: 10}); err != nil {
			t.Fatal(err)
		}
	}
	wantTexts(t, texts, want...)
}

// wantTexts waits until each text has arrived. A reminder may report its deadline once more if its node
// crashes before the event is stored.
func wantTexts(t *testing.T, from <-chan string, want ...string) {
	t.Helper()
	ctx, missing := within(t), map[string]bool{}
	for _, text := range want {
		missing[text] = true
	}
	for len(missing) > 0 {
		select {
		case text := <-from:
			delete(missing, text)
		case <-ctx.Done():
			t.Fatalf("%v did not continue", missing)
		}
	}
}
