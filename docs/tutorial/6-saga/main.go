// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

// Command 6-saga is the sixth step of the tutorial: orders that reserve units of a stock and charge
// a wallet, or do neither, also if the process is killed in the middle.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"

	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/leveldb"
)

// endregion

func main() {
	crash := flag.String("crash", "", "kill the process after this event, such as order|o3:2")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: 6-saga [-crash EVENT] DIRECTORY")
	}
	if err := run(context.Background(), flag.Arg(0), *crash); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir, crash string) (err error) {
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rt, err := es.Open(es.Config{Store: db, Observer: killer(crash)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	if _, err = es.Host(rt, stockType); err != nil {
		return err
	}
	if _, err = es.Host(rt, walletType); err != nil {
		return err
	}
	orders, err := es.Host(rt, orderType)
	if err != nil {
		return err
	}
	pending, err := orders.Wake(ctx)
	if err != nil {
		return err
	}
	fmt.Println("orders that continue:", pending)
	if err = placeAll(ctx, orders); err != nil {
		return err
	}
	return report(ctx, rt)
}

// placeAll places four orders. A second run repeats the commands, which changes nothing.
func placeAll(ctx context.Context, orders es.Entities[Order]) error {
	for _, o := range []struct {
		id    string
		place Place
	}{
		{"o1", Place{Customer: "ann", Product: "tea", Units: 2, Price: 60}},
		{"o2", Place{Customer: "ann", Product: "tea", Units: 2, Price: 30}}, // one unit is left
		{"o3", Place{Customer: "ann", Product: "tea", Units: 1, Price: 70}}, // 40 euros are left
		{"o4", Place{Customer: "ann", Product: "tea", Units: 1, Price: 40}},
	} {
		if _, err := es.Ask(ctx, orders.Ref(o.id), o.place); err != nil {
			return err
		}
		outcome, err := es.Ask(ctx, orders.Ref(o.id), Await{})
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", o.id, outcome)
	}
	return nil
}

func report(ctx context.Context, rt *es.Runtime) error {
	stock, err := es.Fold(ctx, rt, stockType, "tea", es.FoldOptions[StockEvent]{})
	if err != nil {
		return err
	}
	wallet, err := es.Fold(ctx, rt, walletType, "ann", es.FoldOptions[WalletEvent]{})
	if err != nil {
		return err
	}
	fmt.Printf("tea: %d units, ann: %d euros\n", stock.State.Units, wallet.State.Euros)
	return nil
}

// killer kills the process when an event is stored, before anything else follows from the event.
func killer(event string) es.Observer {
	return es.Observer{Durable: func(id string, nr uint64) {
		if fmt.Sprintf("%s:%d", id, nr) != event {
			return
		}
		if process, err := os.FindProcess(os.Getpid()); err == nil {
			_ = process.Kill()
			select {}
		}
	}}
}
