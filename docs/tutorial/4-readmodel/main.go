// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

// Command 4-readmodel is the fourth step of the tutorial: a table of the sold products, which follows
// the events of all orders. The table is in PostgreSQL or in memory, and HTTP serves it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/docs/tutorial/order"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/store"
)

// endregion

func main() {
	listen := flag.String("http", "", "serve orders and sales at this address until an interrupt")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: 4-readmodel [-http ADDRESS] DIRECTORY or postgres://...")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, flag.Arg(0), *listen)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address, listen string) (err error) {
	s, err := open(ctx, address)
	if err != nil {
		return errors.Join(err, s.close())
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if listen != "" {
		return s.serve(ctx, listen)
	}
	return s.sell(ctx)
}

// shop consists of the orders, and of the read model in the same database.
type shop struct {
	db     store.DB
	pool   *pgxpool.Pool // nil without PostgreSQL
	rt     *es.Runtime
	orders es.Entities[order.Order]
	sales  sales
}

// open opens the database, the read model and the orders. After an error, close the shop as well.
func open(ctx context.Context, address string) (s *shop, err error) {
	s = new(shop)
	if strings.HasPrefix(address, "postgres://") {
		if s.db, err = postgres.Open(ctx, address, postgres.Config{}); err != nil {
			return s, err
		}
		if s.pool, err = pgxpool.New(ctx, address); err != nil {
			return s, err
		}
		s.sales, err = salesInPostgres(ctx, s.db.Journal(), s.pool)
	} else {
		if s.db, err = leveldb.Open(address, leveldb.Config{}); err != nil {
			return s, err
		}
		s.sales, err = salesInMemory(s.db.Journal())
	}
	if err != nil {
		return s, err
	}
	if s.rt, err = es.Open(es.Config{Store: s.db}); err != nil {
		return s, err
	}
	s.orders, err = es.Host(s.rt, order.Type)
	return s, err
}

func (s *shop) close() (err error) {
	if s.rt != nil {
		err = s.rt.Close(context.Background())
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

// sell adds units to three orders, waits until the read model has all events, and prints it.
func (s *shop) sell(ctx context.Context) error {
	for id, add := range map[string]order.Add{
		"42": {Product: "tea", Units: 2, Price: 350},
		"43": {Product: "tea", Units: 1, Price: 350},
		"44": {Product: "milk", Units: 1, Price: 120},
	} {
		if _, err := es.Ask(ctx, s.orders.Ref(id), add); err != nil {
			return err
		}
	}
	if err := s.sales.CatchUp(ctx); err != nil {
		return err
	}
	rows, err := s.sales.list(ctx)
	for _, row := range rows {
		fmt.Printf("%-5s %d units, %d cents\n", row.Product, row.Units, row.Revenue)
	}
	return err
}

// handler serves the orders and the read model.
func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		var add order.Add
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&add); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		total, err := es.Ask(r.Context(), s.orders.Ref(r.PathValue("id")), add)
		reply(w, total, err)
	})
	mux.HandleFunc("GET /sales", func(w http.ResponseWriter, r *http.Request) {
		rows, err := s.sales.list(r.Context())
		reply(w, rows, err)
	})
	return mux
}

// reply sends a value as JSON, or an error with its status. The text of a refusal is for the client.
// Another error may name internal details, so the client receives only its code.
func reply(w http.ResponseWriter, value any, err error) {
	if err != nil {
		status := es.StatusOf(err)
		text := status.Code
		if refusal, ok := errors.AsType[*es.Refusal](err); ok {
			text = refusal.Error()
		}
		http.Error(w, text, status.HTTP)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// serve runs the projection and the server until ctx ends.
func (s *shop) serve(ctx context.Context, listen string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	server := &http.Server{Addr: listen, Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	projected := make(chan error, 1)
	go func() {
		projected <- s.sales.Run(ctx)
		_ = server.Shutdown(context.WithoutCancel(ctx))
	}()
	err := server.ListenAndServe()
	end()
	if stopped := <-projected; !errors.Is(stopped, context.Canceled) {
		return stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
