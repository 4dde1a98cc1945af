// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

var errEnough = errors.New("enough")

// TestLiveWaitsBetweenPages asks Await only when there is nothing more, and reads
// on where the last page ended.
func TestLiveWaitsBetweenPages(t *testing.T) {
	t.Parallel()
	waits := 0
	j := &asking{
		query: pages(map[journal.Offset]journal.Page{
			"o1": {Events: recorded("o2"), Next: "o3", More: true},
			"o3": {Next: "o5", More: true},
			"o5": {Events: recorded("o6"), Next: "o7"},
			"o7": {Next: "o7"}, // woken for nothing
		}),
		await: func(context.Context, journal.Offset) error {
			if waits++; waits == 3 {
				return errEnough
			}
			return nil
		},
	}
	got := seen(journal.Live(t.Context(), j, journal.Criteria{}, "o1"), showRecorded)
	expect(t, "events", got, []string{"a|1/1 at o2", "a|1/1 at o6", "error: journal: live events: enough"})
	expect(t, "calls", j.calls, []string{"query o1", "query o3", "query o5", "await o7", "query o7", "await o7", "query o7", "await o7"})
}

// TestLiveYieldsWhatComes has a reader wait for appends, in between for nothing
// that matches, and end with the cause of its context.
func TestLiveYieldsWhatComes(t *testing.T) {
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
		cancel(errEnough)
		synctest.Wait()
		expect(t, "events", got, []string{
			"a|1/1 at mem-1", "a|1/2 at mem-3", "a|1/3 at mem-5", "error: journal: live events: inmem: await: enough",
		})
	})
}

// TestLiveIsResumed has a reader leave after each event and go on behind it.
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

// TestLiveByIDLooksBeforeItWaits has the order of calls that no event can slip
// through: one that is stored behind the end that was taken first ends the wait.
func TestLiveByIDLooksBeforeItWaits(t *testing.T) {
	t.Parallel()
	highest, ends := uint64(0), 0
	j := &asking{
		end: func() (journal.Offset, error) {
			ends++
			return journal.Offset([]string{"", "o1", "o2", "o3"}[ends]), nil
		},
		await: func(context.Context, journal.Offset) error {
			if ends == 2 {
				highest = 2 // in the first wait nothing of this ID comes
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

// TestLiveByIDCompletes tells by which records the upper bound is reached.
func TestLiveByIDCompletes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		before   []journal.Write // what is there
		deleteTo uint64
		from, to uint64
		want     []string
		after    []journal.Write // what comes, one at a time
		more     []string
	}{
		{name: "there", before: []journal.Write{added("a|1", 0, 5, "m")}, from: 2, to: 4, want: []string{"2", "3", "4"}},
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
				expect(t, "events that were there", got, c.want)
				for _, w := range c.after {
					if done {
						t.Fatal("it has completed too early")
					}
					store(t, j, w)
					synctest.Wait()
				}
				expect(t, "events", got, append(c.want, c.more...))
				if !done {
					t.Fatal("it does not complete")
				}
			})
		})
	}
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
		cancel(errEnough)
		synctest.Wait()
		expect(t, "events", got, []string{"1", "2", `error: journal: live events of "a|1": inmem: await: enough`})
	})
}

// TestLiveIDsYieldsEachOnce has IDs that are there, deleted, known by a fence only,
// stored while the list is read, and new.
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
			for id, err := range journal.LiveIDs(ctx, j) { //nolint:contextcheck // the store in the body has one of its own
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
		cancel(errEnough)
		synctest.Wait()
		expect(t, "IDs", got, []string{
			"a", "b", "deleted", "fenced", "during", "new", "new fence", "newer", "journal: live persistence IDs: journal: live events: inmem: await: enough",
		})
	})
}

// ending is a journal in memory to which something is stored right behind the
// end that it has told.
type ending struct {
	*inmem.Journal
	then func()
}

func (e *ending) End(ctx context.Context) (journal.Offset, error) {
	o, err := e.Journal.End(ctx)
	e.then()
	return o, err
}

// TestLiveIDsKnowsWhatTheListHad has an ID that is in the list and also behind
// the end that was taken before.
func TestLiveIDsKnowsWhatTheListHad(t *testing.T) {
	t.Parallel()
	j := &ending{Journal: inmem.NewJournal()}
	j.then = func() { store(t, j.Journal, added("both", 0, 1, "m"), added("other", 0, 1, "m")) }
	got := seen(taken(journal.LiveIDs(t.Context(), &quitting{j}), 3), showID)
	expect(t, "IDs", got, []string{"both", "other", "error: journal: live persistence IDs: journal: live events: enough"})
}

// quitting does not wait for more.
type quitting struct{ *ending }

func (*quitting) Await(context.Context, journal.Offset) error { return errEnough }
