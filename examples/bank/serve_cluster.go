// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/store"
)

// runCluster serves as one or more branches of a cluster.
func (c *serveCmd) runCluster(app *app) (err error) {
	all, seeds := []string{c.Name}, c.Join
	if c.Nodes > 0 {
		all = branchNames(c.Nodes)
		seeds = all[:1] // the others are in this process, too
	}
	listeners, err := c.listen(app.ctx, len(all))
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // its server closes it first
		}
	}()
	r, stopRates, err := app.rates()
	if err != nil {
		return err
	}
	defer stopRates()
	s, err := openStore(app.ctx, app.flags.Journal, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	access := c.access()
	if len(access.URLs) == 0 {
		server, failed := embedded.Start(embedded.Config{})
		if failed != nil {
			return fmt.Errorf("serve: %w", failed)
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		access = server.Access()
	}
	offices := &offices{app: app, whole: c.Nodes > 0, remote: len(c.NATS) > 0}
	for i, name := range all {
		b, failed := c.openBranch(app, name, seeds, access, s, r)
		if failed == nil {
			failed = offices.open(b, listeners[i])
		}
		if failed != nil {
			return offices.giveUp(failed)
		}
	}
	err = offices.ready(app.ctx)
	switch {
	case app.ctx.Err() != nil: // so soon
	case err != nil:
		return offices.giveUp(err)
	default:
		c.greet(app, all, listeners, access)
	}
	return offices.wait()
}

func (f *clusterFlags) access() nats.Access { return nats.Access{URLs: f.NATS, TokenFile: f.TokenFile} }

// settings returns the downing settings. The failure of two branches in a row does not stop the others.
func (f *clusterFlags) settings() downing.Settings {
	return downing.Settings{StableAfter: f.StableAfter, DownAllWhenUnstable: -1}
}

// listen makes the listeners of some branches: on one port and those that follow, or any ones if it is 0.
func (c *serveCmd) listen(ctx context.Context, n int) (all []net.Listener, err error) {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return nil, err
	}
	first, err := strconv.Atoi(port)
	if err != nil && n > 1 {
		return nil, fmt.Errorf("--addr %q: the port of several branches has to be a number", c.Addr)
	}
	for i := range n {
		if n > 1 && first > 0 {
			port = strconv.Itoa(first + i)
		}
		l, err := listenAt(ctx, net.JoinHostPort(host, port))
		if err != nil {
			for _, l := range all {
				_ = l.Close()
			}
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// openBranch connects and opens a branch.
func (c *serveCmd) openBranch(app *app, name string, seeds []string, access nats.Access, s store.DB, r rates.Rates) (*branch, error) {
	self, err := identity.New(name)
	if err != nil {
		return nil, usageError{fmt.Errorf("--name: %w", err)}
	}
	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: c.Cluster, Self: self, Logger: app.logger})
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	cfg := branchConfig{
		cluster: c.Cluster, carrier: carrier, seeds: seeds, state: c.State, members: c.members(), downing: c.settings(), logger: app.logger,
	}
	return openBranch(app.ctx, cfg, s, r)
}

// greet prints where the branches are, once all of them are there.
func (c *serveCmd) greet(app *app, all []string, listeners []net.Listener, access nats.Access) {
	for i, name := range all {
		printf(app.stdout, "%s is open at http://%s\n", name, listeners[i].Addr())
	}
	greet(app.stdout, "http://"+listeners[0].Addr().String())
	printf(app.stdout, "\n")
	for _, what := range []string{"cluster members", "shards"} {
		printf(app.stdout, "  go run ./cmd/refold %s --cluster %s --nats %s", what, c.Cluster, access.URLs[0])
		if access.TokenFile != "" {
			printf(app.stdout, " --token-file %s", access.TokenFile)
		}
		printf(app.stdout, "\n")
	}
}
