// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/snapshot"
)

const accountID = sharding.JournalPrefix + "coordinator|account"

// imported returns a journal with an unchecked history of events, one for each write.
func imported(t *testing.T, events ...event) *inmem.Journal {
	t.Helper()
	j := inmem.NewJournal()
	for i, e := range events {
		put(t, j, uint64(i), journal.Event{Manifest: "refold.coordinator.event", Payload: coordinator.AppendEvent(nil, e)})
	}
	return j
}

// put appends a record after a sequence number.
func put(t *testing.T, j journal.Journal, expect uint64, e journal.Event) {
	t.Helper()
	e.SequenceNr, e.Time = expect+1, time.Unix(1_700_000_000, 0).UTC()
	if errs := j.Append(t.Context(), []journal.Write{{ID: accountID, Writer: "w", Expect: expect, Events: []journal.Event{e}}}); errs != nil {
		t.Fatal(errs)
	}
}

// TestHistoryOfTwoCoordinators checks that a history that two coordinators wrote at the same time
// is repaired, and that the repairs are described. After a snapshot, a later coordinator continues
// the history without repairs.
func TestHistoryOfTwoCoordinators(t *testing.T) {
	t.Parallel()
	j := imported(t,
		started(1, "a"), registered("r"), registered("s"), allocated("r", 1, 2),
		started(1, "b"),      // the same term
		registered("r"),      // already registered
		allocated("s", 2, 3), // shard 2 is on r
		allocated("u", 4),    // u is not registered
		allocated("r", 1),    // shard 1 is already on r
		event{Kind: coordinator.HomesDeallocated, Shards: []shard{9}},
		event{Kind: coordinator.RegionTerminated, Node: node("x")},
	)
	s := inmem.NewSnapshotStore()
	b := open(t, sharding.JournalStores{Journal: j, Snapshots: s, SnapshotEvery: 13}, "c")
	state, fold, rev, err := restored(t.Context(), b.store)
	b.must(err)
	repairs, repaired := fold.Repairs()
	want := []string{
		"term 1 of b#7 is not higher", "r#7 is registered twice", "shard 2 of r#7 is allocated to s#7: the later home holds",
		"u#7 is not registered: it is registered from now on, because it may host shards", "shard 1 is allocated to r#7 twice", "shard 9 has no home",
	}
	if !slices.Equal(repairs, want) || repaired != len(want) {
		t.Errorf("Repairs = %q, %d, want %q", repairs, repaired, want)
	}
	homes := map[shard]string{}
	for n := range shard(10) {
		if home, found := state.Home(n); found {
			homes[n] = home.Name
		}
	}
	if got := fmt.Sprint(homes, state.Term(), rev); got != "map[1:r 2:s 3:s 4:u] 1 11" {
		t.Errorf("the state is %s, want map[1:r 2:s 3:s 4:u] 1 11", got)
	}
	b.lead()
	b.must(b.save(allocated("r", 5)))
	b.must(b.store.Close())
	other := open(t, sharding.JournalStores{Journal: j, Snapshots: s}, "d")
	b.must(other.load())
	if !other.state.Equal(b.state) {
		t.Errorf("the state that a later coordinator loads differs from the state of b")
	}
	_, fold, _, err = restored(t.Context(), other.store)
	b.must(err)
	if _, repaired = fold.Repairs(); repaired != 0 {
		t.Errorf("%d repairs after the snapshot, want 0", repaired)
	}
}

// TestUnreadableHistory checks that unreadable and missing records are errors: the state does not
// begin empty.
func TestUnreadableHistory(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]journal.Event{
		"unknown manifest":           {Manifest: "deposited", Payload: coordinator.AppendEvent(nil, registered("r"))},
		"damaged payload":            {Manifest: "refold.coordinator.event", Payload: []byte{0x10, 2, 200}},
		"payload of another version": {Manifest: "refold.coordinator.event", Payload: []byte{0x20, 2}},
	} {
		j := imported(t, started(1, "a"))
		put(t, j, 1, bad)
		if _, err := open(t, sharding.JournalStores{Journal: j}, "b").store.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "event 2") {
			t.Errorf("%s: %v, want an error about event 2", name, err)
		}
	}
	// Events were deleted, and no snapshot covers them.
	j := imported(t, started(1, "a"), registered("r"), registered("s"))
	for _, upTo := range []uint64{2, 3} {
		if err := j.DeleteTo(t.Context(), accountID, upTo); err != nil {
			t.Fatal(err)
		}
		if _, err := open(t, sharding.JournalStores{Journal: j, Snapshots: inmem.NewSnapshotStore()}, "b").store.Load(t.Context()); !errors.Is(err, journal.ErrHistoryGap) {
			t.Errorf("events up to %d are missing: %v, want ErrHistoryGap", upTo, err)
		}
	}
	// The snapshot is newer than the last event of the journal.
	s := inmem.NewSnapshotStore()
	keep(t, s, 5, "refold.coordinator.state", coordinator.AppendState(nil, coordinator.State{}))
	if _, err := open(t, sharding.JournalStores{Journal: imported(t, started(1, "a")), Snapshots: s}, "b").store.Load(t.Context()); !errors.Is(err, journal.ErrHistoryGap) {
		t.Errorf("the snapshot is newer than the journal: %v, want ErrHistoryGap", err)
	}
}

