// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/refold-io/refold/eventsourcing"
)

// A program adopts histories that another program has stored as "acc-1", "acc-2" and so on.
func ExampleType_persistenceID() {
	ctx := context.Background()
	typ := accountType()
	typ.PersistenceID = func(id string) string { return "acc-" + id }
	typ.EntityID = func(persistenceID string) (string, bool) { return strings.CutPrefix(persistenceID, "acc-") }
	rt, accounts := hosted(typ)
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	if _, err := eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 10}); err != nil {
		fmt.Println(err)
	}
	for id, err := range accounts.IDs(ctx) {
		persistenceID, invalid := typ.PersistenceIDOf(id)
		fmt.Println(id, "is stored as", persistenceID, err, invalid)
	}
	// Output: 42 is stored as acc-42 <nil> <nil>
}
