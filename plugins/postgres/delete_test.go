// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// TestConcurrentDeletions lets another process delete the first events while a deletion waits. The
// deletion then deletes the remaining events.
func TestConcurrentDeletions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{MaxConns: 2})
	j := db.TestJournal()
	const part, rest = 5000, 500
	store(t, j, eventsOf("a", 0, part+rest, "tag"))
	other, watch := connect(t, dsn), connect(t, dsn)
	execute(t, other, "BEGIN")
	execute(t, other, "DELETE FROM refold.events WHERE id = 'a' AND seq_nr <= $1", part)
	result := make(chan error)
	go func() { result <- j.DeleteTo(t.Context(), "a", part+rest) }()
	for waiting := 0; waiting == 0; {
		if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, other, "COMMIT")
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	var left int
	if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM refold.events WHERE id = 'a'").Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%d of %d events are left after the deletion, want 0", left, part+rest)
	}
}

// TestDeleteTheLastNumbers deletes the highest numbers that a bigint can hold.
func TestDeleteTheLastNumbers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := openStore(t, dsn, postgres.Config{}).TestJournal()
	execute(t, connect(t, dsn), `INSERT INTO refold.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload)
		SELECT 'a', $1::bigint - n, nextval('refold.ordinals'), 0, now(), 'w', 'm', '' FROM generate_series(0, 9) n`, int64(journal.MaxSequenceNr))
	for _, c := range []struct {
		to   uint64
		left int
	}{{1, 10}, {journal.MaxSequenceNr - 3, 3}, {journal.MaxSequenceNr, 0}} {
		if err := j.DeleteTo(t.Context(), "a", c.to); err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, err := range j.Replay(t.Context(), "a", 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			left++
		}
		if highest, err := j.HighestSequenceNr(t.Context(), "a"); left != c.left || highest != journal.MaxSequenceNr || err != nil {
			t.Errorf("after a deletion up to %d %d events are left up to %d (%v), want %d", c.to, left, highest, err, c.left)
		}
	}
}
