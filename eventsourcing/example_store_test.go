// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// The sessions of a program are stored apart from its accounts, for example in another database.
func ExampleHostOptions_store() {
	ctx := context.Background()
	main, apart := inmem.NewJournal(), inmem.NewJournal()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(main, nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	sessionType := accountType()
	sessionType.Name = "session"
	accounts, err := eventsourcing.Host(rt, accountType())
	if err != nil {
		fmt.Println(err)
		return
	}
	sessions, err := eventsourcing.HostWith(rt, sessionType, eventsourcing.HostOptions{Store: store.Of(apart, nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, entities := range []eventsourcing.Entities[Account]{accounts, sessions} {
		if _, err = eventsourcing.Ask(ctx, entities.Ref("42"), Deposit{Amount: 10}); err != nil {
			fmt.Println(err)
		}
	}
	if err = rt.Close(ctx); err != nil { // the program closes both stores after the runtime
		fmt.Println(err)
	}
	for i, j := range []*inmem.Journal{main, apart} {
		for id, err := range j.PersistenceIDs(ctx, "") {
			fmt.Println("journal", i, "holds", id, err)
		}
	}
	// Output:
	// journal 0 holds account|42 <nil>
	// journal 1 holds session|42 <nil>
}
