// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"testing"

	"github.com/refold-io/refold/journal"
)

func TestSliceOf(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]int{
		"pid-1": 111, "pid-2": 112, "pid-6712": 92, "": 0,
		"\U0001F600": (0xD83D*31 + 0xDE00) % 1024, // a surrogate pair is two units
	} {
		if got := journal.SliceOf(id); got != want {
			t.Errorf("SliceOf(%q) = %d, want %d", id, got, want)
		}
	}
}

func TestSlicesAreDividedEvenly(t *testing.T) {
	t.Parallel()
	ranges, err := journal.SplitSlices(4)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"0-255", "256-511", "512-767", "768-1023"} {
		if got := ranges[i].String(); got != want {
			t.Errorf("range %d is %s, want %s", i, got, want)
		}
	}
	for _, n := range []int{-1, 0, 3, 2048} {
		if _, err := journal.SplitSlices(n); err == nil {
			t.Errorf("SplitSlices(%d) returned no error", n)
		}
	}
	if all := (journal.Slices{}); all.String() != "0-1023" || !all.Contains(0) || !all.Contains(1023) {
		t.Errorf("the zero Slices is %s, want all slices", all)
	}
}
