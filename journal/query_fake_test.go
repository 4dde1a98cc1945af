// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// fakeQuerier is a journal with queries. Functions of the test compute its results. It records its
// calls.
type fakeQuerier struct {
	fake
	query func(after journal.Offset) (journal.Page, error)
	end   func() (journal.Offset, error)
	await func(ctx context.Context, after journal.Offset) error
	list  func() ([]string, error)
	calls []string
}

var (
	_ journal.Querier  = (*fakeQuerier)(nil)
	_ journal.IDLister = (*fakeQuerier)(nil)
)

func (a *fakeQuerier) record(format string, args ...any) {
	a.calls = append(a.calls, fmt.Sprintf(format, args...))
}

func (a *fakeQuerier) Query(_ context.Context, _ journal.Criteria, after journal.Offset) (journal.Page, error) {
	a.record("query %s", after)
	return a.query(after)
}

func (a *fakeQuerier) End(context.Context) (journal.Offset, error) {
	a.record("end")
	return a.end()
}

func (a *fakeQuerier) Await(ctx context.Context, after journal.Offset) error {
	a.record("await %s", after)
	return a.await(ctx, after)
}

func (a *fakeQuerier) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	a.record("highest")
	return a.fake.HighestSequenceNr(ctx, id)
}

func (a *fakeQuerier) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	a.record("replay %d-%d", from, to)
	return a.fake.Replay(ctx, id, from, to)
}

func (a *fakeQuerier) PersistenceIDs(context.Context, string) iter.Seq2[string, error] {
	a.record("list")
	return func(yield func(string, error) bool) {
		ids, err := a.list()
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

// recorded returns events at the given offsets, numbered from 1.
func recorded(offsets ...journal.Offset) []journal.Envelope {
	var events []journal.Envelope
	for i, o := range offsets {
		events = append(events, journal.Envelope{ID: "a|1", Offset: o, Event: journal.Event{SequenceNr: uint64(i + 1), Manifest: "m"}})
	}
	return events
}

// pages answers queries by their offset.
func pages(byOffset map[journal.Offset]journal.Page) func(journal.Offset) (journal.Page, error) {
	return func(after journal.Offset) (journal.Page, error) {
		p, ok := byOffset[after]
		if !ok {
			return p, fmt.Errorf("unexpected query after %q", after)
		}
		return p, nil
	}
}

// seen is the output of a loop: one entry for each step.
func seen[T any](seq iter.Seq2[T, error], show func(T) string) []string {
	var out []string
	for v, err := range seq {
		if err != nil {
			out = append(out, "error: "+err.Error())
			continue
		}
		out = append(out, show(v))
	}
	return out
}

func showRecorded(e journal.Envelope) string {
	return fmt.Sprintf("%s/%d at %s", e.ID, e.SequenceNr, e.Offset)
}

func showEvent(e journal.Event) string { return fmt.Sprint(e.SequenceNr) }

func showID(id string) string { return id }

// taken returns the first n entries of seq.
func taken[T any](seq iter.Seq2[T, error], n int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range seq {
			if n--; !yield(v, err) || n == 0 {
				return
			}
		}
	}
}

// added returns a write of n events, or of a fence if the manifest is empty.
func added(id string, expect uint64, n int, manifest string, tags ...string) journal.Write {
	w := journal.Write{ID: id, Writer: "w", Expect: expect}
	for i := range n {
		w.Events = append(w.Events, journal.Event{
			SequenceNr: expect + 1 + uint64(i), Time: time.Unix(1, 0).UTC(), Manifest: manifest, Tags: tags,
		})
	}
	return w
}

// store appends to a journal in memory.
func store(t *testing.T, j *inmem.Journal, writes ...journal.Write) {
	t.Helper()
	for _, err := range j.Append(t.Context(), writes) {
		if err != nil {
			t.Error(err)
		}
	}
}
