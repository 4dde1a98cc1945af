// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// TestCurrentEndsAtTheEndItFound has events behind the end in the last page, and
// pages that are empty or end before it.
func TestCurrentEndsAtTheEndItFound(t *testing.T) {
	t.Parallel()
	j := &asking{
		end: func() (journal.Offset, error) { return "o10", nil },
		query: pages(map[journal.Offset]journal.Page{
			"o1": {Events: recorded("o2", "o3"), Next: "o4", More: true},
			"o4": {Next: "o8", More: true},
			"o8": {Events: recorded("o9", "o10", "o11", "o12"), Next: "o13", More: true},
		}),
	}
	got := seen(journal.Current(t.Context(), j, journal.Criteria{}, "o1"), showRecorded)
	expect(t, "events", got, []string{"a|1/1 at o2", "a|1/2 at o3", "a|1/1 at o9", "a|1/2 at o10"})
	expect(t, "calls", j.calls, []string{"end", "query o1", "query o4", "query o8"})
}

// TestCurrentWaitsForTheEnd has a journal that can't see as far as it said for a
// moment, as one that reads from several places.
func TestCurrentWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	round := 0
	j := &asking{
		end:   func() (journal.Offset, error) { return "o5", nil },
		await: func(context.Context, journal.Offset) error { round++; return nil },
	}
	j.query = func(after journal.Offset) (journal.Page, error) {
		switch round {
		case 0:
			return journal.Page{Events: recorded("o1"), Next: "o2"}, nil
		case 1:
			return journal.Page{Next: after}, nil
		}
		return journal.Page{Events: recorded("o5"), Next: "o5"}, nil
	}
	expect(t, "events", seen(journal.Current(t.Context(), j, journal.Criteria{}, ""), showRecorded), []string{"a|1/1 at o1", "a|1/1 at o5"})
	expect(t, "calls", j.calls, []string{"end", "query ", "await o2", "query o2", "await o2", "query o2"})
}

func TestCurrentAtTheEndAsksForNothing(t *testing.T) {
	t.Parallel()
	j := &asking{end: func() (journal.Offset, error) { return "o5", nil }}
	expect(t, "events", seen(journal.Current(t.Context(), j, journal.Criteria{}, "o5"), showRecorded), nil)
	expect(t, "calls", j.calls, []string{"end"})
}

// TestCurrentBehindTheEndLetsTheJournalSay has offsets behind the end: one that
// the journal knows, behind which something was appended since, and one that it
// refuses.
func TestCurrentBehindTheEndLetsTheJournalSay(t *testing.T) {
	t.Parallel()
	j := &asking{
		end: func() (journal.Offset, error) { return "o5", nil },
		query: func(after journal.Offset) (journal.Page, error) {
			if after == "o10" {
				return journal.Page{Events: recorded("o11"), Next: "o11", More: true}, nil
			}
			return journal.Page{}, journal.ErrOffset
		},
	}
	expect(t, "events", seen(journal.Current(t.Context(), j, journal.Criteria{}, "o10"), showRecorded), nil)
	errs := errorsOf(journal.Current(t.Context(), j, journal.Criteria{}, "nonsense"))
	if len(errs) != 1 || !errors.Is(errs[0], journal.ErrOffset) {
		t.Errorf("behind what is no offset: %v, want ErrOffset", errs)
	}
	expect(t, "calls", j.calls, []string{"end", "query o10", "end", "query nonsense"})
}

// TestCurrentRefusesBadQueries has an empty journal, of which nothing is read.
func TestCurrentRefusesBadQueries(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	defer func() { _ = j.Close() }()
	errs := errorsOf(journal.Current(t.Context(), j, journal.Criteria{Type: "a|b"}, ""))
	if len(errs) != 1 || !errors.Is(errs[0], journal.ErrInvalid) {
		t.Errorf("a type with a |: %v, want ErrInvalid", errs)
	}
}

