// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"os"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// A journal with an event whose payload does not match its manifest.
func ExampleVerify() {
	j := inmem.NewJournal()
	journalOfOne(context.Background(), j)
	report, err := operator.Verify(context.Background(), j, operator.VerifyOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.IDs, "persistence ID,", report.Records, "record")
	for _, problem := range report.Problems {
		fmt.Println(problem)
	}
	// Output:
	// 1 persistence ID, 1 record
	// "account|1" at 1: codec: malformed data: 4 bytes follow the value at byte 1
}

// A program that contains the entity type inspects a journal that it has open.
func ExampleProgram() {
	p := operator.Program{
		Name:     "bank refold",
		Entities: []operator.Linked{operator.Entity(accountType())},
		Open: func(ctx context.Context, _ string) (*operator.Source, error) {
			j := inmem.NewJournal()
			journalOfOne(ctx, j)
			return &operator.Source{Journal: j, Close: j.Close}, nil
		},
		Stderr: os.Stdout,
	}
	fmt.Println("exit status", p.Run(context.Background(), []string{"events"}))
	fmt.Println("exit status", p.Run(context.Background(), []string{"rebuild", "account|2"}))
	// Output:
	// ID         HIGHEST  RECORDS
	// account|1  1        1
	// exit status 0
	// bank refold: no persistence ID "account|2"; the events command lists them
	// exit status 2
}

// The main function of a program that contains its entity types.
func ExampleMain() {
	main := func() {
		operator.Main(operator.Entity(accountType()))
	}
	_ = main
}

func ExampleEntity() {
	typ := eventsourcing.Type[account, event]{
		Name:   "account",
		Apply:  (*account).apply,
		Events: events(),
	}
	status := operator.Run(context.Background(), []string{"rebuild"}, os.Stdout, os.Stdout, operator.Entity(typ))
	fmt.Println("exit status", status)
	// Output:
	// refold: rebuild: expected a persistence ID or --all (see refold --help)
	// exit status 2
}

// journalOfOne appends one event, whose payload does not match its manifest.
func journalOfOne(ctx context.Context, j journal.Journal) {
	e := journal.Event{SequenceNr: 1, Time: noon, Manifest: "opened", Payload: []byte("hello")}
	_ = j.Append(ctx, []journal.Write{{ID: "account|1", Writer: "w", Events: []journal.Event{e}}})
}
