// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// TestCurrentEndsAtItsFirstEnd reads empty pages, pages that end before the end, and a last page
// with events after the end.
func TestCurrentEndsAtItsFirstEnd(t *testing.T) {
	t.Parallel()
	j := &fakeQuerier{
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

// TestCurrentWaitsForTheEnd uses a journal that temporarily returns fewer events than its reported
// end, like a journal that reads from several places.
func TestCurrentWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	round := 0
	j := &fakeQuerier{
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

func TestCurrentAtTheEndQueriesNothing(t *testing.T) {
	t.Parallel()
	j := &fakeQuerier{end: func() (journal.Offset, error) { return "o5", nil }}
	expect(t, "events", seen(journal.Current(t.Context(), j, journal.Criteria{}, "o5"), showRecorded), nil)
	expect(t, "calls", j.calls, []string{"end"})
}

// TestCurrentAfterTheEndIsCheckedByTheJournal starts at two offsets after the end. The first is
// valid, because an event was appended after End returned. The journal rejects the second.
func TestCurrentAfterTheEndIsCheckedByTheJournal(t *testing.T) {
	t.Parallel()
	j := &fakeQuerier{
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
		t.Errorf("after an invalid offset: %v, want ErrOffset", errs)
	}
	expect(t, "calls", j.calls, []string{"end", "query o10", "end", "query nonsense"})
}

// TestCurrentRejectsInvalidCriteria uses an empty journal, which Current need not query.
func TestCurrentRejectsInvalidCriteria(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	defer func() { _ = j.Close() }()
	errs := errorsOf(journal.Current(t.Context(), j, journal.Criteria{Types: []string{"a|b"}}, ""))
	if len(errs) != 1 || !errors.Is(errs[0], journal.ErrInvalid) {
		t.Errorf("a type with a |: %v, want ErrInvalid", errs)
	}
}

// TestLoopsEndWithTheError lets each method of a querier fail, one after the other.
func TestLoopsEndWithTheError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	sound := func() *fakeQuerier {
		return &fakeQuerier{
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
	breaks := map[string]func(*fakeQuerier){
		"end": func(j *fakeQuerier) { j.end = func() (journal.Offset, error) { return "", broken } },
		"query": func(j *fakeQuerier) {
			j.query = func(journal.Offset) (journal.Page, error) { return journal.Page{}, broken }
		},
		"await":   func(j *fakeQuerier) { j.await = func(context.Context, journal.Offset) error { return broken } },
		"list":    func(j *fakeQuerier) { j.list = func() ([]string, error) { return nil, broken } },
		"highest": func(j *fakeQuerier) { j.highest = func(context.Context, string) (uint64, error) { return 0, broken } },
		"replay": func(j *fakeQuerier) {
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
				t.Errorf("the loop of %q with a broken %s ends with %v, want the error of the method", c.name, b, errs)
			}
		}
	}
}

// errorsOf runs a loop to its end and returns the errors.
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

// TestPageWithoutProgress returns pages that would cause an endless loop or repeated events.
func TestPageWithoutProgress(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]journal.Page{
		"back":               {Next: "o1"},
		"nowhere, with more": {Next: "o2", More: true},
		"nowhere, with some": {Next: "o2", Events: recorded("o3")},
	} {
		j := &fakeQuerier{
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
	guarded, err := journal.WithBreaker(plain, journal.BreakerConfig{})
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
			}{plain, inmem.NewJournal()})), // cannot list IDs
		} {
			if len(errs) != 1 || !errors.Is(errs[0], journal.ErrNoQueries) {
				t.Errorf("a journal without queries: %v, want ErrNoQueries", errs)
			}
		}
	}
}

