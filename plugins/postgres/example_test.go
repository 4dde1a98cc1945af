// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// The example needs a server, so it is only compiled.
func Example() {
	ctx := context.Background()
	db, err := postgres.Open(ctx, os.Getenv("BANK_DATABASE"), postgres.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close() //nolint:errcheck // it never fails

	j := db.TestJournal()
	errs := j.Append(ctx, []journal.Write{{ID: "account|42", Writer: "node-1", Events: []journal.Event{
		{SequenceNr: 1, Manifest: "opened", Payload: []byte("USD")},
		{SequenceNr: 2, Manifest: "deposited", Payload: []byte("10.00"), Tags: []string{"usd"}},
	}}})
	if errs != nil {
		fmt.Println(errs)
		return
	}
	for e, err := range j.Replay(ctx, "account|42", 1, journal.MaxSequenceNr) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.SequenceNr, e.Manifest, string(e.Payload))
	}
}

// A program without the right to create tables reports the missing migrations. An administrator
// applies them for all programs.
func ExampleMigrate() {
	ctx := context.Background()
	_, err := postgres.Open(ctx, os.Getenv("BANK_DATABASE"), postgres.Config{CheckOnly: true})
	if errors.Is(err, postgres.ErrSchema) {
		steps, err := postgres.Migrate(ctx, os.Getenv("BANK_DATABASE_OWNER"), postgres.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, step := range steps {
			fmt.Println("applied", step.Name)
		}
	}
}
