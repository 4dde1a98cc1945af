// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/refold-io/refold/snapshot"
)

func moment(micros int) time.Time {
	return time.Date(2026, time.May, 4, 12, 0, 0, micros*1000, time.UTC)
}

func TestCriteriaMatches(t *testing.T) {
	t.Parallel()
	bounds := snapshot.Criteria{MinSequenceNr: 5, MaxSequenceNr: 7, MinTime: moment(50), MaxTime: moment(70)}
	for _, test := range []struct {
		name  string
		c     snapshot.Criteria
		seqNr uint64
		time  time.Time
		want  bool
	}{
		{"inside", bounds, 6, moment(60), true},
		{"at the lower bounds", bounds, 5, moment(50), true},
		{"at the upper bounds", bounds, 7, moment(70), true},
		{"number below", bounds, 4, moment(60), false},
		{"number above", bounds, 8, moment(60), false},
		{"time below", bounds, 6, moment(49), false},
		{"time above", bounds, 6, moment(71), false},
		{"time in another zone", bounds, 6, moment(70).In(time.FixedZone("", 3600)), true},
		{"zero value", snapshot.Criteria{}, 1, moment(0), true},
		{"zero value, smallest", snapshot.Criteria{}, 0, time.Time{}, true},
		{"only a number", snapshot.Criteria{MaxSequenceNr: 3}, 4, moment(0), false},
		{"only a time", snapshot.Criteria{MaxTime: moment(3)}, 4, moment(4), false},
		{"latest, smallest", snapshot.Latest(), 1, time.Time{}, true},
		{"latest, largest", snapshot.Latest(), math.MaxInt64, time.Date(9999, time.December, 31, 23, 59, 59, 999_999_000, time.UTC), true},
		{"latest, no number", snapshot.Latest(), math.MaxInt64 + 1, moment(0), false},
		{"latest, year 10000", snapshot.Latest(), 1, time.Date(10000, time.January, 1, 0, 0, 0, 0, time.UTC), false},
		{"up to, at", snapshot.UpTo(9), 9, moment(0), true},
		{"up to, below", snapshot.UpTo(9), 1, moment(0), true},
		{"up to, above", snapshot.UpTo(9), 10, moment(0), false},
		{"up to 0", snapshot.UpTo(0), 1, moment(0), false},
		{"at", snapshot.At(9), 9, moment(0), true},
		{"at, below", snapshot.At(9), 8, moment(0), false},
		{"at, above", snapshot.At(9), 10, moment(0), false},
	} {
		m := snapshot.Metadata{ID: "a", SequenceNr: test.seqNr, Time: test.time}
		if got := test.c.Matches(m); got != test.want {
			t.Errorf("%s: Matches = %t, want %t", test.name, got, test.want)
		}
	}
}

func TestCriteriaCheckDelete(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		c  snapshot.Criteria
		ok bool
	}{
		"zero":        {snapshot.Criteria{}, false},
		"latest":      {snapshot.Latest(), false},
		"from 1":      {snapshot.Criteria{MinSequenceNr: 1}, false},
		"all":         {snapshot.Criteria{All: true}, true},
		"up to":       {snapshot.UpTo(9), true},
		"up to 0":     {snapshot.UpTo(0), true},
		"at":          {snapshot.At(9), true},
		"from":        {snapshot.Criteria{MinSequenceNr: 2}, true},
		"until":       {snapshot.Criteria{MaxTime: moment(3)}, true},
		"since":       {snapshot.Criteria{MinTime: moment(3)}, true},
		"all, bounds": {snapshot.Criteria{All: true, MaxSequenceNr: 4}, true},
	} {
		if err := test.c.CheckDelete(); (err == nil) != test.ok || err != nil && !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("%s: CheckDelete = %v, want an error: %t", name, err, !test.ok)
		}
	}
}

func ExampleCriteria() {
	monday := time.Date(2026, time.May, 4, 23, 59, 59, 0, time.UTC)
	c := snapshot.UpTo(1000)
	c.MaxTime = monday

	fmt.Println(c.Matches(snapshot.Metadata{ID: "account|42", SequenceNr: 900, Time: monday}))
	fmt.Println(c.Matches(snapshot.Metadata{ID: "account|42", SequenceNr: 950, Time: monday.Add(time.Hour)}))
	// Output:
	// true
	// false
}
