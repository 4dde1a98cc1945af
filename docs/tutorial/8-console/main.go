// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

// Command 8-console is the eighth step of the tutorial: an HTTP service for orders, with the console
// of Refold beside it.
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
	"time"

	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/docs/tutorial/order"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/store"
)

// endregion

func main() {
	listen := flag.String("http", "127.0.0.1:8080", "the address of the service")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: 8-console [-http ADDRESS] DIRECTORY")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, flag.Arg(0), *listen)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir, listen string) (err error) {
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s, err := open(db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	server := &http.Server{Addr: listen, Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(s.console.Close) // ends the streams of open pages
	fmt.Println("console:", s.console.LoginURL("http://"+listen))
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err = server.ListenAndServe(); errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// service consists of the orders and the console.
type service struct {
	rt      *es.Runtime
	orders  es.Entities[order.Order]
	agent   *console.Agent
	console *console.Console
}

func open(db store.DB) (s *service, err error) {
	s = new(service)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	meter := new(console.Meter)
	if s.rt, err = es.Open(es.Config{Store: db, Observer: meter.Observer()}); err != nil {
		return s, err
	}
	if s.orders, err = es.Host(s.rt, order.Type); err != nil {
		return s, err
	}
	s.agent, err = console.NewAgent(console.AgentConfig{
		Runtime: s.rt,
		Types:   []console.Type{console.TypeOf(order.Type)}, // so that the pages show states
		Meter:   meter,
	})
	if err != nil {
		return s, err
	}
	s.console, err = console.New(console.Options{Admin: s.agent, Prefix: "/console/"})
	return s, err
}

func (s *service) close() (err error) {
	if s.console != nil {
		s.console.Close()
	}
	if s.agent != nil {
		err = s.agent.Close()
	}
	if s.rt != nil {
		err = errors.Join(err, s.rt.Close(context.Background()))
	}
	return err
}

// handler serves the orders, and the console below its prefix.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/console/", s.console)
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		var add order.Add
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&add); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		total, err := es.Ask(r.Context(), s.orders.Ref(r.PathValue("id")), add)
		if err != nil {
			status := es.StatusOf(err)
			http.Error(w, status.Code, status.HTTP)
			return
		}
		_ = json.NewEncoder(w).Encode(total)
	})
	return mux
}
