// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"github.com/refold-io/refold/internal/testpg"
	"github.com/refold-io/refold/plugins/postgres"
)

// TestDeletionsSideBySide has another process delete the first part of what a
// deletion has in hand, while that waits for it: the rest goes all the same.
func TestDeletionsSideBySide(t *testing.T) {
	t.Parallel()
	dsn := testpg.DSN(t)
	db := openStore(t, dsn, postgres.Config{MaxConns: 2})
	j := db.Journal()
	const part, rest = 5000, 500
	store(t, j, eventsOf("a", 0, part+rest, "tag"))
	other, watch := connect(t, dsn), connect(t, dsn)
	execute(t, other, "BEGIN")
	execute(t, other, "DELETE FROM refold.events WHERE id = 'a' AND seq_nr <= $1", part)
	told := make(chan error)
	go func() { told <- j.DeleteTo(t.Context(), "a", part+rest) }()
	for waiting := 0; waiting == 0; {
		if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, other, "COMMIT")
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	var left int
	if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM refold.events WHERE id = 'a'").Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%d events are left of %d that were deleted", left, part+rest)
	}
}
