// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// hosted opens a runtime with a journal in memory that hosts one type. A real program returns these
// errors; see the package example.
func hosted[S, E any](typ eventsourcing.Type[S, E]) (*eventsourcing.Runtime, *eventsourcing.Local[S, E]) {
	return hostedOn(store.Of(inmem.NewJournal(), nil), typ)
}

// hostedOn is hosted with a database.
func hostedOn[S, E any](db store.DB, typ eventsourcing.Type[S, E]) (*eventsourcing.Runtime, *eventsourcing.Local[S, E]) {
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
	if err != nil {
		panic(err)
	}
	entities, err := eventsourcing.Host(rt, typ)
	if err != nil {
		panic(err)
	}
	return rt, entities
}

func accountType() eventsourcing.Type[Account, Event] {
	return eventsourcing.Type[Account, Event]{
		Name:     "account",
		Commands: eventsourcing.Commands(eventsourcing.On("deposit", (*Account).Deposit)),
		Apply:    (*Account).Apply,
		Events:   codec.Types(codec.Name[Deposited]("deposited")),
	}
}

// Tell does not wait. Commands from one goroutine to one entity keep their order, so the Ask sees
// the effects of the earlier commands.
func ExampleTell() {
	ctx := context.Background()
	rt, accounts := hosted(accountType())
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	account := accounts.Ref("42")
	for range 3 {
		if err := eventsourcing.Tell(ctx, account, Deposit{Amount: 10}); err != nil {
			fmt.Println("not sent:", err)
			return
		}
	}
	balance, err := eventsourcing.Ask(ctx, account, Deposit{Amount: 1})
	fmt.Println(balance, err)
	// Output: 31 <nil>
}

// Fold computes an earlier state, and the state that would follow from other events. It neither
// starts the entity nor writes.
func ExampleFold() {
	ctx := context.Background()
	rt, accounts := hosted(accountType())
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	for _, amount := range []int{10, 200, 30} {
		if _, err := eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: amount}); err != nil {
			fmt.Println(err)
			return
		}
	}
	show := func(what string, opts eventsourcing.FoldOptions[Event]) {
		folded, err := eventsourcing.Fold(ctx, rt, accountType(), "42", opts)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(what, folded.State.Balance)
	}
	show("now:", eventsourcing.FoldOptions[Event]{})
	show("after two events:", eventsourcing.FoldOptions[Event]{UpTo: 2})
	show("had the second been 20:", eventsourcing.FoldOptions[Event]{
		Replace: func(seqNr uint64, event Event) []Event {
			if seqNr == 2 {
				return []Event{Deposited{Amount: 20}}
			}
			return []Event{event}
		},
	})
	// Output:
	// now: 240
	// after two events: 210
	// had the second been 20: 60
}

// A view receives each event of an entity once. Run calls Update at each interval.
func ExampleNewView() {
	ctx := context.Background()
	rt, accounts := hosted(accountType())
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	largest := 0
	view, err := eventsourcing.NewView(rt, accountType(), "42", eventsourcing.ViewOptions{}, func(v eventsourcing.Viewed[Event]) error {
		if e, ok := v.Event.(Deposited); ok {
			largest = max(largest, e.Amount)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, amount := range []int{10, 30, 20} {
		if _, err = eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: amount}); err != nil {
			fmt.Println(err)
			return
		}
	}
	err = view.Update(ctx)
	fmt.Println("largest deposit:", largest, "seen:", view.SequenceNr(), err)
	// Output: largest deposit: 30 seen: 3 <nil>
}
