// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command order is the example of a process manager (saga): orders that take money from a wallet
// and units from a stock, or neither. docs/sagas.md describes the recipe.
//
//	go run ./examples/order
//
// The command places three orders in a new embedded database, closes the runtime while the last
// one is pending, and opens it again. Start reading at order.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/store"
)

func main() {
	dir, err := os.MkdirTemp("", "order-")
	if err == nil {
		err = errors.Join(run(context.Background(), dir, os.Stdout), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "order:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, w io.Writer) (err error) {
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s, err := open(ctx, db)
	if err != nil {
		return err
	}
	_, err = es.Ask(ctx, s.wallets.Ref("ann"), Add[money]{Amount: 100})
	if err == nil {
		_, err = es.Ask(ctx, s.stocks.Ref("tea"), Add[units]{Amount: 3})
	}
	orders := []struct {
		id string
		Place
	}{
		{"o1", Place{Customer: "ann", Product: "tea", Price: 60, Quantity: 2}},
		{"o2", Place{Customer: "ann", Product: "tea", Price: 30, Quantity: 2}}, // one unit is left
		{"o3", Place{Customer: "ann", Product: "tea", Price: 40, Quantity: 1}},
	}
	for _, o := range orders {
		if err == nil {
			_, err = es.Ask(ctx, s.orders.Ref(o.id), o.Place)
		}
		if err == nil && o.id != "o3" {
			err = s.await(ctx, w, o.id)
		}
	}
	s.crash() //nolint:contextcheck // a crash waits for nothing
	if err != nil {
		return err
	}
	if s, err = open(ctx, db); err != nil { // wakes o3
		return err
	}
	return errors.Join(s.await(ctx, w, "o3"), s.rt.Close(ctx))
}

type shop struct {
	rt      *es.Runtime
	orders  es.Entities[Order]
	wallets es.Entities[Partner[money]]
	stocks  es.Entities[Partner[units]]
}

// open starts the entities, and continues the orders that have not ended.
func open(ctx context.Context, db store.DB) (s shop, err error) {
	if s.rt, err = es.Open(es.Config{Store: db}); err != nil { //nolint:contextcheck // the runtime outlives the call
		return s, err
	}
	defer func() { //nolint:contextcheck // a crash waits for nothing
		if err != nil {
			s.crash()
		}
	}()
	if s.wallets, err = es.Host(s.rt, partnerType[money]("wallet")); err != nil {
		return s, err
	}
	if s.stocks, err = es.Host(s.rt, partnerType[units]("stock")); err != nil {
		return s, err
	}
	if s.orders, err = es.Host(s.rt, OrderType); err != nil {
		return s, err
	}
	_, err = s.orders.Wake(ctx)
	return s, err
}

// crash closes the runtime without waiting for the pending orders.
func (s *shop) crash() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.rt.Close(ctx)
}

func (s *shop) await(ctx context.Context, w io.Writer, id string) error {
	outcome, err := es.Ask(ctx, s.orders.Ref(id), Await{})
	if err == nil {
		_, err = fmt.Fprintf(w, "%s: %s\n", id, outcome)
	}
	return err
}