func keep(t *testing.T, s snapshot.Store, at uint64, manifest string, payload []byte) {
	t.Helper()
	m := snapshot.Metadata{ID: accountID, SequenceNr: at, Time: time.Unix(1_700_000_000, 0).UTC()}
	if err := s.Save(t.Context(), snapshot.Snapshot{Metadata: m, Manifest: manifest, Payload: payload}); err != nil {
		t.Fatal(err)
	}
}

// recordedSnapshots records the numbers of saved snapshots.
type recordedSnapshots struct {
	snapshot.Store

	mu    sync.Mutex
	saved []uint64
	fail  error
	torn  bool // half of each payload is stored
}

func (r *recordedSnapshots) Save(ctx context.Context, s snapshot.Snapshot) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.saved = append(r.saved, s.SequenceNr)
	if r.torn {
		s.Payload = s.Payload[:len(s.Payload)/2]
	}
	return r.Store.Save(ctx, s)
}

// numbers returns the numbers of the snapshots and of the events.
func numbers(t *testing.T, j journal.Journal, s snapshot.Store, id string) (snapshots, events []uint64) {
	t.Helper()
	for m, err := range s.List(t.Context(), id, snapshot.Latest()) {
		if err != nil {
			t.Fatal(err)
		}
		snapshots = append(snapshots, m.SequenceNr)
	}
	for e, err := range j.Replay(t.Context(), id, 1, journal.MaxSequenceNr) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e.SequenceNr)
	}
	return snapshots, events
}

// settle opens a new store for each change, so that each snapshot is saved before the next change.
func settle(t *testing.T, cfg sharding.JournalStores, changes int) coordinator.State {
	t.Helper()
	b := lead(t, cfg, "a")
	b.must(b.store.Close())
	for i := range changes {
		next := open(t, cfg, "a")
		next.must(next.load())
		next.must(next.save(allocated("r", shard(i))))
		next.must(next.store.Close())
		b = next
	}
	return b.state
}

// TestSnapshotRetention checks after how many events a snapshot is saved, how many are kept, and
// that only records that the oldest kept snapshot covers are deleted.
func TestSnapshotRetention(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		every, keep       int
		snapshots, events string
	}{
		{5, 1, "[20 15]", "[16 17 18 19 20 21 22]"},
		{5, 2, "[20 15 10]", "[11 12 13 14 15 16 17 18 19 20 21 22]"},
		{5, 0, "[20 15 10]", "[11 12 13 14 15 16 17 18 19 20 21 22]"},
		{5, -1, "[20]", "[21 22]"},
		{20, 1, "[20]", "[1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22]"},
	} {
		j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
		cfg := sharding.JournalStores{Journal: j, Snapshots: s, SnapshotEvery: c.every, KeepSnapshots: c.keep}
		state := settle(t, cfg, 20)
		snapshots, events := numbers(t, j, s, accountID)
		if fmt.Sprint(snapshots) != c.snapshots || fmt.Sprint(events) != c.events {
			t.Errorf("every %d, %d kept: snapshots %v, events %v, want %s, %s", c.every, c.keep, snapshots, events, c.snapshots, c.events)
		}
		b := open(t, cfg, "b")
		if b.must(b.load()); !b.state.Equal(state) {
			t.Errorf("every %d, %d kept: the loaded state differs from the saved state", c.every, c.keep)
		}
	}
}

