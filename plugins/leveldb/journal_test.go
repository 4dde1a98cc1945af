// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// testLog is the size of logs and tables in tests. The engine allocates the memory of a log when it
// opens a database, which takes long with the race detector.
const testLog = 512 << 10

func mustOpen(t *testing.T, dir string, cfg leveldb.Config) *leveldb.DB {
	t.Helper()
	return mustOpenLarge(t, dir, cfg.WithLogSize(testLog))
}

// mustOpenLarge opens a database with logs and tables of the usual size.
func mustOpenLarge(t *testing.T, dir string, cfg leveldb.Config) *leveldb.DB {
	t.Helper()
	db, err := leveldb.Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// write returns a write of n events after expect.
func write(id string, expect uint64, n int) journal.Write {
	w := journal.Write{ID: id, Writer: "w1", Expect: expect}
	for i := range n {
		nr := expect + 1 + uint64(i)
		w.Events = append(w.Events, journal.Event{
			SequenceNr: nr, Time: time.UnixMicro(int64(nr)).UTC(), Manifest: "deposited", Payload: fmt.Appendf(nil, "%s-%d", id, nr),
		})
	}
	return w
}

func mustAppend(t *testing.T, j journal.Journal, writes ...journal.Write) {
	t.Helper()
	if errs := j.Append(t.Context(), writes); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
}

// numbers replays an ID and checks the payloads.
func numbers(t *testing.T, j journal.Journal, id string, from, to uint64) []uint64 {
	t.Helper()
	var nrs []uint64
	for e, err := range j.Replay(t.Context(), id, from, to) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s-%d", id, e.SequenceNr); string(e.Payload) != want {
			t.Fatalf("payload %q, want %q", e.Payload, want)
		}
		nrs = append(nrs, e.SequenceNr)
	}
	return nrs
}

func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	j := db.TestJournal()
	mustAppend(t, j, write("a", 0, 3), write("b", 0, 1), write("a", 3, 2))
	if err := j.DeleteTo(t.Context(), "a", 4); err != nil {
		t.Fatal(err)
	}
	if err := j.DeleteTo(t.Context(), "b", 9); err != nil {
		t.Fatal(err)
	}
	snap := snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 4, Time: time.UnixMicro(4).UTC()}, Manifest: "m", Payload: []byte("state")}
	if err := db.TestSnapshots().Save(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, leveldb.Config{})
	j = db.TestJournal()
	if got := numbers(t, j, "a", 0, journal.MaxSequenceNr); len(got) != 1 || got[0] != 5 {
		t.Errorf("a has the events %v, want only 5", got)
	}
	for id, want := range map[string]uint64{"a": 5, "b": 1, "c": 0} {
		if got, err := j.HighestSequenceNr(t.Context(), id); got != want || err != nil {
			t.Errorf("the highest number of %s is %d, %v, want %d", id, got, err, want)
		}
	}
	if got, err := db.TestSnapshots().Load(t.Context(), "a", snapshot.Latest()); err != nil || string(got.Payload) != "state" || got.Metadata != snap.Metadata {
		t.Errorf("the snapshot is %+v, %v, want the saved one", got, err)
	}
	mustAppend(t, j, write("c", 0, 1), write("b", 1, 1))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	j = mustOpen(t, dir, leveldb.Config{}).TestJournal()
	for id, want := range map[string]uint64{"a": 5, "b": 2, "c": 1} {
		if got := numbers(t, j, id, 1, 99); len(got) != 1 || got[0] != want {
			t.Errorf("%s has the events %v, want only %d", id, got, want)
		}
	}
}

// TestCacheEviction uses more IDs than the journal caches.
func TestCacheEviction(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{CachedIDs: 3, NoSync: true})
	j := db.TestJournal()
	const ids = 10
	for round := range uint64(5) {
		for i := range ids {
			id := fmt.Sprintf("id-%d", (i*7+int(round))%ids)
			if errs := j.Append(t.Context(), []journal.Write{write(id, round+1, 1)}); len(errs) != 1 || !errors.Is(errs[0], journal.ErrConflict) {
				t.Fatalf("conflict in round %d: %v, want ErrConflict", round, errs)
			}
			mustAppend(t, j, write(id, round, 1))
			if n := j.CachedIDs(); n < 1 || n > 3 {
				t.Fatalf("%d IDs are cached, want 1 to 3", n)
			}
		}
	}
	var all []journal.Write
	for i := range ids {
		all = append(all, write(fmt.Sprintf("id-%d", i), 5, 1))
	}
	for i := range ids { // one call with more IDs than are cached, twice each
		all = append(all, write(fmt.Sprintf("id-%d", i), 6, 1))
	}
	mustAppend(t, j, all...)
	if n := j.CachedIDs(); n != 3 {
		t.Errorf("%d IDs are cached, want 3", n)
	}
	for i := range ids {
		if got := numbers(t, j, fmt.Sprintf("id-%d", i), 1, 99); len(got) != 7 || got[6] != 7 {
			t.Errorf("id-%d has the events %v, want 1 to 7", i, got)
		}
	}
}

