// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
)

// A snapshot after each hundred events, of which the last two are kept. The next recovery begins at
// the newest snapshot.
func ExampleSnapshots() {
	ctx := context.Background()
	typ := accountType()
	typ.Snapshots = eventsourcing.Snapshots[Account, Event]{Every: 100, Keep: 2}
	db, err := inmem.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, accounts := hostedOn(db, typ)
	for range 150 {
		if _, err = eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 1}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err = rt.Close(ctx); err != nil { // ends after the last snapshot is saved
		fmt.Println(err)
	}

	rt, _ = hostedOn(db, typ)
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	folded, err := eventsourcing.Fold(ctx, rt, typ, "42", eventsourcing.FoldOptions[Event]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("balance", folded.State.Balance, "from the snapshot at", folded.SnapshotNr)
	// Output: balance 150 from the snapshot at 100
}

type (
	personEvent interface{ isPersonEvent() }
	join        struct {
		eventsourcing.Command[person, eventsourcing.Ack]
		Email string
	}
	// forget deletes the events of a person.
	forget    struct{ eventsourcing.Notice[person] }
	joined    struct{ Email string }
	forgotten struct{} // without personal data
	person    struct {
		Email     string
		Forgotten bool

		deleted chan<- uint64 `refold:"-"`
	}

	personContext[R any]  = eventsourcing.Context[person, personEvent, R]
	personDecision[R any] = eventsourcing.Decision[person, personEvent, R]
	personEffect          = eventsourcing.Effect[person, personEvent, eventsourcing.None]
)

func (joined) isPersonEvent()    {}
func (forgotten) isPersonEvent() {}

var errForgotten = eventsourcing.NewRefusal("person/forgotten", "the person is forgotten")

func (p *person) join(ctx *personContext[eventsourcing.Ack], c join) personDecision[eventsourcing.Ack] {
	if p.Forgotten {
		return ctx.Refuse(errForgotten)
	}
	return ctx.Persist(joined{c.Email}).Reply(eventsourcing.Ack{})
}

func (p *person) forget(ctx *personContext[eventsourcing.None], _ forget) personEffect {
	return ctx.Persist(forgotten{}).SaveSnapshot()
}

// snapshotSaved deletes the events and the snapshots that hold the data. The new snapshot has none. The
// event forgotten remains, so that read models that are behind remove the data too.
func (p *person) snapshotSaved(ctx *personContext[eventsourcing.None], s eventsourcing.SnapshotSaved) personEffect {
	if !p.Forgotten {
		return ctx.Effect
	}
	return ctx.DeleteEvents(eventsourcing.DeleteEvents{UpTo: s.Metadata.SequenceNr - 1}).DeleteSnapshots(snapshot.UpTo(s.Metadata.SequenceNr - 1))
}

func (p *person) eventsDeleted(ctx *personContext[eventsourcing.None], d eventsourcing.EventsDeleted) personEffect {
	p.deleted <- d.Request.UpTo
	return ctx.Effect
}

func (p *person) apply(event personEvent) {
	switch e := event.(type) {
	case joined:
		p.Email = e.Email
	case forgotten:
		p.Email, p.Forgotten = "", true
	}
}

// All events with the data of a person are deleted. The last event and a snapshot without personal data
// remain, so that the next recovery finds out that the person existed.
func ExampleDeleteEvents() {
	ctx := context.Background()
	db, err := inmem.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	deleted := make(chan uint64)
	typ := eventsourcing.Type[person, personEvent]{
		Name:     "person",
		New:      func(string) *person { return &person{deleted: deleted} },
		Commands: eventsourcing.Commands(eventsourcing.On("join", (*person).join), eventsourcing.OnNotice("forget", (*person).forget)),
		Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*person).snapshotSaved), eventsourcing.OnSignal((*person).eventsDeleted)),
		Apply:    (*person).apply,
		Events:   codec.Types(codec.Name[joined]("joined"), codec.Name[forgotten]("forgotten")),
	}
	rt, people := hostedOn(db, typ)
	fmt.Println(eventsourcing.Ask(ctx, people.Ref("7"), join{Email: "ann@example.com"}))
	fmt.Println(eventsourcing.Tell(ctx, people.Ref("7"), forget{}))
	fmt.Println("deleted up to", <-deleted)
	if err = rt.Close(ctx); err != nil {
		fmt.Println(err)
	}

	rt, people = hostedOn(db, typ)
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	_, err = eventsourcing.Ask(ctx, people.Ref("7"), join{Email: "ann@example.com"})
	fmt.Println(err)
	// Output:
	// {} <nil>
	// <nil>
	// deleted up to 1
	// the person is forgotten
}

// The status of an error has the codes of HTTP and gRPC, and states whether a retry is safe.
func ExampleStatusOf() {
	for _, err := range []error{
		nil,
		eventsourcing.NewRefusal("account/unknown", "the account does not exist").OfKind(eventsourcing.NotFound),
		fmt.Errorf("account 42: %w", eventsourcing.ErrStashFull),
		eventsourcing.ErrOutcomeUnknown,
		errors.New("a mistake of the program"),
	} {
		status := eventsourcing.StatusOf(err)
		fmt.Println(status.HTTP, status.Code, "not done:", eventsourcing.NotDone(err))
	}
	// Output:
	// 200  not done: false
	// 404 account/unknown not done: false
	// 429 refold/stash_full not done: true
	// 504 refold/outcome_unknown not done: false
	// 500 internal not done: false
}

// An entity leaves memory after it was idle. Its next command starts it again.
func ExampleHostOptions_passivateAfter() {
	ctx := context.Background()
	db, err := inmem.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)                                                                                                     //nolint:errcheck // nothing is in flight
	accounts, err := eventsourcing.HostWith(rt, accountType(), eventsourcing.HostOptions{PassivateAfter: time.Millisecond}) // 2 minutes by default
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 10}))
	for accounts.Presence("42") != eventsourcing.Absent {
		<-time.After(time.Millisecond)
	}
	fmt.Println(eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 10}))
	// Output:
	// 10 <nil>
	// 20 <nil>
}
