// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// account is an owner of requests.
type account struct {
	stream  groupcommit.Stream
	written chan error
}

func (a *account) Written(_ *groupcommit.Request, err error) { a.written <- err }

func (a *account) Room() {}

func ExampleWriter() {
	writer, err := groupcommit.New(inmem.NewJournal(), journal.WriterConfig{})
	if err != nil {
		panic(err)
	}
	a := &account{written: make(chan error, 1)}
	submit := func(expect uint64, manifest string) {
		writer.Submit(&groupcommit.Request{
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
	submit(7, "deposited") // as if another writer had appended
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
	// journal: write skipped: an earlier write of the same ID was not stored
	// <nil>
	// journal: write not sent: journal: closed: writer
}
