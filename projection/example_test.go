// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/projection"
)

type (
	Event interface{ isAccountEvent() }
	// Deposited is the event type of this example.
	Deposited struct{ Amount int }
)

func (Deposited) isAccountEvent() {}

// A read model and its position in memory, which are rebuilt at each start of the program.
func Example() {
	ctx := context.Background()
	types := codec.Types(codec.Name[Deposited]("deposited"))
	j := inmem.NewJournal()
	defer func() { _ = j.Close() }()
	for i, id := range []string{"account|alice", "account|bob"} {
		manifest, payload, err := types.Encode(Deposited{Amount: 10 * (i + 1)})
		if err != nil {
			fmt.Println(err)
		}
		_ = j.Append(ctx, []journal.Write{{ID: id, Writer: "w", Events: []journal.Event{{SequenceNr: 1, Manifest: manifest, Payload: payload}}}})
	}

	total := 0
	totals, err := projection.New(projection.Config[Event]{
		Name:     "totals",
		Journal:  j,
		Criteria: journal.Criteria{Types: []string{"account"}},
		Events:   types,
		Handler: projection.AtLeastOnce[Event]{
			Store: new(projection.Memory),
			Handle: func(_ context.Context, e projection.Envelope[Event]) error {
				if deposited, ok := e.Event.(Deposited); ok {
					fmt.Println(e.EntityID(), deposited.Amount)
					total += deposited.Amount
				}
				return nil
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := totals.CatchUp(ctx); err != nil { // Run would continue with later events
		fmt.Println(err)
	}
	fmt.Println("total", total)
	// Output:
	// alice 10
	// bob 20
	// total 30
}

// A rebuild clears the read model and handles all events again, here because the handler has changed.
func ExampleProjection_Rebuild() {
	ctx := context.Background()
	types := codec.Types(codec.Name[Deposited]("deposited"))
	j := inmem.NewJournal()
	defer func() { _ = j.Close() }()
	manifest, payload, err := types.Encode(Deposited{Amount: 10})
	if err != nil {
		fmt.Println(err)
	}
	_ = j.Append(ctx, []journal.Write{{ID: "account|alice", Writer: "w", Events: []journal.Event{{SequenceNr: 1, Manifest: manifest, Payload: payload}}}})

	cents, factor := 0, 1
	totals, err := projection.New(projection.Config[Event]{
		Name: "cents", Journal: j, Criteria: journal.Criteria{Types: []string{"account"}}, Events: types,
		Handler: projection.AtLeastOnce[Event]{
			Store: new(projection.Memory),
			Handle: func(_ context.Context, e projection.Envelope[Event]) error {
				if deposited, ok := e.Event.(Deposited); ok {
					cents += factor * deposited.Amount
				}
				return nil
			},
			Clear: func(context.Context) error { cents = 0; return nil },
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(totals.CatchUp(ctx), cents)
	factor = 100 // the mistake is repaired
	fmt.Println(totals.Rebuild(ctx), totals.CatchUp(ctx), cents)
	// Output:
	// <nil> 10
	// <nil> <nil> 1000
}