// TestQueriesUnwrapJournals queries a journal with the wrappers of a runtime.
func TestQueriesUnwrapJournals(t *testing.T) {
	t.Parallel()
	mem := inmem.NewJournal()
	store(t, mem, added("a|1", 0, 2, "m"))
	guarded, err := journal.WithBreaker(mem, journal.BreakerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got := seen(journal.Current(t.Context(), guarded, journal.Criteria{}, ""), showRecorded)
	expect(t, "events", got, []string{"a|1/1 at mem-1", "a|1/2 at mem-2"})
	expect(t, "IDs", seen(journal.CurrentIDs(t.Context(), guarded, ""), showID), []string{"a|1"})
}

// TestLoopsLeftEarly checks that no call follows after the body has left its loop.
func TestLoopsLeftEarly(t *testing.T) {
	t.Parallel()
	j := &fakeQuerier{
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

var errTestEnded = errors.New("test ended")

// TestLiveWaitsBetweenPages checks that Live calls Await only after a page without More, and
// continues at the end of the last page.
func TestLiveWaitsBetweenPages(t *testing.T) {
	t.Parallel()
	waits := 0
	j := &fakeQuerier{
		query: pages(map[journal.Offset]journal.Page{
			"o1": {Events: recorded("o2"), Next: "o3", More: true},
			"o3": {Next: "o5", More: true},
			"o5": {Events: recorded("o6"), Next: "o7"},
			"o7": {Next: "o7"}, // Await returned without an event
		}),
		await: func(context.Context, journal.Offset) error {
			if waits++; waits == 3 {
				return errTestEnded
			}
			return nil
		},
	}
	got := seen(journal.Live(t.Context(), j, journal.Criteria{}, "o1"), showRecorded)
	expect(t, "events", got, []string{"a|1/1 at o2", "a|1/1 at o6", "error: journal: live events: test ended"})
	expect(t, "calls", j.calls, []string{"query o1", "query o3", "query o5", "await o7", "query o7", "await o7", "query o7", "await o7"})
}

// TestLiveYieldsNewEvents runs a reader that waits for appends, some of which do not match, and
// that ends with the cause of its context.
func TestLiveYieldsNewEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		store(t, j, added("a|1", 0, 1, "m", "red"))
		ctx, cancel := context.WithCancelCause(t.Context())
		var got []string
		go func() { got = seen(journal.Live(ctx, j, journal.Criteria{Tag: "red"}, ""), showRecorded) }()
		synctest.Wait()
		for n := range uint64(2) {
			store(t, j, added("a|2", n, 1, "m", "blue"))
			synctest.Wait()
			store(t, j, added("a|1", n+1, 1, "m", "blue", "red"))
			synctest.Wait()
		}
		cancel(errTestEnded)
		synctest.Wait()
		expect(t, "events", got, []string{
			"a|1/1 at mem-1", "a|1/2 at mem-3", "a|1/3 at mem-5", "error: journal: live events: inmem: await: test ended",
		})
	})
}

// TestLiveIsResumed runs a reader that leaves after each event and resumes after it.
func TestLiveIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		store(t, j, added("a|1", 0, 3, "m"))
		var got []string
		go func() {
			var last journal.Offset
			for len(got) < 5 {
				for e, err := range taken(journal.Live(t.Context(), j, journal.Criteria{}, last), 1) {
					if err != nil {
						t.Error(err)
					}
					got, last = append(got, showRecorded(e)), e.Offset
				}
			}
		}()
		synctest.Wait()
		store(t, j, added("a|2", 0, 2, "m"))
		synctest.Wait()
		expect(t, "events", got, []string{"a|1/1 at mem-1", "a|1/2 at mem-2", "a|1/3 at mem-3", "a|2/1 at mem-4", "a|2/2 at mem-5"})
	})
}

// TestLiveByIDReadsTheEndFirst checks the order of calls, so that no event is missed: LiveByID
// first reads the end of the journal, and an event that is stored after this read ends the wait.
func TestLiveByIDReadsTheEndFirst(t *testing.T) {
	t.Parallel()
	highest, ends := uint64(0), 0
	j := &fakeQuerier{
		end: func() (journal.Offset, error) {
			ends++
			return journal.Offset([]string{"", "o1", "o2", "o3"}[ends]), nil
		},
		await: func(context.Context, journal.Offset) error {
			if ends == 2 {
				highest = 2 // the first wait ends without an event of this ID
			}
			return nil
		},
	}
	j.highest = func(context.Context, string) (uint64, error) { return highest, nil }
	j.replay = func(_ context.Context, _ string, from, to uint64) events {
		return func(yield func(journal.Event, error) bool) {
			for n := from; n <= to; n++ {
				if !yield(journal.Event{SequenceNr: n, Manifest: "m"}, nil) {
					return
				}
			}
		}
	}
	expect(t, "events", seen(journal.LiveByID(t.Context(), j, "a|1", 1, 2), showEvent), []string{"1", "2"})
	expect(t, "calls", j.calls, []string{"end", "highest", "await o1", "end", "highest", "await o2", "end", "highest", "replay 1-2"})
}