// countdown is a context that ends after a number of calls of Err.
type countdown struct {
	context.Context //nolint:containedctx // it is a context
	left            int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterruptedDeletion ends a deletion between two of its batches.
func TestInterruptedDeletion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	const events = 9000 // more than two pages
	mustAppend(t, db.TestJournal(), write("a", 0, events))
	for pages := 2; pages >= 1; pages-- {
		err := db.TestJournal().DeleteTo(&countdown{t.Context(), 1}, "a", events-1)
		if err == nil {
			t.Fatal("DeleteTo returned nil, want the error of its context")
		}
		for range 2 {
			if got := numbers(t, db.TestJournal(), "a", 0, events); len(got) != 1 || got[0] != events {
				t.Errorf("%d events are left, from %d, want the last one", len(got), got[0])
			}
			if n, err := db.RawEvents("a"); err != nil || n <= 4096*(pages-1) {
				t.Errorf("%d records are left, %v, want more than %d: only the first batch was executed", n, err, 4096*(pages-1))
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = mustOpen(t, dir, leveldb.Config{})
		}
	}
	if err := db.TestJournal().DeleteTo(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	if n, err := db.RawEvents("a"); n != 1 || err != nil {
		t.Errorf("%d records are left, %v, want 1", n, err)
	}
}

func TestCompactFreesSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpenLarge(t, dir, leveldb.Config{})
	j := db.TestJournal()
	const events = 10_000 // more than are deleted at once
	w := write("a", 0, events)
	for i := range w.Events {
		w.Events[i].Payload = append(w.Events[i].Payload[:0:0], benchData(100)...)
	}
	mustAppend(t, j, w, write("b", 0, 3))
	if err := db.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := tableBytes(t, dir)
	if err := j.DeleteTo(t.Context(), "a", events-1); err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFault)
	if err := db.Compact(ctx); !errors.Is(err, errFault) {
		t.Errorf("Compact with a context that has ended: %v, want errFault", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = mustOpenLarge(t, dir, leveldb.Config{}) // removes unused tables
	j = db.TestJournal()
	if after := tableBytes(t, dir); before < 100_000 || after > before/20 {
		t.Errorf("the tables have %d bytes before the deletion and %d after it, want at most a twentieth", before, after)
	}
	if got := numbers(t, j, "b", 1, 9); len(got) != 3 {
		t.Errorf("b has the events %v, want 3", got)
	}
	if n, err := j.HighestSequenceNr(t.Context(), "a"); n != events || err != nil {
		t.Errorf("the highest number of a is %d, %v, want %d", n, err, events)
	}
}

// tableBytes returns the size of the tables that are in use.
func tableBytes(t *testing.T, dir string) (total int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	return total
}

// TestNewerRecords reads records that a newer version wrote.
func TestNewerRecords(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{})
	j, s := db.TestJournal(), db.TestSnapshots()
	mustAppend(t, j, write("a", 0, 3), write("b", 0, 1))
	for nr := range uint64(2) {
		if err := s.Save(t.Context(), snapshotOf("a", nr+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.MakeNewer("a", 2); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	var last error
	for e, err := range j.Replay(t.Context(), "a", 1, 9) {
		if last = err; err == nil {
			got = append(got, e.SequenceNr)
		}
	}
	if len(got) != 1 || !errors.Is(last, journal.ErrNewerVersion) {
		t.Errorf("Replay yields %v and %v, want one event and ErrNewerVersion", got, last)
	}
	if got := numbers(t, j, "b", 1, 9); len(got) != 1 {
		t.Errorf("b has the events %v, want one", got)
	}
	if _, err := s.Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, snapshot.ErrNewerVersion) {
		t.Errorf("load: %v, want ErrNewerVersion", err)
	}
	if err := s.Delete(t.Context(), "a", snapshot.Criteria{All: true}); !errors.Is(err, snapshot.ErrNewerVersion) {
		t.Errorf("delete: %v, want ErrNewerVersion", err)
	}
	if err := s.Save(t.Context(), snapshotOf("a", 2)); !errors.Is(err, snapshot.ErrNewerVersion) {
		t.Errorf("save: %v, want ErrNewerVersion", err)
	}
	if got, err := s.Load(t.Context(), "a", snapshot.UpTo(1)); err != nil || got.SequenceNr != 1 {
		t.Errorf("Load up to 1: %+v, %v, want snapshot 1", got, err)
	}
}

// TestConcurrentSaves mixes saves with appends, which share records of the log.
func TestConcurrentSaves(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			id := fmt.Sprintf("id-%d", i)
			for n := range uint64(20) {
				if errs := db.TestJournal().Append(t.Context(), []journal.Write{write(id, n, 1)}); errs != nil {
					t.Error(errs[0])
				}
				if err := db.TestSnapshots().Save(t.Context(), snapshotOf(id, n+1)); err != nil {
					t.Error(err)
				}
				if got, err := db.TestSnapshots().Load(t.Context(), id, snapshot.Latest()); err != nil || got.SequenceNr != n+1 {
					t.Errorf("Load returns snapshot %d, %v, want %d", got.SequenceNr, err, n+1)
				}
			}
		})
	}
	group.Wait()
}

func TestSnapshotLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{MaxSnapshotSize: 1000})
	snap := snapshotOf("a", 1)
	snap.Payload = make([]byte, 1001)
	if err := db.TestSnapshots().Save(t.Context(), snap); !errors.Is(err, snapshot.ErrTooLarge) {
		t.Errorf("save: %v, want ErrTooLarge", err)
	}
	snap.Payload = snap.Payload[:1000]
	if err := db.TestSnapshots().Save(t.Context(), snap); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, leveldb.Config{MaxSnapshotSize: 999})
	if _, err := db.TestSnapshots().Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("load: %v, want ErrCorrupt", err)
	}
	for _, bad := range []snapshot.Snapshot{
		{Metadata: snapshot.Metadata{ID: "a"}},
		{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 1 << 63}},
		{Metadata: snapshot.Metadata{SequenceNr: 1}},
		{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 1}, Manifest: string(make([]byte, 4097))},
		{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 1, Time: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}},
	} {
		if err := db.TestSnapshots().Save(t.Context(), bad); !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("save %+v: %v, want ErrInvalid", bad.Metadata, err)
		}
	}
}

// TestLoadAttempts damages one snapshot after the other, the youngest first.
func TestLoadAttempts(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{})
	s := db.TestSnapshots()
	for nr := range uint64(5) {
		if err := s.Save(t.Context(), snapshotOf("a", nr+1)); err != nil {
			t.Fatal(err)
		}
	}
	for damaged := range uint64(3) {
		got, err := s.Load(t.Context(), "a", snapshot.Latest())
		if err != nil || got.SequenceNr != 5-damaged {
			t.Errorf("%d snapshots are damaged: Load returns %+v, %v, want snapshot %d", damaged, got.Metadata, err, 5-damaged)
		}
		if err := s.Damage(snapshotOf("a", 5-damaged).Metadata, damaged == 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, snapshot.ErrCorrupt) || errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("three snapshots are damaged: Load: %v, want ErrCorrupt and not ErrNotFound", err)
	}
	if got, err := s.Load(t.Context(), "a", snapshot.UpTo(4)); err != nil || got.SequenceNr != 2 {
		t.Errorf("Load up to 4: %+v, %v, want snapshot 2", got.Metadata, err)
	}
	if err := s.Delete(t.Context(), "a", snapshot.Criteria{All: true}); err != nil {
		t.Error(err)
	}
	if _, err := s.Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("after deleting all: %v, want ErrNotFound", err)
	}
}

// countedContext reports its checks, which each read of a page begins with.
type countedContext struct {
	context.Context //nolint:containedctx // it is a context

	checks atomic.Int64
	second func() // called in the second check
}

func (c *countedContext) Err() error {
	if c.checks.Add(1) == 2 {
		c.second()
	}
	return c.Context.Err()
}

// twoPages returns a journal in which "a" has more events than a page of a replay.
func twoPages(t *testing.T) *leveldb.Journal {
	t.Helper()
	j := mustOpen(t, t.TempDir(), leveldb.Config{}).TestJournal()
	mustAppend(t, j, write("a", 0, 1500))
	return j
}

func TestReplayReadsTheNextPageDuringThePage(t *testing.T) {
	t.Parallel()
	j := twoPages(t)
	synctest.Test(t, func(t *testing.T) {
		reading := make(chan struct{})
		ctx := &countedContext{Context: t.Context(), second: func() { close(reading) }}
		n := 0
		for _, err := range j.Replay(ctx, "a", 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 1 {
				<-reading
			}
		}
		if n != 1500 {
			t.Errorf("%d events, want 1500", n)
		}
	})
}

func TestReplayWaitsForTheNextPage(t *testing.T) {
	t.Parallel()
	j := twoPages(t)
	synctest.Test(t, func(t *testing.T) {
		release, done := make(chan struct{}), make(chan struct{})
		ctx := &countedContext{Context: t.Context(), second: func() { <-release }}
		go func() {
			defer close(done)
			for _, err := range j.Replay(ctx, "a", 1, journal.MaxSequenceNr) {
				if err != nil {
					t.Error(err)
				}
				break
			}
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("the loop ended while a page was read")
		default:
		}
		close(release)
		<-done
	})
}

func TestReplayReturnsAPanicOfTheNextPage(t *testing.T) {
	t.Parallel()
	j := twoPages(t)
	ctx := &countedContext{Context: t.Context(), second: func() { panic("broken") }}
	var got error
	n := 0
	for _, err := range j.Replay(ctx, "a", 1, journal.MaxSequenceNr) {
		if err == nil {
			n++
		}
		got = err
	}
	if p, ok := errors.AsType[*panics.Error](got); !ok || p.Value != "broken" || n != 500 {
		t.Errorf("%d events and %v, want 500 events and the panic", n, got)
	}
}
