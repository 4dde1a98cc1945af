// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"strings"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
)

// The persistence IDs of package sharding in the journal of clustered.
const (
	coordinatorID = sharding.JournalPrefix + "coordinator|account"
	entitiesID    = sharding.JournalPrefix + "entities|account|7"
	shardsID      = sharding.JournalPrefix + "shards|account"
)

// clustered adds the records of a cluster that hosts accounts to a journal.
func clustered(t *testing.T, f *fixture) sharding.JournalStores {
	t.Helper()
	stores := sharding.JournalStores{Journal: f.db.Journal(), Snapshots: f.db.Snapshots(), SnapshotEvery: 2, KeepSnapshots: -1}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := stores.OpenCoordinator(sharding.Scope{Type: "account"})
	must(err)
	_, err = c.Load(t.Context())
	must(err)
	node := identity.Node{Name: "a", UID: 1}
	state, _, err := coordinator.Restore(nil, nil, 0)
	must(err)
	for rev, e := range []coordinator.Event{
		{Kind: coordinator.Started, Term: 1, Node: node},
		{Kind: coordinator.RegionRegistered, Node: node},
		{Kind: coordinator.HomesAllocated, Node: node, Shards: []coordinator.Shard{7}},
	} {
		state, err = state.Apply(e)
		must(err)
		change := coordinator.Change{Term: 1, Rev: uint64(rev), Events: []coordinator.Event{e}, After: state}
		events, after := change.Encode()
		must(c.Save(t.Context(), sharding.Change{Term: 1, Rev: change.Rev, Claim: change.IsClaim(), Events: events, After: after}))
	}
	must(c.Close())
	entities, err := stores.OpenEntities(sharding.Scope{Type: "account"})
	must(err)
	_, err = entities.Load(t.Context(), 7)
	must(err)
	must(entities.AddShards(t.Context(), []sharding.Shard{7}))
	must(entities.Update(t.Context(), 7, []string{"1", "2"}, nil))
	must(entities.Update(t.Context(), 7, nil, []string{"2"}))
	must(entities.Close())
	return stores
}

// program returns a program on the journal of a fixture, which the caller closes.
func (f *fixture) program() operator.Program {
	return operator.Program{Journal: "leveldb:" + f.dir, Entities: []operator.Linked{operator.Entity(accountType()), operator.Entity(vaultType())}}
}

// Verify decodes the records of Refold itself.
func TestVerifyDecodesOwnRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *fixture, stores sharding.JournalStores)
		want   string // of the output
		status int
	}{
		"intact": {want: " 0 problems", status: operator.ExitOK},
		"malformed event of a coordinator": {
			change: func(f *fixture, _ sharding.JournalStores) {
				f.record(coordinatorID, journal.Event{Manifest: "refold.coordinator.event", Payload: []byte{1, 99}})
			},
			want: `"` + coordinatorID + `" at 4: `, status: operator.ExitProblems,
		},
		"malformed entities": {
			change: func(f *fixture, _ sharding.JournalStores) {
				f.record(entitiesID, journal.Event{Manifest: "refold.entities.event", Payload: []byte{1, 1, 5}})
			},
			want: `"` + entitiesID + `" at 4: malformed record`, status: operator.ExitProblems,
		},
		"malformed snapshot of shards": {
			change: func(f *fixture, _ sharding.JournalStores) {
				f.snapshot(shardsID, 1, "refold.shards.state", []byte{1, 5})
			},
			want: `"` + shardsID + `" at 1: the snapshot cannot be decoded: malformed record`, status: operator.ExitProblems,
		},
		"malformed snapshot of a coordinator": {
			change: func(f *fixture, _ sharding.JournalStores) {
				f.snapshot(coordinatorID, 3, "refold.coordinator.state", nil)
			},
			want: `"` + coordinatorID + `" at 3: the snapshot cannot be decoded: malformed record`, status: operator.ExitProblems,
		},
		"record of a later version": {
			change: func(f *fixture, _ sharding.JournalStores) {
				f.record("refold.later|1", journal.Event{Manifest: "later", Payload: []byte{0xc1}})
			},
			want: " 0 problems; 1 payload not checked", status: operator.ExitOK,
		},
		"removed": {
			change: func(f *fixture, stores sharding.JournalStores) {
				all, err := stores.FindData(t.Context())
				if err != nil || len(all) != 3 {
					t.Fatalf("FindData returned %v, %v, want three histories", all, err)
				}
				for _, d := range all {
					if err := stores.RemoveData(t.Context(), d); err != nil {
						t.Fatal(err)
					}
				}
			},
			want: " 0 problems", status: operator.ExitOK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			stores := clustered(t, f)
			if c.change != nil {
				c.change(f, stores)
			}
			f.close()
			o := start(t, f.program(), "verify")
			if o.want(t, c.status, ""); !strings.Contains(o.stdout, c.want) {
				t.Errorf("verify printed\n%s\nwant %q", o.stdout, c.want)
			}
		})
	}
}

// The commands list the records of Refold itself only on request, and copy them.
func TestCommandsKnowOwnRecords(t *testing.T) {
	t.Parallel()
	f := bank(t)
	clustered(t, f)
	f.close()
	target := "leveldb:" + t.TempDir()
	const note = "3 persistence IDs of Refold itself not shown: --all\n"
	for _, c := range []struct {
		args   string
		note   string // on standard error
		own    bool   // whether the output contains records of Refold itself
		others bool   // whether it contains others
	}{
		{args: "events", note: note, others: true},
		{args: "events --json", note: note, others: true},
		{args: "events --after refold.sharding|entities", note: strings.Replace(note, "3", "2", 1)},
		{args: "events --all", own: true, others: true},
		{args: "snapshots", note: note, others: true},
		{args: "snapshots --all", own: true, others: true},
		{args: "tail --no-follow", note: "to continue", others: true},
		{args: "tail --no-follow --type refold.sharding", note: "to continue", own: true},
		{args: "tail --no-follow --type refold.sharding --type account", note: "to continue", own: true, others: true},
		{args: "tail --no-follow --id " + shardsID, note: "to continue", own: true},
	} {
		o := start(t, f.program(), strings.Fields(c.args)...)
		o.want(t, operator.ExitOK, c.note)
		if strings.Contains(o.stdout, "refold.sharding") != c.own || strings.Contains(o.stdout, "account|1") != c.others {
			t.Errorf("%s printed\n%s\nwant records of Refold itself: %t, of accounts: %t", c.args, o.stdout, c.own, c.others)
		}
	}
	if o := start(t, f.program(), "events", coordinatorID); !strings.Contains(o.stdout, "refold.coordinator.event") || !strings.Contains(o.stdout, "bytes: a record of Refold itself)") {
		t.Errorf("events printed\n%s\nwant the records of the coordinator without their payload", o.stdout)
	}
	start(t, f.program(), "snapshots", coordinatorID, "--show", "2").want(t, operator.ExitFailed, ": a record of Refold itself")
	start(t, f.program(), "copy", "leveldb:"+f.dir, target).want(t, operator.ExitOK, "")
	source, copied := start(t, f.program(), "verify", "--digest"), start(t, f.program(), "verify", "--digest", "--journal", target)
	if source.stdout != copied.stdout || !strings.HasPrefix(source.stdout, "7 persistence IDs") {
		t.Errorf("verify of the source printed\n%s\nof the copy\n%s", source.stdout, copied.stdout)
	}
}
