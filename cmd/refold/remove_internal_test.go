// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/coordinator"
)

// decide lets a coordinator of a type begin a term in a directory.
func decide(t *testing.T, db *leveldb.DB, typ string) {
	t.Helper()
	store, err := sharding.JournalState(db.Journal(), db.Snapshots()).OpenCoordinator(sharding.Scope{Type: typ})
	if err != nil {
		t.Fatal(err)
	}
	l, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := coordinator.Event{Kind: coordinator.Started, Term: l.State.Term() + 1, Node: identity.Node{Name: "a", UID: 1}}
	after, err := l.State.Apply(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), sharding.Change{Term: e.Term, Rev: l.Rev, Events: []coordinator.Event{e}, After: after}); err != nil {
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
	decide(t, db, "account")
	decide(t, db, "loan")
	remove := func(status int, want string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		p := program()
		p.Stdout, p.Stderr = &out, &errs
		all := append([]string{"remove-sharding-data", "--token-file", l.server.TokenFile(), "--timeout", "3s"}, args...)
		if !slices.Contains(args, "--nats") { // which may be given more than once
			all = append(all, "--nats", l.server.URL())
		}
		got := p.Run(t.Context(), all)
		if text := out.String() + errs.String(); got != status || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%q: exit status %d, not %d, or no %q in\n%s", args, got, status, want, text)
		}
	}
	at := "--journal=leveldb:" + dir
	remove(2, "in use", at, "account", "--yes") // by a node
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	remove(2, "--journal", "account")
	remove(2, "--yes needs the names", at, "--yes")
	remove(0, `^PERSISTENCE ID +EVENTS  SNAPSHOTS  LAST WRITTEN\nrefold.sharding\|coordinator\|account  1 +0 +20.*\nrefold.sharding\|coordinator\|loan .*\n.*nothing is removed: name the entity types, and --yes\n`, at)
	remove(0, `"type":"account","what":"coordinator","events":1(?s:.*)nothing is removed: --yes removes this\n`, at, "account", "--json")
	remove(2, `there is nothing of "card"; nothing is removed`, at, "card", "account", "--yes")

	n := l.join("a")
	remove(2, `nodes of cluster "lab" run: a#.* has answered, and knows 1 members; nothing is removed`, at, "account", "--yes", "--cluster", "lab")
	remove(2, `whether nodes run can't be asked: .*; nothing is removed`, at, "account", "--yes", "--cluster", "lab", "--nats", "nats://127.0.0.1:1")
	remove(2, `--nodes-are-stopped says that none does; nothing is removed`, "--journal=postgres://nobody@127.0.0.1:1/none", "account", "--yes")
	n.Stop()
	<-n.Done()
	remove(0, `the data of 1 persistence IDs is removed`, at, "account", "--yes", "--cluster", "lab")
	remove(0, `\|account +1 +0 .*, removed\n.*there is nothing to remove`, at, "account", "--yes")
	remove(0, `\|loan +1 +0 +20[-0-9]+ [:0-9]+\n`, at)
}
