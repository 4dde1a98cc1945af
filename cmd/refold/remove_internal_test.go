// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/sharding"
)

// decide starts the term of a coordinator in a journal.
func decide(t *testing.T, state sharding.JournalStores, typ string) {
	t.Helper()
	store, err := state.OpenCoordinator(sharding.Scope{Type: typ})
	if err != nil {
		t.Fatal(err)
	}
	l, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := coordinator.Event{Kind: coordinator.Started, Term: l.Term + 1, Node: identity.Node{Name: "a", UID: 1}}
	before, _, err := coordinator.Restore(l.State, l.Events, l.Term)
	if err != nil {
		t.Fatal(err)
	}
	after, err := before.Apply(e)
	if err != nil {
		t.Fatal(err)
	}
	change := coordinator.Change{Events: []coordinator.Event{e}, After: after}
	events, stored := change.Encode()
	if err := store.Save(t.Context(), sharding.Change{Term: e.Term, Rev: l.Rev, Claim: true, Events: events, After: stored}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveShardingData(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := t.TempDir()
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	decide(t, sharding.JournalStores{Journal: db.Journal(), Snapshots: db.Snapshots()}, "account")
	decide(t, sharding.JournalStores{Journal: db.Journal(), Snapshots: db.Snapshots()}, "loan")
	remove := func(status int, want string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		p := program()
		p.Stdout, p.Stderr = &out, &errs
		all := append([]string{"remove-sharding-data", "--token-file", l.server.TokenFile(), "--timeout", patience}, args...)
		if !slices.Contains(args, "--nats") { // a repeated --nats adds servers
			all = append(all, "--nats", l.server.URL())
		}
		got := p.Run(t.Context(), all)
		if text := out.String() + errs.String(); got != status || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%q: exit status %d, want %d and output with %q, got\n%s", args, got, status, want, text)
		}
	}
	at := "--journal=leveldb:" + dir
	remove(2, "in use", at, "account", "--yes") // a node has the journal open
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	remove(2, "--journal", "account")
	remove(2, "--yes needs the names", at, "--yes")
	remove(0, `^PERSISTENCE ID +EVENTS  SNAPSHOTS  LAST WRITTEN\nrefold.sharding\|coordinator\|account  1 +0 +20.*\nrefold.sharding\|coordinator\|loan .*\n.*nothing is removed: name the entity types, and add --yes\n`, at)
	remove(0, `"type":"account","what":"coordinator","events":1(?s:.*)nothing is removed: add --yes to remove this data\n`, at, "account", "--json")
	remove(2, `no data of "card"; nothing is removed`, at, "card", "account", "--yes")

	n := l.join("a")
	remove(2, `nodes of cluster "lab" run: a#.* has responded, with 1 members; nothing is removed`, at, "account", "--yes", "--cluster", "lab")
	remove(2, `cannot determine whether nodes run: .*; nothing is removed`, at, "account", "--yes", "--cluster", "lab", "--nats", "nats://127.0.0.1:1")
	remove(2, `--nodes-are-stopped to confirm that none runs; nothing is removed`, "--journal=postgres://nobody@127.0.0.1:1/none", "account", "--yes")
	n.Stop()
	<-n.Done()
	remove(0, `the data of 1 persistence IDs is removed`, at, "account", "--yes", "--cluster", "lab")
	remove(0, `\|account +1 +0 .*, removed\n.*no data to remove`, at, "account", "--yes")
	remove(0, `\|loan +1 +0 +20[-0-9]+ [:0-9]+\n`, at)
}

// A node may run while the command has a PostgreSQL journal open. The command detects writes of a
// node.
func TestRemoveShardingDataOnPostgres(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db, err := postgres.Open(t.Context(), dsn, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	state := sharding.JournalStores{Journal: db.Journal(), Snapshots: db.Snapshots()}
	decide(t, state, "account")
	decide(t, state, "loan")
	remove := func(status int, want string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		p := program()
		p.Stdout, p.Stderr = &out, &errs
		got := p.Run(t.Context(), append([]string{"remove-sharding-data", "--journal", dsn}, args...))
		if text := out.String() + errs.String(); got != status || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%q: exit status %d, want %d and output with %q, got\n%s", args, got, status, want, text)
		}
	}
	remove(0, `\|account +1 +0 +20.*\n.*\|loan +1 +0 +20.*\n.*name the entity types, and add --yes\n`)
	remove(2, `--nodes-are-stopped to confirm that none runs; nothing is removed`, "account", "--yes")
	remove(0, `the data of 1 persistence IDs is removed`, "account", "--yes", "--nodes-are-stopped")
	remove(0, `no data to remove`, "account", "--yes", "--nodes-are-stopped")
	found, err := state.FindData(t.Context(), "loan")
	if err != nil || len(found) != 1 {
		t.Fatalf("FindData = %+v, error %v, want one history", found, err)
	}
	decide(t, state, "loan") // writes to the journal as a node does
	if err = state.RemoveData(t.Context(), found[0]); !errors.Is(err, sharding.ErrConflict) {
		t.Errorf("removal while a node writes: error %v, want ErrConflict", err)
	}
	decide(t, state, "account") // starts a new history
	remove(0, `\|account +2 +0 +20.*\n.*\|loan +2 +0 +20`)
}
