// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

func TestOf(t *testing.T) {
	t.Parallel()
	j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
	db := store.Of(j, s)
	if db.Journal() != j || db.Snapshots() != s {
		t.Error("Of(j, s) does not return j and s")
	}
	for range 2 {
		if err := db.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := j.HighestSequenceNr(t.Context(), "a|1"); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("after Close the journal returns %v, want ErrClosed", err)
	}
	if err := store.Of(nil, nil).Close(); err != nil {
		t.Errorf("Close of a DB without parts: %v", err)
	}
}
