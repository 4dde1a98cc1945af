// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
)

// A view with snapshots continues at its newest snapshot after a restart, and applies only the events
// after it.
func ExampleNewView_snapshots() {
	ctx := context.Background()
	db, err := inmem.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, accounts := hostedOn(db, accountType())
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	for _, amount := range []int{10, 30, 20, 40, 50} {
		if _, err = eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: amount}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for range 2 { // the second view is that of the next process
		var sum, applied int
		opts := eventsourcing.ViewOptions{
			Name:          "deposits",
			SnapshotEvery: 2,
			Save:          func() ([]byte, error) { return json.Marshal(sum) },
			Load:          func(state []byte) error { return json.Unmarshal(state, &sum) },
		}
		view, err := eventsourcing.NewView(rt, accountType(), "42", opts, func(v eventsourcing.Viewed[Event]) error {
			if e, ok := v.Event.(Deposited); ok {
				sum += e.Amount
			}
			applied++
			return nil
		})
		if err == nil {
			err = view.Update(ctx)
		}
		fmt.Println("sum:", sum, "applied:", applied, err)
	}
	// Output:
	// sum: 150 applied: 5 <nil>
	// sum: 150 applied: 1 <nil>
}