// TestLiveByIDCompletes checks which records complete the loop.
func TestLiveByIDCompletes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		before   []journal.Write // the stored events
		deleteTo uint64
		from, to uint64
		want     []string
		after    []journal.Write // the later events, one at a time
		more     []string
	}{
		{name: "stored", before: []journal.Write{added("a|1", 0, 5, "m")}, from: 2, to: 4, want: []string{"2", "3", "4"}},
		{name: "from 0", before: []journal.Write{added("a|1", 0, 2, "m")}, from: 0, to: 2, want: []string{"1", "2"}},
		{name: "empty", before: []journal.Write{added("a|1", 0, 2, "m")}, from: 2, to: 1},
		{name: "to 0", from: 0, to: 0},
		{
			name: "later", before: []journal.Write{added("a|1", 0, 1, "m")}, from: 1, to: 4, want: []string{"1"},
			after: []journal.Write{added("a|2", 0, 7, "m"), added("a|1", 1, 2, "m"), added("a|1", 3, 2, "m")}, more: []string{"2", "3", "4"},
		},
		{name: "never written", from: 3, to: 3, after: []journal.Write{added("a|1", 0, 2, "m"), added("a|1", 2, 1, "m")}, more: []string{"3"}},
		{name: "at a fence", before: []journal.Write{added("a|1", 0, 1, "m"), added("a|1", 1, 2, "")}, from: 1, to: 3, want: []string{"1"}},
		{
			name: "at a fence, later", before: []journal.Write{added("a|1", 0, 1, "")}, from: 1, to: 3,
			after: []journal.Write{added("a|1", 1, 1, "m"), added("a|1", 2, 1, "")}, more: []string{"2"},
		},
		{name: "deleted", before: []journal.Write{added("a|1", 0, 5, "m")}, deleteTo: 4, from: 1, to: 3},
		{name: "partly deleted", before: []journal.Write{added("a|1", 0, 5, "m")}, deleteTo: 2, from: 1, to: 5, want: []string{"3", "4", "5"}},
		{
			name: "deleted, later", before: []journal.Write{added("a|1", 0, 5, "m")}, deleteTo: 5, from: 1, to: 6,
			after: []journal.Write{added("a|1", 5, 1, "m")}, more: []string{"6"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := inmem.NewJournal()
				store(t, j, c.before...)
				if err := j.DeleteTo(t.Context(), "a|1", c.deleteTo); err != nil {
					t.Fatal(err)
				}
				var got []string
				done := false
				go func() {
					for e, err := range journal.LiveByID(t.Context(), j, "a|1", c.from, c.to) {
						if err != nil {
							t.Error(err)
						}
						got = append(got, showEvent(e))
					}
					done = true
				}()
				synctest.Wait()
				expect(t, "events stored before the call", got, c.want)
				for _, w := range c.after {
					if done {
						t.Fatal("the loop completed before the last record")
					}
					store(t, j, w)
					synctest.Wait()
				}
				expect(t, "events", got, append(c.want, c.more...))
				if !done {
					t.Fatal("the loop did not complete after the last record")
				}
			})
		})
	}
}

// fenceless is an in-memory journal whose Await returns for events only, like that of a journal whose
// order contains no fences. It counts the calls of HighestSequenceNr.
type fenceless struct {
	*inmem.Journal
	reads int
}

func (f *fenceless) Await(ctx context.Context, after journal.Offset) error {
	for {
		page, err := f.Query(ctx, journal.Criteria{}, after)
		if err != nil || len(page.Events) > 0 {
			return err
		}
		after = page.Next
		if err = f.Journal.Await(ctx, after); err != nil {
			return err
		}
	}
}

func (f *fenceless) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	f.reads++
	return f.Journal.HighestSequenceNr(ctx, id)
}

