// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

// Command 5-evolution is the fifth step of the tutorial: a second release of the orders, which reads
// the events of the first one.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/leveldb"
)

// endregion

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: 5-evolution DIRECTORY")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string) (err error) {
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rt, err := es.Open(es.Config{Store: db})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	orders, err := es.Host(rt, orderType)
	if err != nil {
		return err
	}
	stored, err := es.Fold(ctx, rt, orderType, "42", es.FoldOptions[Event]{})
	if err != nil {
		return err
	}
	fmt.Printf("order 42 has %d units for %d cents %s\n", stored.State.Units, stored.State.Total, stored.State.Currency)
	total, err := es.Ask(ctx, orders.Ref("42"), Add{SKU: "milk", Units: 1, Price: 120, Currency: "EUR"})
	if err != nil {
		return err
	}
	fmt.Printf("the total of order 42 is %d cents\n", total)
	_, err = es.Ask(ctx, orders.Ref("42"), Add{SKU: "sugar", Units: 1, Price: 90, Currency: "USD"})
	fmt.Println("in another currency:", err)
	return nil
}
