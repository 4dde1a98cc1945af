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

// account is an owner of requests.
type account struct {
	stream  journal.Stream
	written chan error
}

func (a *account) Written(_ *journal.Request, err error) { a.written <- err }

func (a *account) Room() {}

func ExampleWriter() {
	writer, err := journal.NewWriter(&book{records: map[string][]journal.Event{}}, journal.WriterConfig{})
	if err != nil {
		panic(err)
	}
	a := &account{written: make(chan error, 1)}
	submit := func(expect uint64, manifest string) {
		writer.Submit(&journal.Request{
			Write: journal.Write{
				ID: "account|42", Writer: "1f0c", Expect: expect,
				Events: []journal.Event{{SequenceNr: expect + 1, Manifest: manifest}},
			},
			Stream: &a.stream,
			Owner:  a,
		})
		fmt.Println(<-a.written)
	}
	submit(0, "opened")
	submit(7, "deposited") // as if somebody else had written
	submit(8, "deposited")
	writer.Reset(&a.stream) // the account has replayed
	submit(1, "deposited")
	if err := writer.Close(context.Background()); err != nil {
		panic(err)
	}
	submit(2, "deposited")
	// Output:
	// <nil>
	// journal: conflict: "account|42": expected sequence number 7, found 1
	// journal: skipped behind a write that was not stored
	// <nil>
	// journal: write not sent: journal: closed: writer
}

func ExampleFilter() {
	filter, err := journal.NewFilter(journal.FilterConfig{Mode: journal.FilterRepairByDiscardOld})
	if err != nil {
		panic(err)
	}
	imported := &book{records: map[string][]journal.Event{"account|42": {
		{SequenceNr: 1, Writer: "old", Manifest: "opened"},
		{SequenceNr: 2, Writer: "old", Manifest: "deposited"},
		{SequenceNr: 2, Writer: "new", Manifest: "closed"},
	}}}
	for e, err := range filter.Apply("account|42", imported.Replay(context.Background(), "account|42", 1, journal.MaxSequenceNr)) {
		fmt.Println(e.SequenceNr, e.Manifest, err)
	}
	// Output:
	// 1 opened <nil>
	// 2 closed <nil>
}

func ExampleGuard() {
	guarded, err := journal.Guard(&book{}, journal.GuardConfig{MaxFailures: 5})
	if err != nil {
		panic(err)
	}
	highest, err := guarded.HighestSequenceNr(context.Background(), "account|42")
	fmt.Println(highest, err)
	// Output: 0 <nil>
}

func ExampleAs() {
	guarded, err := journal.Guard(&book{}, journal.GuardConfig{})
	if err != nil {
		panic(err)
	}
	_, canList := journal.As[journal.IDLister](guarded)
	behind, _ := journal.As[*book](guarded)
	fmt.Println(canList, behind != nil)
	// Output: false true
}
