// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// greet is the instance of a singleton, which runs on one node of the cluster at a time.
func greet(ctx context.Context, inbox *cluster.Inbox) error {
	for question := range inbox.All(ctx) { // ends when the instance has to move to another node
		if err := question.Reply(fmt.Appendf(nil, "Hello, %s!", question.Payload)); err != nil {
			slog.WarnContext(ctx, "can't answer", slog.Any("error", err))
		}
	}
	return nil
}

// run is a complete program: a node of a cluster over NATS. In this example it ends when the work
// is done.
func run(work func(context.Context, *cluster.Proxy) error) (err error) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

	// The server is part of the process, for development. For a cluster of several machines, Access
	// has the URLs of the servers and a file with the credentials of the node.
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	self, err := identity.New("greeter-0") // a name that survives restarts, such as that of a pod
	if err != nil {
		return err
	}
	carrier, err := nats.Connect(nats.Config{Access: server.Access(), Cluster: "greeters", Self: self, Logger: log})
	if err != nil {
		return err
	}
	node, err := cluster.Start(cluster.Config{
		Cluster: "greeters",
		Carrier: carrier, // the node closes it
		Seeds:   []string{"greeter-0"},
		Logger:  log,
	})
	if err != nil {
		return err
	}
	// If anything fails from here on, the node leaves before its server is closed.
	defer func() { err = errors.Join(err, node.Shutdown(context.WithoutCancel(ctx))) }()

	if err = probes(ctx, node, "127.0.0.1:0", log); err != nil {
		return err
	}
	if err = node.Singleton(ctx, cluster.Singleton{Name: "greeter", Run: greet}); err != nil {
		return err
	}
	greeter, err := node.Proxy(ctx, cluster.ProxyConfig{Singleton: "greeter"})
	if err != nil {
		return err
	}
	if err = work(ctx, greeter); err != nil {
		return err
	}
	// A program that runs until it receives a signal calls ShutdownOnSignal here.
	end()
	return node.ShutdownOnSignal(ctx) // SIGTERM: the node leaves, hands over its singletons, and ends
}

// probes answers GET /live and GET /ready until the node has left.
func probes(ctx context.Context, node *cluster.Node, address string, log *slog.Logger) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: node.Health(), ReadHeaderTimeout: 5 * time.Second}
	if _, err = node.OnShutdown(cluster.PhaseTerminate, "probes", server.Shutdown); err != nil {
		return errors.Join(err, listener.Close())
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.ErrorContext(ctx, "the probe server has failed", slog.Any("error", err))
		}
	}()
	return nil
}

// A complete program that runs a node of a cluster.
func Example_node() {
	err := run(func(ctx context.Context, greeter *cluster.Proxy) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		answer, err := greeter.Ask(ctx, []byte("Ada")) // waits until an instance runs
		fmt.Println(string(answer))
		return err
	})
	if err != nil {
		fmt.Println(err) // a program would exit with a status other than 0
	}
	// Output: Hello, Ada!
}
