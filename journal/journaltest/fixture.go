// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/refold-io/refold/journal"
)

const maxSeq = journal.MaxSequenceNr

// fixture is what a check works on: a journal of its own, and a context that
// ends when the check has taken too long.
type fixture struct {
	testing.TB
	cfg  Config
	j    journal.Journal
	ctx  context.Context //nolint:containedctx // as in testing.T, for the time of one check
	hung bool
}

func newFixture(tb testing.TB, cfg Config) *fixture {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cfg.Timeout)
	f := &fixture{TB: tb, cfg: cfg, ctx: ctx, j: cfg.Open(tb)}
	tb.Cleanup(func() {
		cancel()
		if f.hung {
			return // Close would wait for the call that hangs
		}
		f.close()
	})
	return f
}

func (f *fixture) close() {
	f.Helper()
	if err := f.j.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
}

// within fails the check if something does not return. What it runs is on
// another goroutine and must not call methods that end the check.
func (f *fixture) within(what string, do func()) {
	f.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-f.ctx.Done():
		f.hung = true
		f.Fatalf("%s does not return", what)
	}
	if f.Failed() {
		f.FailNow()
	}
}

// together runs something n times at once and waits for all, like within.
func (f *fixture) together(what string, n int, do func(k int)) {
	f.Helper()
	f.within(what, func() {
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() { do(k) })
		}
		wg.Wait()
	})
}

// appendAll appends and returns one slot per write, also when all are stored.
func (f *fixture) appendAll(ctx context.Context, writes ...journal.Write) []error {
	f.Helper()
	errs := f.j.Append(ctx, writes)
	switch {
	case errs == nil:
		return make([]error, len(writes))
	case len(errs) != len(writes):
		f.Errorf("Append of %d writes returned %d errors", len(writes), len(errs))
		return slices.Repeat([]error{errors.New("no such slot")}, len(writes))
	}
	return errs
}

// append1 appends one write and returns what became of it.
func (f *fixture) append1(w journal.Write) error {
	f.Helper()
	return f.appendAll(f.ctx, w)[0]
}

// store appends and ends the check unless all is stored.
func (f *fixture) store(writes ...journal.Write) {
	f.Helper()
	errs := f.appendAll(f.ctx, writes...)
	for i, w := range writes {
		if errs[i] != nil {
			f.Fatalf("Append, write %d of %d, to %.40q expecting %d: %v", i+1, len(writes), w.ID, w.Expect, errs[i])
		}
	}
}

// collect ranges over a replay, to the end or until it has limit events if that
// is above 0. It checks what holds for all replays.
func (f *fixture) collect(seq iter.Seq2[journal.Event, error], limit int) (events []journal.Event, failed error) {
	f.Helper()
	for e, err := range seq {
		if failed != nil {
			f.Errorf("Replay goes on after the error %v", failed)
			return events, failed
		}
		if failed = err; err != nil {
			continue
		}
		if n := len(events); n > 0 && e.SequenceNr <= events[n-1].SequenceNr {
			f.Errorf("Replay yields %d behind %d", e.SequenceNr, events[n-1].SequenceNr)
			return events, nil
		}
		if events = append(events, e); len(events) == limit {
			break
		}
	}
	return events, failed
}

// replay returns a range of a history, and reports an error if there is one.
func (f *fixture) replay(id string, from, to uint64) []journal.Event {
	f.Helper()
	events, err := f.collect(f.j.Replay(f.ctx, id, from, to), 0)
	if err != nil {
		f.Errorf("Replay(%.40q, %d, %d): %v", id, from, to, err)
	}
	return events
}

func (f *fixture) highest(id string) uint64 {
	f.Helper()
	n, err := f.j.HighestSequenceNr(f.ctx, id)
	if err != nil {
		f.Errorf("HighestSequenceNr(%.40q): %v", id, err)
	}
	return n
}

func (f *fixture) deleteTo(id string, to uint64) {
	f.Helper()
	if err := f.j.DeleteTo(f.ctx, id, to); err != nil {
		f.Errorf("DeleteTo(%.40q, %d): %v", id, to, err)
	}
}

// attach returns another handle on the same contents, which is closed in the end.
func (f *fixture) attach() journal.Journal {
	f.Helper()
	other := f.cfg.Attach(f.TB, f.j)
	f.Cleanup(func() {
		if f.hung {
			return
		}
		if err := other.Close(); err != nil {
			f.Errorf("Close of the second handle: %v", err)
		}
	})
	return other
}
