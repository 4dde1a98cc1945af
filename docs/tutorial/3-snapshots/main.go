// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

// Command 3-snapshots is the third step of the tutorial: it saves snapshots of two orders, and
// deletes old events of one of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/refold-io/refold/docs/tutorial/order"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// endregion

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: 3-snapshots DIRECTORY")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// withSnapshots returns the type of the orders with a snapshot after every tenth event.
func withSnapshots(deleteEvents bool) es.Type[order.Order, order.Event] {
	typ := order.Type
	typ.Snapshots = es.Snapshots[order.Order, order.Event]{Every: 10, Keep: 2, DeleteEvents: deleteEvents}
	return typ
}

func run(ctx context.Context, dir string) (err error) {
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, units := range []int{10, 10, 10, 5} {
		if err := fill(ctx, db, withSnapshots(false), "keeps-events", units); err != nil {
			return err
		}
		if err := fill(ctx, db, withSnapshots(true), "deletes-events", units); err != nil {
			return err
		}
	}
	if err := show(ctx, db, "keeps-events"); err != nil {
		return err
	}
	return show(ctx, db, "deletes-events")
}

// fill adds units to an order, each with a command of its own. The end of the runtime waits for
// the snapshot, so that it is saved before the next snapshot is due.
func fill(ctx context.Context, db store.DB, typ es.Type[order.Order, order.Event], id string, units int) (err error) {
	rt, err := es.Open(es.Config{Store: db})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	orders, err := es.Host(rt, typ)
	if err != nil {
		return err
	}
	for range units {
		if _, err := es.Ask(ctx, orders.Ref(id), order.Add{Product: "tea", Units: 1, Price: 350}); err != nil {
			return err
		}
	}
	return nil
}

// show computes the state of an order, as its next start would, and lists the stored data.
func show(ctx context.Context, db store.DB, id string) (err error) {
	rt, err := es.Open(es.Config{Store: db})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	now, err := es.Fold(ctx, rt, withSnapshots(false), id, es.FoldOptions[order.Event]{})
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d units, from the snapshot after event %d and %d more events\n", id, now.State.Units, now.SnapshotNr, now.Records)
	key := journal.JoinID("order", id)
	for saved, err := range db.Snapshots().List(ctx, key, snapshot.Criteria{}) {
		if err != nil {
			return err
		}
		fmt.Println("  snapshot after event", saved.SequenceNr)
	}
	for event, err := range db.Journal().Replay(ctx, key, 1, journal.MaxSequenceNr) {
		if err != nil {
			return err
		}
		fmt.Println("  first stored event", event.SequenceNr)
		break
	}
	return nil
}
