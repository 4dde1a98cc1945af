// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// TestOffsetOrder checks the order by which Current detects the end.
func TestOffsetOrder(t *testing.T) {
	t.Parallel()
	ascending := []journal.Offset{"", "p0", "p1", "p9", "p10", "p19", "p20", "p100"}
	for i, a := range ascending {
		for k, b := range ascending {
			want := 0
			if i < k {
				want = -1
			} else if i > k {
				want = 1
			}
			if got := a.Compare(b); got != want {
				t.Errorf("%q compared with %q is %d, want %d", a, b, got, want)
			}
		}
	}
	if !slices.IsSortedFunc(ascending, journal.Offset.Compare) {
		t.Error("Compare does not order the offsets by position")
	}
}

func TestQueryCheck(t *testing.T) {
	t.Parallel()
	for _, q := range []journal.Criteria{
		{},
		{Types: []string{"account"}, Tag: "it's | a \"tag\""},
		{Slices: journal.Slices{First: 0, Count: 1024}},
		{Slices: journal.Slices{First: 1023, Count: 1}},
		{Slices: journal.Slices{First: 1, Count: 1023}},
	} {
		if err := q.Check(); err != nil {
			t.Errorf("Check of %+v: %v, want nil", q, err)
		}
	}
	for _, q := range []journal.Criteria{
		{Types: []string{"a|b"}},
		{Types: []string{""}},
		{Types: []string{"a", ""}},
		{Types: []string{"a\x00"}},
		{Types: []string{"\xff"}},
		{Tag: "a\x00b"},
		{Tag: "\xff"},
		{Slices: journal.Slices{First: 1}},
		{Slices: journal.Slices{First: -1, Count: 2}},
		{Slices: journal.Slices{First: 2, Count: -1}},
		{Slices: journal.Slices{First: 0, Count: 1025}},
		{Slices: journal.Slices{First: 1023, Count: 2}},
		{Slices: journal.Slices{First: 1024, Count: 1}},
		{Slices: journal.Slices{First: math.MaxInt, Count: 1}},
		{Slices: journal.Slices{First: 1, Count: math.MaxInt}},
	} {
		if err := q.Check(); !errors.Is(err, journal.ErrInvalid) {
			t.Errorf("Check of %+v: %v, want ErrInvalid", q, err)
		}
	}
}

func TestQueryMatches(t *testing.T) {
	t.Parallel()
	slice := func(id string) journal.Slices { return journal.Slices{First: journal.SliceOf(id), Count: 1} }
	tags := []string{"red", "reddish"}
	for _, c := range []struct {
		q    journal.Criteria
		id   string
		want bool
	}{
		{journal.Criteria{}, "account|1", true},
		{journal.Criteria{Types: []string{"account"}}, "account|1", true},
		{journal.Criteria{Types: []string{"account"}}, "account|1|2", true},
		{journal.Criteria{Types: []string{"account"}}, "account|", true},
		{journal.Criteria{Types: []string{"account"}}, "account", false},
		{journal.Criteria{Types: []string{"account"}}, "accounts|1", false},
		{journal.Criteria{Types: []string{"account"}}, "Account|1", false},
		{journal.Criteria{Types: []string{"account"}}, "acc|account|1", false},
		{journal.Criteria{Types: []string{"loan", "account"}}, "account|1", true},
		{journal.Criteria{Types: []string{"loan", "account"}}, "card|1", false},
		{journal.Criteria{}, "refold.sharding|coordinator|account", false},
		{journal.Criteria{Tag: "red"}, "refold.sharding|coordinator|account", false},
		{journal.Criteria{Slices: slice("refold.x|1")}, "refold.x|1", false},
		{journal.Criteria{}, "refold.", false},
		{journal.Criteria{}, "refold|1", true},
		{journal.Criteria{}, "account|refold.x", true},
		{journal.Criteria{Types: []string{"account"}}, "refold.x|1", false},
		{journal.Criteria{Types: []string{"account", "refold.x"}}, "refold.x|1", true},
		{journal.Criteria{Types: []string{"refold.x"}, Tag: "blue"}, "refold.x|1", false},
		{journal.Criteria{Tag: "red"}, "a", true},
		{journal.Criteria{Tag: "reddish"}, "a", true},
		{journal.Criteria{Tag: "re"}, "a", false},
		{journal.Criteria{Tag: "Red"}, "a", false},
		{journal.Criteria{Slices: slice("a|1")}, "a|1", true},
		{journal.Criteria{Slices: slice("a|1")}, "a|2", false},
		{journal.Criteria{Types: []string{"a"}, Tag: "red", Slices: slice("a|1")}, "a|1", true},
		{journal.Criteria{Types: []string{"b"}, Tag: "red", Slices: slice("a|1")}, "a|1", false},
		{journal.Criteria{Types: []string{"a"}, Tag: "blue", Slices: slice("a|1")}, "a|1", false},
	} {
		if got := c.q.Matches(c.id, tags); got != c.want {
			t.Errorf("%+v: Matches(%q, %q) = %t, want %t", c.q, c.id, tags, got, c.want)
		}
	}
}

