// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replayfilter_test

import (
	"fmt"
	"slices"

	"github.com/refold-io/refold/internal/replayfilter"
	"github.com/refold-io/refold/journal"
)

func ExampleFilter() {
	filter, err := replayfilter.New(journal.FilterConfig{Mode: journal.FilterRepairByDiscardOld})
	if err != nil {
		panic(err)
	}
	imported := slices.Values([]journal.Event{
		{SequenceNr: 1, Writer: "old", Manifest: "opened"},
		{SequenceNr: 2, Writer: "old", Manifest: "deposited"},
		{SequenceNr: 2, Writer: "new", Manifest: "closed"},
	})
	replay := func(yield func(journal.Event, error) bool) {
		for e := range imported {
			if !yield(e, nil) {
				return
			}
		}
	}
	for e, err := range filter.Apply("account|42", replay) {
		fmt.Println(e.SequenceNr, e.Manifest, err)
	}
	// Output:
	// 1 opened <nil>
	// 2 closed <nil>
}