// TestUnreadableSnapshots checks that unreadable snapshots are skipped as long as the events exist.
// Without the events the load fails.
func TestUnreadableSnapshots(t *testing.T) {
	t.Parallel()
	j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
	cfg := sharding.JournalStores{Journal: j, Snapshots: s, SnapshotEvery: 5, KeepSnapshots: 1}
	want := settle(t, cfg, 20)
	keep(t, s, 20, "refold.coordinator.state", []byte{0x10, 200})
	var log bytes.Buffer
	logged, err := cfg.OpenCoordinator(sharding.Scope{Type: "account", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	got, _, _, err := restored(t.Context(), logged)
	if err != nil || !got.Equal(want) {
		t.Errorf("one damaged snapshot: %v, want the state of the older snapshot and the later events", err)
	}
	if !strings.Contains(log.String(), "snapshot does not decode") || !strings.Contains(log.String(), "sequence_nr=20") {
		t.Errorf("the log is %s, want a line about the snapshot", log.String())
	}
	if err := logged.Close(); err != nil {
		t.Error(err)
	}
	keep(t, s, 15, "something else", coordinator.AppendState(nil, coordinator.State{}))
	if _, err := open(t, cfg, "b").store.Load(t.Context()); !errors.Is(err, journal.ErrHistoryGap) {
		t.Errorf("all snapshots damaged: %v, want ErrHistoryGap", err)
	}
}

// TestSnapshotSaveFails checks that a snapshot that fails or cannot be read back is not an error,
// and that no event is deleted in this case.
func TestSnapshotSaveFails(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*recordedSnapshots{
		"fails": {Store: inmem.NewSnapshotStore(), fail: errors.New("the disk is full")},
		"torn":  {Store: inmem.NewSnapshotStore(), torn: true},
	} {
		j := inmem.NewJournal()
		cfg := sharding.JournalStores{Journal: j, Snapshots: s, SnapshotEvery: 5, KeepSnapshots: -1}
		settle(t, cfg, 10)
		if _, events := numbers(t, j, s, accountID); len(events) != 12 {
			t.Errorf("%s: the events %v are stored, want 12 events", name, events)
		}
	}
}

// TestFenceSettlesSave checks that a load after a save with an unknown outcome decides the outcome:
// a write that is not stored before the load is never stored.
func TestFenceSettlesSave(t *testing.T) {
	t.Parallel()
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	b := lead(t, sharding.JournalStores{Journal: faulty}, "a")
	late := faulty.Inject(journaltest.Fault{Do: journaltest.Late})
	was, rev := b.state, b.rev
	if err := b.save(allocated("r", 1)); err == nil {
		t.Fatal("a failed save returned no error")
	}
	b.must(b.load())
	if !b.state.Equal(was) || b.rev != rev+1 {
		t.Errorf("the state or its number %d is wrong, want the state and %d", b.rev, rev+1)
	}
	late.Release()
	if n := late.Landed(); n != 0 {
		t.Errorf("%d writes were stored after the fence, want 0", n)
	}
	b.must(b.save(allocated("r", 2)))
	// A stored write is found and needs no further fence.
	faulty.Inject(journaltest.Fault{Do: journaltest.Store})
	if err := b.save(allocated("r", 3)); err == nil {
		t.Fatal("a save without a reply returned no error")
	}
	b.must(b.load())
	if home, found := b.state.Home(3); !found || home != node("r") {
		t.Errorf("shard 3 has no home on r, want the stored change to be loaded")
	}
	if b.rev != rev+3 {
		t.Errorf("the last event is %d, want %d", b.rev, rev+3)
	}
	// A load that cannot decide the outcome fails.
	faulty.Inject(journaltest.Fault{Times: -1})
	if err := b.save(allocated("r", 4)); err == nil {
		t.Fatal("a failed save returned no error")
	}
	if err := b.load(); err == nil {
		t.Errorf("a load that cannot decide the outcome of a save succeeded")
	}
	faulty.Reset()
	b.must(b.load())
	b.must(b.save(allocated("r", 4)))
}

// TestEventTimesIncrease checks that no event of a history is earlier than the previous one,
// although the clock was set back.
func TestEventTimesIncrease(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	future := time.Now().UTC().Truncate(time.Microsecond).Add(time.Hour)
	e := journal.Event{SequenceNr: 1, Time: future, Manifest: "refold.coordinator.event", Payload: coordinator.AppendEvent(nil, started(1, "a"))}
	if errs := j.Append(t.Context(), []journal.Write{{ID: accountID, Writer: "w", Events: []journal.Event{e}}}); errs != nil {
		t.Fatal(errs)
	}
	lead(t, sharding.JournalStores{Journal: j}, "b")
	for e, err := range j.Replay(t.Context(), accountID, 1, journal.MaxSequenceNr) {
		if err != nil || e.Time.Before(future) {
			t.Errorf("event %d has the time %v, error %v, want a time not before %v", e.SequenceNr, e.Time, err, future)
		}
	}
}