// library returns a small journal that the rows below query. Its offsets are mem-1 to mem-10.
func library(t *testing.T) *inmem.Journal {
	t.Helper()
	j := inmem.NewJournal()
	store(t, j,
		added("book|1", 0, 2, "m", "red"),         // mem-1, mem-2
		added("book|2", 0, 1, "m"),                // mem-3
		added("shelf|1", 0, 2, "m", "red", "big"), // mem-4, mem-5
		added("book|1", 2, 1, ""),                 // a fence
		added("book|1", 3, 2, "m", "big"),         // mem-7, mem-8
		added("loose", 0, 1, "m", "red"),          // mem-9
		added("refold.own|1", 0, 1, "m", "red"),   // mem-10, selected only by its type
	)
	return j
}

// row is one kind of query: its results for the library, and whether it completes.
type row struct {
	name string
	ask  func(ctx context.Context, j journal.Journal) []string
	want []string
	live []string // its results for events stored later; nil if it completes before
}

func rows() []row {
	byID := func(s iter.Seq2[journal.Event, error]) []string { return seen(s, showEvent) }
	all := func(s iter.Seq2[journal.Envelope, error]) []string { return seen(s, showRecorded) }
	const top = journal.MaxSequenceNr
	slice := journal.Slices{First: journal.SliceOf("book|1"), Count: 1}
	two := journal.Slices{First: journal.SliceOf("book|2"), Count: 2} // book|1 is in the next slice
	ended := "error: journal: live %sinmem: await: test ended"
	return []row{
		{
			"events by ID: up to a bound that was reached", func(ctx context.Context, j journal.Journal) []string {
				return byID(journal.LiveByID(ctx, j, "book|1", 2, 5))
			}, []string{"2", "4", "5"}, nil,
		},
		{
			"events by ID: up to a later bound", func(ctx context.Context, j journal.Journal) []string {
				return byID(journal.LiveByID(ctx, j, "book|1", 5, 6))
			}, []string{"5"}, []string{"6"},
		},
		{
			"events by ID: all, never completes", func(ctx context.Context, j journal.Journal) []string {
				return byID(journal.LiveByID(ctx, j, "book|1", 0, top))
			}, []string{"1", "2", "4", "5"}, []string{"6", "7", fmt.Sprintf(ended, `events of "book|1": `)},
		},
		{
			"current events by ID: all", func(ctx context.Context, j journal.Journal) []string {
				return byID(journal.CurrentByID(ctx, j, "book|1", 0, top))
			}, []string{"1", "2", "4", "5"}, nil,
		},
		{
			"current events by ID: inclusive bounds", func(ctx context.Context, j journal.Journal) []string {
				return byID(journal.CurrentByID(ctx, j, "book|1", 2, 4))
			}, []string{"2", "4"}, nil,
		},
		{
			"events by tag: after an offset, never completes", func(ctx context.Context, j journal.Journal) []string {
				return all(journal.Live(ctx, j, journal.Criteria{Tag: "red"}, "mem-2"))
			}, []string{"shelf|1/1 at mem-4", "shelf|1/2 at mem-5", "loose/1 at mem-9"}, []string{"book|1/6 at mem-11", fmt.Sprintf(ended, "events: ")},
		},
		{
			"current events by tag", func(ctx context.Context, j journal.Journal) []string {
				return all(journal.Current(ctx, j, journal.Criteria{Tag: "big"}, ""))
			}, []string{"shelf|1/1 at mem-4", "shelf|1/2 at mem-5", "book|1/4 at mem-7", "book|1/5 at mem-8"}, nil,
		},
		{
			"events by slices: of a type, after an offset", func(ctx context.Context, j journal.Journal) []string {
				return all(journal.Live(ctx, j, journal.Criteria{Types: []string{"book"}, Slices: slice}, "mem-2"))
			}, []string{"book|1/4 at mem-7", "book|1/5 at mem-8"}, []string{"book|1/6 at mem-11", "book|1/7 at mem-12", fmt.Sprintf(ended, "events: ")},
		},
		{
			"current events by slices: inclusive", func(ctx context.Context, j journal.Journal) []string {
				return all(journal.Current(ctx, j, journal.Criteria{Types: []string{"book"}, Slices: two}, "mem-1"))
			}, []string{"book|1/2 at mem-2", "book|2/1 at mem-3", "book|1/4 at mem-7", "book|1/5 at mem-8"}, nil,
		},
		{
			"current events of several types, one of which is reserved", func(ctx context.Context, j journal.Journal) []string {
				return all(journal.Current(ctx, j, journal.Criteria{Types: []string{"shelf", "refold.own"}}, ""))
			}, []string{"shelf|1/1 at mem-4", "shelf|1/2 at mem-5", "refold.own|1/1 at mem-10"}, nil,
		},
		{
			"events of all entities: after an offset, never completes", func(ctx context.Context, j journal.Journal) []string {
				return all(journal.Live(ctx, j, journal.Criteria{}, "mem-8"))
			}, []string{"loose/1 at mem-9"}, []string{"book|1/6 at mem-11", "book|1/7 at mem-12", "new|1/1 at mem-14", fmt.Sprintf(ended, "events: ")},
		},
		{
			"persistence IDs, never completes", func(ctx context.Context, j journal.Journal) []string {
				return seen(journal.LiveIDs(ctx, j), showID)
			}, []string{"book|1", "book|2", "loose", "shelf|1"}, []string{"new|1", fmt.Sprintf(ended, "persistence IDs: journal: live events: ")},
		},
		{
			"current persistence IDs", func(ctx context.Context, j journal.Journal) []string {
				return seen(journal.CurrentIDs(ctx, j, ""), showID)
			}, []string{"book|1", "book|2", "loose", "shelf|1"}, nil,
		},
		{
			"persistence IDs by pages", func(ctx context.Context, j journal.Journal) []string {
				return seen(taken(journal.CurrentIDs(ctx, j, "book|1"), 2), showID)
			}, []string{"book|2", "loose"}, nil,
		},
		{
			"current last sequence number", func(ctx context.Context, j journal.Journal) []string {
				var out []string
				for _, id := range []string{"book|1", "none|1"} {
					n, err := j.HighestSequenceNr(ctx, id)
					out = append(out, fmt.Sprint(n, err))
				}
				return out
			}, []string{"5 <nil>", "0 <nil>"}, nil,
		},
	}
}

// TestQueryKinds runs each kind of query on the stored events, and then on new events if the query
// is live.
func TestQueryKinds(t *testing.T) {
	t.Parallel()
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := library(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				var got []string
				done := false
				go func() {
					got = r.ask(ctx, j)
					done = true
				}()
				synctest.Wait()
				if done != (r.live == nil) {
					t.Fatalf("the loop completed: %t, want %t; it yielded %q", done, r.live == nil, got)
				}
				store(t, j, added("book|1", 5, 1, "m", "red"), added("book|1", 6, 1, "m"), added("refold.own|2", 0, 1, "m", "red"), added("new|1", 0, 1, "m"))
				synctest.Wait()
				cancel(errTestEnded)
				synctest.Wait()
				if !done {
					t.Fatal("the loop continues after the end of its context")
				}
				expect(t, "results", got, append(r.want, r.live...))
			})
		})
	}
}
