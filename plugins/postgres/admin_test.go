// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/snapshot"
)

// everything calls all methods of a journal and a snapshot store.
func everything(t *testing.T, db *postgres.DB) {
	t.Helper()
	j, snapshots := db.TestJournal(), db.TestSnapshots()
	store(t, j, eventsOf("a", 0, 1, "tag"))
	store(t, j, eventsOf("a", 1, 3), eventsOf("b", 0, 2, "tag"))
	for _, n := range []int{1, 2} {
		if errs := j.Append(t.Context(), []journal.Write{eventsOf("a", 2, n)}); errs == nil || !errors.Is(errs[0], journal.ErrConflict) {
			t.Errorf("append of %d events: %v, want a conflict", n, errs)
		}
	}
	if err := j.DeleteTo(t.Context(), "a", 2); err != nil {
		t.Error(err)
	}
	store(t, j, eventsOf("a", 4, 1, "tag"), eventsOf("b", 2, 1))
	replayed := 0
	for _, err := range j.Replay(t.Context(), "a", 1, 9) {
		if err != nil {
			t.Error(err)
		}
		replayed++
	}
	if replayed != 3 {
		t.Errorf("replayed %d events, want 3", replayed)
	}
	if all, _ := readAll(t, j, journal.Criteria{}, ""); len(all) != 6 {
		t.Errorf("all events: %v, want 6", named(all))
	}
	if tagged, _ := readAll(t, j, journal.Criteria{Tag: "tag"}, ""); len(tagged) != 3 {
		t.Errorf("events with the tag: %v, want 3", named(tagged))
	}
	for id, err := range j.PersistenceIDs(t.Context(), "") {
		if err != nil {
			t.Error(id, err)
		}
	}
	for range 2 {
		if err := snapshots.Save(t.Context(), snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 5, Time: time.Unix(1, 0).UTC()}}); err != nil {
			t.Error(err)
		}
	}
	_, err := snapshots.Load(t.Context(), "a", snapshot.Latest())
	if err = errors.Join(err, snapshots.Delete(t.Context(), "a", snapshot.Criteria{All: true})); err != nil {
		t.Error(err)
	}
}

// The journal works with a table of events that is partitioned by hash of the ID.
func TestPartitionedByHash(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	admin := connect(t, dsn)
	for _, sql := range []string{
		"ALTER TABLE refold.events RENAME TO whole",
		"CREATE TABLE refold.events (LIKE refold.whole, PRIMARY KEY (id, seq_nr)) PARTITION BY HASH (id)",
		"CREATE TABLE refold.events_0 PARTITION OF refold.events FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
		"CREATE TABLE refold.events_1 PARTITION OF refold.events FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
		"DROP TABLE refold.whole",
		"CREATE INDEX ON refold.events (ordinal, slice)",
	} {
		execute(t, admin, sql)
	}
	everything(t, db)
	g := newGate(t, dsn)
	outcome, _ := g.begin(t, db.TestJournal(), eventsOf("c", 0, 2), eventsOf("d", 0, 1))
	store(t, db.TestJournal(), eventsOf("c", 0, 1))
	g.open(t)
	if errs := <-outcome; !errors.Is(errs[0], journal.ErrConflict) || errs[1] != nil {
		t.Errorf("a conflict in the middle: %v, want ErrConflict for the first write only", errs)
	}
}
