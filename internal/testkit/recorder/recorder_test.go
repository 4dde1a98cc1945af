// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package recorder_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/recorder"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Find finds a failure that occurs in some runs. It stops after ten runs without a failure.
func TestFind(t *testing.T) {
	t.Parallel()
	runs := 0
	got := recorder.Find(t, func(tb testing.TB) {
		tb.Helper()
		if runs++; runs == 7 {
			tb.Error("found")
		}
	})
	if runs != 7 || !slices.Equal(got, []string{"found"}) {
		t.Errorf("got %d runs and %q, want 7 runs and one failure", runs, got)
	}
	runs = 0
	if got = recorder.Find(t, func(testing.TB) { runs++ }); runs != 10 || got != nil {
		t.Errorf("got %d runs and %q, want 10 runs without a failure", runs, got)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		check func(tb testing.TB)
		want  []string
	}{
		"passes":  {func(tb testing.TB) { tb.Helper(); tb.Log("well"); tb.Logf("%s", "well") }, nil},
		"errors":  {func(tb testing.TB) { tb.Helper(); tb.Error("a", 1); tb.Errorf("b%d", 2) }, []string{"a1", "b2"}},
		"fatal":   {func(tb testing.TB) { tb.Helper(); tb.Fatal("a"); tb.Error("after") }, []string{"a"}},
		"fatalf":  {func(tb testing.TB) { tb.Helper(); tb.Fatalf("a%d", 1); tb.Error("after") }, []string{"a1"}},
		"fails":   {func(tb testing.TB) { tb.Helper(); tb.Fail() }, []string{"failed"}},
		"now":     {func(tb testing.TB) { tb.Helper(); tb.Fail(); tb.FailNow(); tb.Error("after") }, []string{"failed"}},
		"panics":  {func(testing.TB) { panic("oh") }, []string{"panic: oh"}},
		"cleanup": {func(tb testing.TB) { tb.Helper(); tb.Cleanup(func() { tb.Error(tb.Context().Err(), tb.Failed()) }) }, []string{"context canceled false"}},
		"order": {func(tb testing.TB) {
			tb.Helper()
			tb.Cleanup(func() { tb.Error(1) })
			tb.Cleanup(func() { tb.Error(2) })
		}, []string{"2", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := recorder.Record(t, test.check); !slices.Equal(got, test.want) {
				t.Errorf("got failures %q, want %q", got, test.want)
			}
		})
	}
}
