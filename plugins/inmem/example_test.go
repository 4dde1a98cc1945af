// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// Two writers append to the same persistence ID. The second one has not read the first one's event,
// so its append is a conflict.
func ExampleJournal() {
	ctx := context.Background()
	j := inmem.NewJournal()
	deposited := func(amount string) []journal.Event {
		return []journal.Event{{SequenceNr: 1, Manifest: "deposited", Payload: []byte(amount)}}
	}

	first := []journal.Write{{ID: "account|42", Writer: "first", Expect: 0, Events: deposited("10")}}
	fmt.Println(j.Append(ctx, first) == nil)
	second := []journal.Write{{ID: "account|42", Writer: "second", Expect: 0, Events: deposited("99")}}
	fmt.Println(errors.Is(j.Append(ctx, second)[0], journal.ErrConflict))

	for event, err := range j.Replay(ctx, "account|42", 1, journal.MaxSequenceNr) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s %s by %s\n", event.SequenceNr, event.Manifest, event.Payload, event.Writer)
	}
	// Output:
	// true
	// true
	// 1 deposited 10 by first
}
