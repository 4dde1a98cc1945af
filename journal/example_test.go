// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/refold-io/refold/journal"
)

// book is a minimal journal for the examples.
type book struct{ records map[string][]journal.Event }

func (b *book) Append(_ context.Context, writes []journal.Write) []error {
	slots := make([]error, len(writes))
	for i, w := range writes {
		if highest := uint64(len(b.records[w.ID])); highest != w.Expect {
			slots[i] = &journal.ConflictError{ID: w.ID, Expected: w.Expect, Highest: highest}
			continue
		}
		b.records[w.ID] = append(b.records[w.ID], w.Events...)
	}
	return slots
}

func (b *book) Replay(_ context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for _, e := range b.records[id] {
			if e.SequenceNr >= from && e.SequenceNr <= to && !yield(e, nil) {
				return
			}
		}
	}
}

func (b *book) HighestSequenceNr(_ context.Context, id string) (uint64, error) {
	return uint64(len(b.records[id])), nil
}

func (b *book) DeleteTo(context.Context, string, uint64) error { return errors.ErrUnsupported }

func (b *book) Close() error { return nil }

func ExampleWithBreaker() {
	guarded, err := journal.WithBreaker(&book{}, journal.BreakerConfig{MaxFailures: 5})
	if err != nil {
		panic(err)
	}
	highest, err := guarded.HighestSequenceNr(context.Background(), "account|42")
	fmt.Println(highest, err)
	// Output: 0 <nil>
}

func ExampleAs() {
	guarded, err := journal.WithBreaker(&book{}, journal.BreakerConfig{})
	if err != nil {
		panic(err)
	}
	_, canList := journal.As[journal.IDLister](guarded)
	wrapped, _ := journal.As[*book](guarded)
	fmt.Println(canList, wrapped != nil)
	// Output: false true
}
