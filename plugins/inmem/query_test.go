// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// events returns a write of n events.
func events(id string, expect uint64, n int) journal.Write {
	w := journal.Write{ID: id, Expect: expect, Events: make([]journal.Event, n)}
	for i := range w.Events {
		w.Events[i] = journal.Event{SequenceNr: expect + 1 + uint64(i), Manifest: "m"}
	}
	return w
}

func store(tb testing.TB, j *inmem.Journal, writes ...journal.Write) {
	tb.Helper()
	if errs := j.Append(tb.Context(), writes); errs != nil {
		tb.Fatal(errs)
	}
}

// TestOffsetsOfOtherJournals checks that offsets of other journals are rejected, because a reader
// that resumes after such an offset would miss events.
func TestOffsetsOfOtherJournals(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	store(t, j, events("a", 0, 3))
	for _, after := range []journal.Offset{"mem-4", "mem-18446744073709551615", "3", "pg-3", "mem-03", "mem-+3", "mem-", "mem--1"} {
		if _, err := j.Query(t.Context(), journal.Criteria{}, after); !errors.Is(err, journal.ErrOffset) {
			t.Errorf("Query after %q: %v, want ErrOffset", after, err)
		}
		if err := j.Await(t.Context(), after); !errors.Is(err, journal.ErrOffset) {
			t.Errorf("Await after %q: %v, want ErrOffset", after, err)
		}
	}
}

// TestDeletedEventsAreSkippedByBlocks checks that a reader from the beginning does not examine
// blocks whose events are all deleted.
func TestDeletedEventsAreSkippedByBlocks(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	const total, kept = 200_000, 10
	store(t, j, events("kept", 0, 1))
	for n := uint64(0); n < total; n += 1000 {
		store(t, j, events("a", n, 1000))
		if n >= 1000 {
			if err := j.DeleteTo(t.Context(), "a", n-1000+kept); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := j.DeleteTo(t.Context(), "a", total-kept); err != nil {
		t.Fatal(err)
	}
	pages, found := 0, 0
	for p, more := (journal.Page{}), true; more; pages++ {
		var err error
		if p, err = j.Query(t.Context(), journal.Criteria{}, p.Next); err != nil {
			t.Fatal(err)
		}
		found, more = found+len(p.Events), p.More
	}
	if found != kept+1 || pages > 5 {
		t.Errorf("%d pages with %d events, want at most 5 with %d", pages, found, kept+1)
	}
}

// TestSparseEventsStay deletes all but one of every few hundred events.
func TestSparseEventsStay(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	const kept = 512
	deleted := uint64(0)
	for n := range kept {
		store(t, j, events("a", deleted, n+1), events(fmt.Sprint("kept|", n), 0, 1))
		deleted += uint64(n + 1)
	}
	if err := j.DeleteTo(t.Context(), "a", deleted); err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range journal.Current(t.Context(), j, journal.Criteria{}, "") {
		if err != nil || e.ID != fmt.Sprint("kept|", n) {
			t.Fatalf("event %d is of %s, %v", n, e.ID, err)
		}
		n++
	}
	if n != kept {
		t.Errorf("%d events are left, want %d", n, kept)
	}
}

// TestAwaitReturnsOnlyForEvents checks that failed writes, deletions and reads wake no waiting call.
func TestAwaitReturnsOnlyForEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		store(t, j, events("a", 0, 3))
		end, err := j.End(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var woken atomic.Int32
		for range 3 {
			go func() {
				if err := j.Await(t.Context(), end); err != nil {
					t.Error(err)
				}
				woken.Add(1)
			}()
		}
		synctest.Wait()
		j.Append(t.Context(), []journal.Write{events("a", 7, 1), events("", 0, 1)})
		if err := j.DeleteTo(t.Context(), "a", 2); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := woken.Load(); n != 0 {
			t.Errorf("%d calls of Await returned without an event, want 0", n)
		}
		store(t, j, events("b", 0, 1))
		synctest.Wait()
		if n := woken.Load(); n != 3 {
			t.Errorf("%d calls of Await returned after an event, want 3", n)
		}
	})
}

// BenchmarkQuery measures one event that a query examines.
func BenchmarkQuery(b *testing.B) {
	const total = 100_000
	j := inmem.NewJournal()
	for n := range total / 100 {
		w := events(fmt.Sprintf("account|%d", n%500), uint64(n/500*100), 100)
		for i := range w.Events {
			w.Events[i].Payload = make([]byte, 48)
		}
		w.Events[0].Tags = []string{"rare"}
		store(b, j, w)
	}
	for name, q := range map[string]journal.Criteria{"all": {}, "rare tag": {Tag: "rare"}, "slices": {Slices: journal.Slices{Count: 128}}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for k := 0; k < b.N; k += total {
				for p, more := (journal.Page{}), true; more; more = p.More {
					var err error
					if p, err = j.Query(b.Context(), q, p.Next); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
