// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

type consoleCommand struct {
	clusterFlags

	Journal      string   `help:"Show a journal instead of a cluster. LevelDB: only while no other process has it open. Without --cluster, it defaults to REFOLD_JOURNAL." placeholder:"ADDRESS"`
	Listen       string   `help:"Address to listen on, HOST:PORT. Another address than that of the machine itself needs --tls-cert, --tls-key and --passwords." default:"127.0.0.1:8090"`
	Host         []string `help:"Host names under which browsers may reach the console, in addition to those of the machine itself." placeholder:"NAME"`
	Passwords    string   `help:"File with users: see htpasswd -B. A user may act if the line ends with :act. Without the flag, the command prints an address with a one-time token." type:"path" placeholder:"FILE"`
	TLSCert      string   `name:"tls-cert" help:"File with the certificate of the console." type:"path" placeholder:"FILE"`
	TLSKey       string   `name:"tls-key" help:"File with the key of the certificate." type:"path" placeholder:"FILE"`
	AllowActions bool     `help:"Permit actions, such as draining a node."`
	TraceURL     string   `name:"trace-url" help:"Address of a trace in a tracing system, with {trace} in the place of its ID." placeholder:"URL"`
}

func (c *consoleCommand) Help() string {
	return `Serves pages about the nodes, shards, entities and projections of a cluster until Ctrl-C. The nodes answer as they
answer the other commands; entities and projections need an agent in the program (console.NewAgent). With --journal, the
command shows the events of a database, without the Go types of its entities.`
}

func (c *consoleCommand) Validate() error {
	if err := c.clusterFlags.Validate(); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key need each other")
	}
	ip := net.ParseIP(host)
	if local := host == "localhost" || ip != nil && ip.IsLoopback(); !local && (c.TLSCert == "" || c.Passwords == "") {
		return fmt.Errorf("--listen %s is reachable from other machines: it needs --tls-cert, --tls-key and --passwords", c.Listen)
	}
	return nil
}

func (c *consoleCommand) Run(ctx context.Context, env *operator.Env) (err error) {
	admin, err := c.admin(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	pages, err := console.New(console.Options{
		Admin: admin, Hosts: c.Host, AllowActions: c.AllowActions, PasswordFile: c.Passwords, TraceURL: c.TraceURL,
		Logger: slog.New(slog.NewTextHandler(env.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer pages.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	server.RegisterOnShutdown(pages.Close)
	origin := "http://" + listener.Addr().String()
	if c.TLSCert != "" {
		certificate, failed := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if failed != nil {
			return errors.Join(failed, listener.Close())
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
		origin = "https://" + listener.Addr().String()
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	address := origin + "/"
	if c.Passwords == "" {
		address = pages.LoginURL(origin)
	}
	if _, err = fmt.Fprintln(env.Stdout, address); err != nil {
		return errors.Join(err, server.Close())
	}
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return cmp.Or(server.Shutdown(limited), server.Close())
}

// admin returns the client of the nodes, or of an agent for a journal.
func (c *consoleCommand) admin(ctx context.Context, env *operator.Env) (transport.AdminClient, error) {
	journal := c.Journal
	if journal == "" && c.Cluster == "" {
		journal = os.Getenv("REFOLD_JOURNAL")
	}
	if journal == "" {
		if err := c.named(); err != nil {
			return nil, fmt.Errorf("%w; or use --journal", err)
		}
		op, err := nats.ConnectOperator(nats.OperatorConfig{Cluster: c.Cluster, Name: c.Operator, Access: c.access()})
		if err != nil {
			return nil, hint(err)
		}
		return op, nil
	}
	source, err := env.Open(ctx, journal)
	if err != nil {
		return nil, err
	}
	agent, err := console.NewAgent(console.AgentConfig{Store: store.Of(source.Journal, source.Snapshots), AllowActions: c.AllowActions}) //nolint:contextcheck // the agent outlives the call
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return &journalAgent{agent, source}, nil
}

// journalAgent closes the journal after the agent.
type journalAgent struct {
	*console.Agent

	source *operator.Source
}

func (a *journalAgent) Close() error { return errors.Join(a.Agent.Close(), a.source.Close()) }
