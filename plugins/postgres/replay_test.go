// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// numbers returns the sequence numbers of a replay.
func numbers(t *testing.T, j journal.Journal, id string, from, to uint64) (all []uint64, bytes int) {
	t.Helper()
	for e, err := range j.Replay(t.Context(), id, from, to) {
		if err != nil {
			t.Fatal(err)
		}
		if uint64(len(e.Payload)) > 0 && e.Payload[0] != byte(e.SequenceNr) || uint64(len(e.Metadata)) > 0 && e.Metadata[0] != byte(e.SequenceNr)+1 {
			t.Fatalf("event %d has the data of another event", e.SequenceNr)
		}
		all = append(all, e.SequenceNr)
		bytes += len(e.Payload) + len(e.Metadata)
	}
	return all, bytes
}

// Pages end between small and large events, in all orders. No event is missing or repeated.
func TestReplayOfAllSizes(t *testing.T) {
	t.Parallel()
	const total = 2300
	j := openStore(t, pgtest.DSN(t), postgres.Config{}).TestJournal()
	large := map[uint64]int{
		1: 1049, 2: 1048, 3: 600_000, 4: 600_000, 500: 1 << 20, 501: 1 << 20, 502: 1<<20 + 1, 999: 3000, 1000: 3000, 1001: 3000,
		1500: 2 << 20, 2299: 1 << 19, 2300: 1 << 19,
	}
	for n := uint64(600); n < 900; n++ {
		large[n] = 5000
	}
	w := journal.Write{ID: "a"}
	want := 0
	for n := uint64(1); n <= total; n++ {
		e := journal.Event{SequenceNr: n, Manifest: "m", Payload: []byte{byte(n), 1, 2}}
		if size := large[n]; size > 0 {
			e.Payload = make([]byte, size-size/3)
			e.Metadata = make([]byte, size/3)
			e.Payload[0], e.Metadata[0] = byte(n), byte(n)+1
		}
		want += len(e.Payload) + len(e.Metadata)
		w.Events = append(w.Events, e)
	}
	store(t, j, w)
	all, bytes := numbers(t, j, "a", 1, journal.MaxSequenceNr)
	if len(all) != total || !slices.IsSorted(all) || all[total-1] != total || bytes != want {
		t.Errorf("%d events, %d bytes, want %d bytes", len(all), bytes, want)
	}
	for _, c := range [][2]uint64{{2, 4}, {499, 503}, {1000, 1000}, {1001, 2000}, {1300, 2300}, {2300, 2300}, {2301, 9999}} {
		got, _ := numbers(t, j, "a", c[0], c[1])
		var expected []uint64
		for n := c[0]; n <= min(c[1], total); n++ {
			expected = append(expected, n)
		}
		if !slices.Equal(got, expected) {
			t.Errorf("Replay from %d to %d yielded %d events, want %d", c[0], c[1], len(got), len(expected))
		}
	}
}

// Replay returns the events after a gap in a history, so that the caller can detect the gap.
func TestReplayAfterAGap(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := openStore(t, dsn, postgres.Config{}).TestJournal()
	w := journal.Write{ID: "a"}
	for n := range uint64(5000) {
		w.Events = append(w.Events, journal.Event{SequenceNr: n + 1, Manifest: "m"})
	}
	store(t, j, w)
	execute(t, connect(t, dsn), "DELETE FROM refold.events WHERE seq_nr <= 3 OR seq_nr BETWEEN 500 AND 2600 OR seq_nr BETWEEN 3000 AND 4999")
	got, _ := numbers(t, j, "a", 1, journal.MaxSequenceNr)
	if len(got) != 496+399+1 || got[0] != 4 || got[495] != 499 || got[496] != 2601 || got[len(got)-1] != 5000 {
		t.Errorf("%d events, want those outside of the gaps", len(got))
	}
}

// The writer and the manifest of each event are returned, although a page omits those that end the page
// before.
func TestReplayOfManyWriters(t *testing.T) {
	t.Parallel()
	j := openStore(t, pgtest.DSN(t), postgres.Config{}).TestJournal()
	const events = 3500 // four pages
	name := func(prefix string, n uint64) string { return fmt.Sprint(prefix, n%3) }
	for n := uint64(1); n <= events; n += 50 {
		w := journal.Write{ID: "a", Writer: name("w", n), Expect: n - 1}
		for k := n; k < n+50; k++ {
			w.Events = append(w.Events, journal.Event{SequenceNr: k, Manifest: name("m", k/7), Payload: []byte("p")})
		}
		store(t, j, w)
	}
	var last uint64
	for e, err := range j.Replay(t.Context(), "a", 1, events) {
		if err != nil {
			t.Fatal(err)
		}
		last++
		if writer, manifest := name("w", last-(last-1)%50), name("m", last/7); e.SequenceNr != last || e.Writer != writer || e.Manifest != manifest {
			t.Fatalf("event %d of %s with %s, want %d of %s with %s", e.SequenceNr, e.Writer, e.Manifest, last, writer, manifest)
		}
	}
	if last != events {
		t.Errorf("%d events were replayed, want %d", last, events)
	}
}
