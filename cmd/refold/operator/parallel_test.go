// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
)

// numbered yields n IDs, and then an error if there is one.
func numbered(n int, last error) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for i := range n {
			if !yield(fmt.Sprintf("%05d", i), nil) {
				return
			}
		}
		if last != nil {
			yield("", last)
		}
	}
}

func TestInOrder(t *testing.T) {
	t.Parallel()
	const n = 5000
	var now, most atomic.Int64
	var got []string
	first := make(chan struct{})
	err := operator.InOrder(t.Context(), 8, numbered(n, nil), func(_ context.Context, id string) (string, error) {
		defer now.Add(-1)
		for here := now.Add(1); here > most.Load(); {
			most.Store(here)
		}
		switch id {
		case "00000":
			<-first // the first ID waits until later IDs have finished
		case "00100":
			close(first)
		}
		return "done " + id, nil
	}, func(id, result string) error {
		if result != "done "+id {
			t.Errorf("result %q of ID %q, want %q", result, id, "done "+id)
		}
		got = append(got, id)
		return nil
	})
	if err != nil || len(got) != n || !slices.IsSorted(got) {
		t.Errorf("error %v, %d results, in order: %v; want no error and %d results in order", err, len(got), slices.IsSorted(got), n)
	}
	if most.Load() > 8 {
		t.Errorf("%d calls ran at the same time, want at most 8", most.Load())
	}
}

// InOrder returns the error of the first failing ID in the order of the IDs, even if another ID
// fails earlier.
func TestInOrderFails(t *testing.T) {
	t.Parallel()
	later := make(chan struct{})
	var taken []string
	err := operator.InOrder(t.Context(), 4, numbered(100, errors.New("the list")), func(_ context.Context, id string) (int, error) {
		switch id {
		case "00003":
			<-later
			return 0, errors.New("three")
		case "00005":
			close(later)
			return 0, errors.New("five")
		}
		return 0, nil
	}, func(id string, _ int) error {
		taken = append(taken, id)
		return nil
	})
	if err == nil || err.Error() != "three" || len(taken) != 3 {
		t.Errorf("InOrder returned the error %v after the results of %q, want three after 3 results", err, taken)
	}
	good := func(context.Context, string) (int, error) { return 0, nil }
	if err = operator.InOrder(t.Context(), 4, numbered(10, errDisk), good, func(string, int) error { return nil }); !errors.Is(err, errDisk) {
		t.Errorf("InOrder with a failing list: error %v, want errDisk", err)
	}
	if err = operator.InOrder(t.Context(), 4, numbered(10, nil), good, func(string, int) error { return errDisk }); !errors.Is(err, errDisk) {
		t.Errorf("InOrder with a failing take: error %v, want errDisk", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = operator.InOrder(ctx, 4, numbered(1_000_000, nil), good, func(id string, _ int) error {
		if id == "00100" {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("InOrder returned the error %v, want context.Canceled", err)
	}
}

func TestMerged(t *testing.T) {
	t.Parallel()
	list := func(ids ...string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for _, id := range ids {
				if !yield(id, nil) {
					return
				}
			}
		}
	}
	for _, c := range []struct{ a, b, want []string }{
		{nil, nil, nil},
		{[]string{"a"}, nil, []string{"a"}},
		{nil, []string{"a"}, []string{"a"}},
		{[]string{"a", "c", "d"}, []string{"b", "c", "e"}, []string{"a", "b", "c", "d", "e"}},
		{[]string{"x"}, []string{"a", "b", "x"}, []string{"a", "b", "x"}},
	} {
		var got []string
		for id, err := range operator.Merged(list(c.a...), list(c.b...)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, id)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("Merged(%q, %q) = %q, want %q", c.a, c.b, got, c.want)
		}
	}
	for _, lists := range [][2]iter.Seq2[string, error]{{numbered(2, errDisk), numbered(3, nil)}, {numbered(3, nil), numbered(0, errDisk)}} {
		var last error
		for _, last = range operator.Merged(lists[0], lists[1]) {
		}
		if !errors.Is(last, errDisk) {
			t.Errorf("Merged yielded the error %v, want errDisk", last)
		}
	}
}
