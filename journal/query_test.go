// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/refold-io/refold/journal"
)

// TestOffsetsOrderLikeTheNumbersInThem has the order that current queries rely
// on to know their end.
func TestOffsetsOrderLikeTheNumbersInThem(t *testing.T) {
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
		t.Error("they are sorted")
	}
}

func TestQueryCheck(t *testing.T) {
	t.Parallel()
	for _, q := range []journal.Criteria{
		{},
		{Type: "account", Tag: "it's | a \"tag\""},
		{Slices: journal.Slices{First: 0, Count: 1024}},
		{Slices: journal.Slices{First: 1023, Count: 1}},
		{Slices: journal.Slices{First: 1, Count: 1023}},
	} {
		if err := q.Check(); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for _, q := range []journal.Criteria{
		{Type: "a|b"},
		{Type: "a\x00"},
		{Type: "\xff"},
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
			t.Errorf("%+v: %v, want ErrInvalid", q, err)
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
		{journal.Criteria{Type: "account"}, "account|1", true},
		{journal.Criteria{Type: "account"}, "account|1|2", true},
		{journal.Criteria{Type: "account"}, "account|", true},
		{journal.Criteria{Type: "account"}, "account", false},
		{journal.Criteria{Type: "account"}, "accounts|1", false},
		{journal.Criteria{Type: "account"}, "Account|1", false},
		{journal.Criteria{Type: "account"}, "acc|account|1", false},
		{journal.Criteria{Tag: "red"}, "a", true},
		{journal.Criteria{Tag: "reddish"}, "a", true},
		{journal.Criteria{Tag: "re"}, "a", false},
		{journal.Criteria{Tag: "Red"}, "a", false},
		{journal.Criteria{Slices: slice("a|1")}, "a|1", true},
		{journal.Criteria{Slices: slice("a|1")}, "a|2", false},
		{journal.Criteria{Type: "a", Tag: "red", Slices: slice("a|1")}, "a|1", true},
		{journal.Criteria{Type: "b", Tag: "red", Slices: slice("a|1")}, "a|1", false},
		{journal.Criteria{Type: "a", Tag: "blue", Slices: slice("a|1")}, "a|1", false},
	} {
		if got := c.q.Matches(c.id, tags); got != c.want {
			t.Errorf("%+v matches %q with tags %q: %t", c.q, c.id, tags, got)
		}
	}
}
