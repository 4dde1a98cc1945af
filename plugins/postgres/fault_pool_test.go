// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

const (
	recoveries = 20
	// recovered is how many events each recovery reads: more than two pages.
	recovered = 2500
)

// TestRecoveriesOnOneConnection runs 50 concurrent recoveries on a pool of one connection. The loop
// bodies of the recoveries call other methods.
func TestRecoveriesOnOneConnection(t *testing.T) {
	t.Parallel()
	db := openStore(t, pgtest.DSN(t), postgres.Config{MaxConns: 1})
	j := db.TestJournal()
	histories := make([]journal.Write, recoveries)
	for i := range histories {
		histories[i] = eventsOf(fmt.Sprint("history|", i), 0, recovered)
	}
	store(t, j, histories...)
	ctx, cancel := withHangTimeout(t)
	defer cancel()
	each(recoveries, recoveries, func(i int) {
		if err := recoverWithin(ctx, j, i); err != nil {
			t.Errorf("recovery %d: %v", i, err)
		}
	})
}

// recoverWithin replays a history and uses the journal inside of the loop.
func recoverWithin(ctx context.Context, j *postgres.Journal, i int) error {
	notes := fmt.Sprint("notes|", i)
	next, noted := uint64(1), uint64(0)
	for e, err := range j.Replay(ctx, fmt.Sprint("history|", i), 1, journal.MaxSequenceNr) {
		if err != nil || e.SequenceNr != next {
			return fmt.Errorf("event %d, want %d: %w", e.SequenceNr, next, err)
		}
		if next++; e.SequenceNr%250 != 1 {
			continue
		}
		if errs := j.Append(ctx, []journal.Write{eventsOf(notes, noted, 1)}); errs != nil {
			return errs[0]
		}
		noted++
		highest, err := j.HighestSequenceNr(ctx, notes)
		if err != nil || highest != noted {
			return fmt.Errorf("highest %d, want %d: %w", highest, noted, err)
		}
		seen := uint64(0)
		for _, err := range j.Replay(ctx, notes, 1, journal.MaxSequenceNr) {
			if err != nil {
				return err
			}
			seen++
		}
		if want := min(noted, 2); seen != want {
			return fmt.Errorf("%d notes, want %d", seen, want)
		}
		if noted > 1 {
			if err := j.DeleteTo(ctx, notes, noted-1); err != nil {
				return err
			}
		}
	}
	if next != recovered+1 {
		return fmt.Errorf("the history ends before event %d", next)
	}
	return nil
}

// TestRuntimeOnOneConnection recovers 20 entities with waiting commands concurrently, on a pool of
// one connection.
func TestRuntimeOnOneConnection(t *testing.T) {
	t.Parallel()
	db := openStore(t, pgtest.DSN(t), postgres.Config{MaxConns: 1})
	for round := range 2 {
		h := openLedgers(t, db.TestJournal(), 5*time.Minute)
		ctx, cancel := withHangTimeout(t)
		each(4*recoveries, 4*recoveries, func(i int) {
			count := 1
			if round == 0 {
				count = 300
			}
			if _, err := eventsourcing.Ask(ctx, h.ledgers.Ref(fmt.Sprint(i%recoveries)), post{Op: i, Count: count}); err != nil {
				t.Errorf("round %d, operation %d: %v", round, i, err)
			}
		})
		ops, err := eventsourcing.Ask(ctx, h.ledgers.Ref("7"), list{})
		if want := 4 * []int{300, 301}[round]; len(ops) != want || err != nil {
			t.Errorf("%d events, want %d: %v", len(ops), want, err)
		}
		cancel()
		h.close(t)
	}
}
