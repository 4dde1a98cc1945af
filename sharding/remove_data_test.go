// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
)

// decided lets a coordinator begin a term and allocate n shards to a node.
func decided(t *testing.T, c sharding.JournalStores, scope sharding.Scope, n int) coordinator.State {
	t.Helper()
	store, err := c.OpenCoordinator(scope)
	if err != nil {
		t.Fatal(err)
	}
	state, _, rev, err := restored(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	a := identity.Node{Name: "a", UID: 1}
	events := []coordinator.Event{{Kind: coordinator.Started, Term: state.Term() + 1, Node: a}}
	if _, known := state.Region(a); !known {
		events = append(events, coordinator.Event{Kind: coordinator.RegionRegistered, Node: a})
	}
	for i := range n {
		events = append(events, coordinator.Event{Kind: coordinator.HomesAllocated, Node: a, Shards: []coordinator.Shard{coordinator.Shard(i)}})
	}
	after := state
	for _, e := range events {
		if after, err = after.Apply(e); err != nil {
			t.Fatal(err)
		}
		change := coordinator.Change{Term: after.Term(), Rev: rev, Events: []coordinator.Event{e}, After: after}
		if err := store.Save(t.Context(), stored(&change)); err != nil {
			t.Fatal(err)
		}
		rev++
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return after
}

func loaded(t *testing.T, c sharding.JournalStores, scope sharding.Scope) (state coordinator.State, rev uint64, err error) {
	t.Helper()
	store, err := c.OpenCoordinator(scope)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	state, _, rev, err = restored(t.Context(), store)
	return state, rev, err
}

func find(t *testing.T, c sharding.JournalStores, types ...string) []sharding.JournalData {
	t.Helper()
	all, err := c.FindData(t.Context(), types...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRemoveData checks that a removed history begins empty, and that other data stays.
func TestRemoveData(t *testing.T) {
	t.Parallel()
	for name, snapshots := range map[string]bool{"events": false, "snapshots": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := inmem.NewJournal()
			c := sharding.JournalStores{Journal: j, SnapshotEvery: 4, KeepSnapshots: 1}
			if snapshots {
				c.Snapshots = inmem.NewSnapshotStore()
			}
			account, other, inRole := sharding.Scope{Type: "account"}, sharding.Scope{Type: "accounts"}, sharding.Scope{Type: "account", Role: "x|y"}
			for _, s := range []sharding.Scope{account, other, inRole} {
				decided(t, c, s, 20)
			}
			entities, err := c.OpenEntities(account)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = entities.Load(t.Context(), 7); err != nil {
				t.Fatal(err)
			}
			if err = errors.Join(entities.Update(t.Context(), 7, []string{"42"}, nil), entities.AddShards(t.Context(), []sharding.Shard{7}), entities.Close()); err != nil {
				t.Fatal(err)
			}
			user := []journal.Event{{SequenceNr: 1, Manifest: "deposited", Payload: []byte{1}}}
			if errs := j.Append(t.Context(), []journal.Write{{ID: "account|42", Writer: "w", Events: user}, {ID: "refold.sharding|diary|account", Writer: "w", Events: user}}); errs != nil {
				t.Fatal(errs)
			}
			all := find(t, c, "account")
			var subject []string
			for _, d := range all {
				subject = append(subject, d.Kind+" "+strings.TrimPrefix(d.ID, sharding.JournalPrefix))
				if d.Type != "account" || d.Highest == 0 || d.Last.IsZero() || d.Writer == "" || d.Removed || d.Snapshots > 0 && !snapshots {
					t.Errorf("FindData returns %+v, want the data of account", d)
				}
			}
			want := []string{"coordinator coordinator|account", "coordinator coordinator|account|x|y", "entities entities|account|7", "shards shards|account"}
			if !slices.Equal(subject, want) {
				t.Fatalf("FindData returns %q, want %q", subject, want)
			}
			if more := find(t, c); len(more) != 5 {
				t.Errorf("FindData of all types returns %+v, want 5 entries", more)
			}
			for range 2 { // the second round removes nothing
				for _, d := range all {
					if err = c.RemoveData(t.Context(), d); err != nil {
						t.Fatal(err)
					}
				}
				all = find(t, c, "account")
				for _, d := range all {
					if !d.Removed || d.Events != 1 || d.Snapshots != 0 {
						t.Errorf("after RemoveData: %+v, want one event, marked as removed", d)
					}
				}
			}
			if s, rev, failed := loaded(t, c, account); failed != nil || s.Term() != 0 || s.Shards() != 0 || rev == 0 {
				t.Errorf("Load after RemoveData = %+v, %v, want the empty state at the last number", s, failed)
			}
			if s, _, failed := loaded(t, c, other); failed != nil || s.Shards() != 20 {
				t.Errorf("Load of another type = %+v, %v, want 20 shards", s, failed)
			}
			if after := decided(t, c, account, 5); after.Term() != 1 || after.Shards() != 5 {
				t.Errorf("state of the next coordinator: %+v, want term 1 with 5 shards", after)
			}
			if s, _, failed := loaded(t, c, account); failed != nil || s.Shards() != 5 {
				t.Errorf("Load of the next state = %+v, %v, want 5 shards", s, failed)
			}
			if entities, err = c.OpenEntities(account); err != nil {
				t.Fatal(err)
			}
			ids, err := entities.Load(t.Context(), 7)
			shards, failed := entities.Shards(t.Context())
			if err = errors.Join(err, failed, entities.Close()); err != nil || len(ids) != 0 || len(shards) != 0 {
				t.Errorf("after RemoveData: entities %v, shards %v, %v, want none", ids, shards, err)
			}
			if n, err := j.HighestSequenceNr(t.Context(), "account|42"); err != nil || n != 1 {
				t.Errorf("the entity has %d events: %v, want 1", n, err)
			}
		})
	}
}

// TestRemoveChangedData checks that RemoveData removes nothing if the history has changed since
// FindData.
func TestRemoveChangedData(t *testing.T) {
	t.Parallel()
	c := sharding.JournalStores{Journal: inmem.NewJournal()}
	account := sharding.Scope{Type: "account"}
	decided(t, c, account, 3)
	d := find(t, c)[0]
	decided(t, c, account, 0)
	if err := c.RemoveData(t.Context(), d); !errors.Is(err, sharding.ErrConflict) || !strings.Contains(err.Error(), "a node runs") {
		t.Errorf("RemoveData = %v, want ErrConflict", err)
	}
	if s, _, err := loaded(t, c, account); err != nil || s.Term() != 2 {
		t.Errorf("Load after the failed RemoveData = %+v, %v, want term 2", s, err)
	}
	for _, id := range []string{"account|42", "refold.sharding|diary|account", "refold.sharding|entities|account", "refold.sharding|coordinator|"} {
		if err := c.RemoveData(t.Context(), sharding.JournalData{ID: id, Highest: 1}); !errors.Is(err, sharding.ErrInvalid) {
			t.Errorf("RemoveData of %q: %v, want ErrInvalid", id, err)
		}
	}
}

// TestRemoveDataFailsHalfway checks that the history is empty although a deletion fails, and that a
// second call completes the removal.
func TestRemoveDataFailsHalfway(t *testing.T) {
	t.Parallel()
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	snapshots := inmem.NewSnapshotStore()
	c := sharding.JournalStores{Journal: faulty, Snapshots: snapshots, SnapshotEvery: 4, KeepSnapshots: 1}
	account := sharding.Scope{Type: "account"}
	decided(t, c, account, 20)
	faulty.Inject(journaltest.Fault{Op: journaltest.OpDelete})
	if err := c.RemoveData(t.Context(), find(t, c)[0]); err == nil {
		t.Fatal("RemoveData succeeded although the deletion failed")
	}
	if s, _, err := loaded(t, c, account); err != nil || s.Term() != 0 {
		t.Errorf("Load after the failed deletion = %+v, %v, want the empty state", s, err)
	}
	faulty.Reset()
	d := find(t, c)[0]
	if d.Removed {
		t.Errorf("FindData reports an incomplete removal as complete: %+v", d)
	}
	if err := c.RemoveData(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if after := find(t, c)[0]; !after.Removed || after.Highest != d.Highest {
		t.Errorf("after the second RemoveData: %+v, before %+v, want a completed removal at the same number", after, d)
	}
}
