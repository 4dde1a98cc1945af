// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

func mustOpen(t *testing.T, dir string, cfg leveldb.Config) *leveldb.DB {
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

// write returns a write of n events behind expect.
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

func TestSurvivesReopening(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	j := db.Journal()
	mustAppend(t, j, write("a", 0, 3), write("b", 0, 1), write("a", 3, 2))
	if err := j.DeleteTo(t.Context(), "a", 4); err != nil {
		t.Fatal(err)
	}
	if err := j.DeleteTo(t.Context(), "b", 9); err != nil {
		t.Fatal(err)
	}
	snap := snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 4, Time: time.UnixMicro(4).UTC()}, Manifest: "m", Payload: []byte("state")}
	if err := db.Snapshots().Save(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, leveldb.Config{})
	j = db.Journal()
	if got := numbers(t, j, "a", 0, journal.MaxSequenceNr); len(got) != 1 || got[0] != 5 {
		t.Errorf("a holds %v", got)
	}
	for id, want := range map[string]uint64{"a": 5, "b": 1, "c": 0} {
		if got, err := j.HighestSequenceNr(t.Context(), id); got != want || err != nil {
			t.Errorf("highest of %s is %d, %v", id, got, err)
		}
	}
	if got, err := db.Snapshots().Load(t.Context(), "a", snapshot.Latest()); err != nil || string(got.Payload) != "state" || got.Metadata != snap.Metadata {
		t.Errorf("snapshot: %+v, %v", got, err)
	}
	mustAppend(t, j, write("c", 0, 1), write("b", 1, 1))
	if got := numbers(t, j, "b", 1, 99); len(got) != 1 || got[0] != 2 {
		t.Errorf("b holds %v", got)
	}
}

var _ = context.Background
