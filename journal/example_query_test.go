// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// A report over all accounts reads the existing events and keeps the offset after which the next
// run resumes.
func ExampleCurrent() {
	ctx := context.Background()
	j := inmem.NewJournal()
	deposited := func(id string, seqNr uint64, amount string, tags ...string) {
		j.Append(ctx, []journal.Write{{ID: id, Expect: seqNr - 1, Events: []journal.Event{
			{SequenceNr: seqNr, Manifest: "deposited", Payload: []byte(amount), Tags: tags},
		}}})
	}
	var last journal.Offset // the next run of the report begins here
	report := func() {
		for e, err := range journal.Current(ctx, j, journal.Criteria{Types: []string{"account"}, Tag: "large"}, last) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("%s event %d: %s\n", e.ID, e.SequenceNr, e.Payload)
			last = e.Offset
		}
	}
	deposited("account|1", 1, "5")
	deposited("account|2", 1, "9000", "large")
	deposited("loan|1", 1, "7000", "large")
	report()
	deposited("account|1", 2, "8000", "large")
	report()
	// Output:
	// account|2 event 1: 9000
	// account|1 event 2: 8000
}

// A reader that receives each existing and each new event once.
func ExampleLive() {
	j := inmem.NewJournal()
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	opened := func(id string) {
		j.Append(ctx, []journal.Write{{ID: id, Events: []journal.Event{{SequenceNr: 1, Manifest: "opened"}}}})
	}
	opened("account|1")
	last := journal.Offset("") // a real reader stores e.Offset with its result
	for e, err := range journal.Live(ctx, j, journal.Criteria{}, last) {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(e.ID, e.Manifest)
		switch e.ID {
		case "account|1":
			opened("account|2")
		case "account|2":
			stop(errors.New("example finished"))
		}
	}
	// Output:
	// account|1 opened
	// account|2 opened
	// journal: live events: inmem: await: example finished
}