// TestLoopsEndWithTheError has each call of a querier fail in its turn.
func TestLoopsEndWithTheError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	sound := func() *asking {
		return &asking{
			fake: fake{
				highest: func(context.Context, string) (uint64, error) { return 0, nil },
				replay:  func(context.Context, string, uint64, uint64) events { return func(func(journal.Event, error) bool) {} },
			},
			query: func(after journal.Offset) (journal.Page, error) { return journal.Page{Next: after}, nil },
			end:   func() (journal.Offset, error) { return "o5", nil },
			await: func(context.Context, journal.Offset) error { return nil },
			list:  func() ([]string, error) { return nil, nil },
		}
	}
	breaks := map[string]func(*asking){
		"end": func(j *asking) { j.end = func() (journal.Offset, error) { return "", broken } },
		"query": func(j *asking) {
			j.query = func(journal.Offset) (journal.Page, error) { return journal.Page{}, broken }
		},
		"await":   func(j *asking) { j.await = func(context.Context, journal.Offset) error { return broken } },
		"list":    func(j *asking) { j.list = func() ([]string, error) { return nil, broken } },
		"highest": func(j *asking) { j.highest = func(context.Context, string) (uint64, error) { return 0, broken } },
		"replay": func(j *asking) {
			j.highest = func(context.Context, string) (uint64, error) { return 1, nil }
			j.replay = func(context.Context, string, uint64, uint64) events {
				return func(yield func(journal.Event, error) bool) { yield(journal.Event{}, broken) }
			}
		},
	}
	ctx := t.Context()
	for _, c := range []struct {
		name   string
		errs   func(j journal.Journal) []error
		breaks []string
	}{
		{"journal: current events: ", func(j journal.Journal) []error {
			return errorsOf(journal.Current(ctx, j, journal.Criteria{}, ""))
		}, []string{"end", "query", "await"}},
		{"journal: live events: ", func(j journal.Journal) []error {
			return errorsOf(journal.Live(ctx, j, journal.Criteria{}, ""))
		}, []string{"query", "await"}},
		{`journal: current events of "a|1": `, func(j journal.Journal) []error {
			return errorsOf(journal.CurrentByID(ctx, j, "a|1", 1, 9))
		}, []string{"highest", "replay"}},
		{`journal: live events of "a|1": `, func(j journal.Journal) []error {
			return errorsOf(journal.LiveByID(ctx, j, "a|1", 1, 9))
		}, []string{"end", "highest", "replay", "await"}},
		{"journal: current persistence IDs: ", func(j journal.Journal) []error {
			return errorsOf(journal.CurrentIDs(ctx, j, ""))
		}, []string{"list"}},
		{"journal: live persistence IDs: ", func(j journal.Journal) []error {
			return errorsOf(journal.LiveIDs(ctx, j))
		}, []string{"end", "list", "query", "await"}},
	} {
		for _, b := range c.breaks {
			j := sound()
			breaks[b](j)
			errs := c.errs(j)
			if len(errs) != 1 || !errors.Is(errs[0], broken) || errs[0].Error()[:len(c.name)] != c.name {
				t.Errorf("%q with a broken %s ends with %v", c.name, b, errs)
			}
		}
	}
}