// TestLiveByIDLooksForFences checks that a later fence completes the loop although no Await returns for
// it, and that a loop that never completes does not read the journal without an event.
func TestLiveByIDLooksForFences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		store(t, j, added("a|1", 0, 1, "m"))
		ctx, cancel := context.WithCancelCause(t.Context())
		var got, canceled []string
		done := false
		go func() {
			got = seen(journal.LiveByID(t.Context(), &fenceless{Journal: j}, "a|1", 1, 3), showEvent)
			done = true
		}()
		go func() { canceled = seen(journal.LiveByID(ctx, &fenceless{Journal: j}, "a|2", 1, 9), showEvent) }()
		endless := &fenceless{Journal: j}
		go seen(journal.LiveByID(ctx, endless, "a|1", 1, journal.MaxSequenceNr), showEvent)
		pass := func() {
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		pass()
		store(t, j, added("a|1", 1, 1, ""))
		pass()
		if done {
			t.Error("the loop completed at the fence before its last number")
		}
		store(t, j, added("a|1", 2, 1, ""))
		pass()
		expect(t, "events", got, []string{"1"})
		if !done {
			t.Error("the loop did not complete at the fence")
		}
		if endless.reads != 1 {
			t.Errorf("a loop that never completes has read the highest number %d times, want once", endless.reads)
		}
		cancel(errTestEnded)
		synctest.Wait()
		expect(t, "result of the canceled loop", canceled, []string{`error: journal: live events of "a|2": test ended`})
	})
}

func TestLiveByIDEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		ctx, cancel := context.WithCancelCause(t.Context())
		var got []string
		go func() { got = seen(journal.LiveByID(ctx, j, "a|1", 1, journal.MaxSequenceNr), showEvent) }()
		synctest.Wait()
		store(t, j, added("a|1", 0, 2, "m"))
		synctest.Wait()
		cancel(errTestEnded)
		synctest.Wait()
		expect(t, "events", got, []string{"1", "2", `error: journal: live events of "a|1": inmem: await: test ended`})
	})
}

// TestLiveIDsYieldsEachOnce uses IDs that are stored, deleted, present only as a fence, stored
// while the list is read, and new.
func TestLiveIDsYieldsEachOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		store(t, j, added("b", 0, 2, "m"), added("a", 0, 1, "m"), added("deleted", 0, 1, "m"), added("fenced", 0, 1, ""))
		if err := j.DeleteTo(t.Context(), "deleted", 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var got []string
		go func() {
			for id, err := range journal.LiveIDs(ctx, j) { //nolint:contextcheck // the store in the body has its own context
				if err != nil {
					got = append(got, err.Error())
					continue
				}
				got = append(got, id)
				if id == "a" {
					store(t, j, added("during", 0, 1, "m"), added("b", 2, 1, "m"))
				}
			}
		}()
		synctest.Wait()
		for _, w := range []journal.Write{
			added("a", 1, 1, "m"), added("deleted", 1, 1, "m"), added("fenced", 1, 1, "m"),
			added("new fence", 0, 1, ""), added("new", 0, 3, "m"), added("new", 3, 1, "m"), added("new fence", 1, 1, "m"), added("newer", 0, 1, "m"),
		} {
			store(t, j, w)
			synctest.Wait()
		}
		cancel(errTestEnded)
		synctest.Wait()
		expect(t, "IDs", got, []string{
			"a", "b", "deleted", "fenced", "during", "new", "new fence", "newer", "journal: live persistence IDs: journal: live events: inmem: await: test ended",
		})
	})
}

// appendAfterEnd is an in-memory journal that appends an event directly after each call of End.
type appendAfterEnd struct {
	*inmem.Journal
	then func()
}

func (e *appendAfterEnd) End(ctx context.Context) (journal.Offset, error) {
	o, err := e.Journal.End(ctx)
	e.then()
	return o, err
}

// TestLiveIDsSkipsListedIDs uses an ID that is in the list and also has an event after the end that
// was read before the list.
func TestLiveIDsSkipsListedIDs(t *testing.T) {
	t.Parallel()
	j := &appendAfterEnd{Journal: inmem.NewJournal()}
	j.then = func() { store(t, j.Journal, added("both", 0, 1, "m"), added("other", 0, 1, "m")) }
	got := seen(taken(journal.LiveIDs(t.Context(), &failingAwait{j}), 3), showID)
	expect(t, "IDs", got, []string{"both", "other", "error: journal: live persistence IDs: journal: live events: test ended"})
}

// failingAwait is a journal whose Await returns an error instead of waiting for events.
type failingAwait struct{ *appendAfterEnd }

func (*failingAwait) Await(context.Context, journal.Offset) error { return errTestEnded }
