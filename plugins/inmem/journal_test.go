// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
)

func TestJournal(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, journaltest.Config{
		Open: func(testing.TB) journal.Journal { return inmem.NewJournal() },
	})
}

// TestJournalCloseWhileReading checks that a call during Close finds the history or fails with ErrClosed. It
// never finds an empty journal.
func TestJournalCloseWhileReading(t *testing.T) {
	t.Parallel()
	write := func(expect uint64) []journal.Write {
		return []journal.Write{{ID: "a|1", Writer: "w", Expect: expect, Events: []journal.Event{{SequenceNr: expect + 1, Manifest: "m"}}}}
	}
	ctx := context.Background()
	read := func(j *inmem.Journal) error {
		n, err := j.HighestSequenceNr(ctx, "a|1")
		if err == nil && n == 0 {
			err = errors.New("no history")
		}
		return err
	}
	appends := func(j *inmem.Journal) error { return j.Append(ctx, write(9))[0] }
	for range 2000 {
		j := inmem.NewJournal()
		if errs := j.Append(ctx, write(0)); errs != nil {
			t.Fatal(errs)
		}
		var wg, started sync.WaitGroup
		for _, call := range []func(*inmem.Journal) error{read, appends} {
			started.Add(1)
			wg.Go(func() {
				err := call(j)
				started.Done()
				var conflict *journal.ConflictError
				for err == nil || errors.As(err, &conflict) && conflict.Highest == 1 {
					err = call(j)
				}
				if !errors.Is(err, journal.ErrClosed) {
					t.Errorf("a call during Close: %v, want ErrClosed", err)
				}
			})
		}
		started.Wait()
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if wg.Wait(); t.Failed() {
			return
		}
	}
}