// errorsOf returns the errors of a loop, which it leaves alone to end.
func errorsOf[T any](seq iter.Seq2[T, error]) []error {
	var errs []error
	for _, err := range seq {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

type events = iter.Seq2[journal.Event, error]

// TestPagesThatLeadNowhere would keep a reader busy for ever, or show it events
// again.
func TestPagesThatLeadNowhere(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]journal.Page{
		"back":               {Next: "o1"},
		"nowhere, with more": {Next: "o2", More: true},
		"nowhere, with some": {Next: "o2", Events: recorded("o3")},
	} {
		j := &asking{
			end:   func() (journal.Offset, error) { return "o9", nil },
			query: func(journal.Offset) (journal.Page, error) { return p, nil },
		}
		for _, seq := range []iter.Seq2[journal.Envelope, error]{
			journal.Current(t.Context(), j, journal.Criteria{}, "o2"), journal.Live(t.Context(), j, journal.Criteria{}, "o2"),
		} {
			if errs := errorsOf(seq); len(errs) != 1 || !errors.Is(errs[0], journal.ErrContract) {
				t.Errorf("a page that leads %s: %v, want ErrContract", name, errs)
			}
		}
	}
}

func TestJournalsWithoutQueries(t *testing.T) {
	t.Parallel()
	plain := &fake{}
	guarded, err := journal.Guard(plain, journal.GuardConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []journal.Journal{plain, guarded} {
		for _, errs := range [][]error{
			errorsOf(journal.Current(t.Context(), j, journal.Criteria{}, "")),
			errorsOf(journal.Live(t.Context(), j, journal.Criteria{}, "")),
			errorsOf(journal.LiveByID(t.Context(), j, "a|1", 1, 2)),
			errorsOf(journal.LiveIDs(t.Context(), j)),
			errorsOf(journal.CurrentIDs(t.Context(), j, "")),
			errorsOf(journal.LiveIDs(t.Context(), &struct {
				journal.Journal
				journal.Querier
			}{plain, inmem.NewJournal()})), // it can't list
		} {
			if len(errs) != 1 || !errors.Is(errs[0], journal.ErrNoQueries) {
				t.Errorf("a journal without queries: %v, want ErrNoQueries", errs)
			}
		}
	}
}

// TestQueriesReachThroughWrappers has the journal as a runtime has it.
func TestQueriesReachThroughWrappers(t *testing.T) {
	t.Parallel()
	mem := inmem.NewJournal()
	store(t, mem, added("a|1", 0, 2, "m"))
	guarded, err := journal.Guard(mem, journal.GuardConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got := seen(journal.Current(t.Context(), guarded, journal.Criteria{}, ""), showRecorded)
	expect(t, "events", got, []string{"a|1/1 at mem-1", "a|1/2 at mem-2"})
	expect(t, "IDs", seen(journal.CurrentIDs(t.Context(), guarded, ""), showID), []string{"a|1"})
}

// TestLoopsCanBeLeft has nothing be asked once the body has left.
func TestLoopsCanBeLeft(t *testing.T) {
	t.Parallel()
	j := &asking{
		end: func() (journal.Offset, error) { return "o9", nil },
		query: func(journal.Offset) (journal.Page, error) {
			return journal.Page{Events: recorded("o1", "o2"), Next: "o99", More: true}, nil
		},
		list: func() ([]string, error) { return []string{"x", "y"}, nil },
	}
	j.highest = func(context.Context, string) (uint64, error) { return 9, nil }
	j.replay = func(context.Context, string, uint64, uint64) events {
		return func(yield func(journal.Event, error) bool) {
			for _, e := range recorded("o1", "o2") {
				if !yield(e.Event, nil) {
					return
				}
			}
		}
	}
	expect(t, "Current", seen(taken(journal.Current(t.Context(), j, journal.Criteria{}, ""), 1), showRecorded), []string{"a|1/1 at o1"})
	expect(t, "Live", seen(taken(journal.Live(t.Context(), j, journal.Criteria{}, ""), 1), showRecorded), []string{"a|1/1 at o1"})
	expect(t, "CurrentByID", seen(taken(journal.CurrentByID(t.Context(), j, "a|1", 1, 9), 1), showEvent), []string{"1"})
	expect(t, "LiveByID", seen(taken(journal.LiveByID(t.Context(), j, "a|1", 1, 9), 1), showEvent), []string{"1"})
	expect(t, "CurrentIDs", seen(taken(journal.CurrentIDs(t.Context(), j, ""), 1), showID), []string{"x"})
	expect(t, "LiveIDs", seen(taken(journal.LiveIDs(t.Context(), j), 1), showID), []string{"x"})
	expect(t, "LiveIDs, one more", seen(taken(journal.LiveIDs(t.Context(), j), 3), showID), []string{"x", "y", "a|1"})
	expect(t, "calls", j.calls, []string{
		"end", "query ", "query ", "highest", "replay 1-9", "end", "highest", "replay 1-9", "list", "end", "list", "end", "list", "query o9",
	})
}
