// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

// Command 1-order is the first step of the tutorial: it adds two units to an order in a directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/refold-io/refold/docs/tutorial/order"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/leveldb"
)

// endregion

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: 1-order DIRECTORY")
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
	orders, err := es.Host(rt, order.Type)
	if err != nil {
		return err
	}
	total, err := es.Ask(ctx, orders.Ref("42"), order.Add{Product: "tea", Units: 2, Price: 350})
	if err != nil {
		return err
	}
	fmt.Printf("the total of order 42 is %d cents\n", total)
	return nil
}
