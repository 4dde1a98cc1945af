// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
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

// offices are the branches that are in this process, each with its counter: the API.
type offices struct {
	app    *app
	whole  bool // they are the whole cluster
	remote bool // the NATS servers are elsewhere

	running sync.WaitGroup
	mu      sync.Mutex
	all     []*branch
	errs    []error
}

// open opens the counter of a branch. The offices have it from now on, also if it fails.
func (o *offices) open(b *branch, listener net.Listener) error {
	o.mu.Lock()
	o.all = append(o.all, b)
	o.mu.Unlock()
	ctx, stop := context.WithCancel(context.WithoutCancel(o.app.ctx))
	closed := make(chan struct{})
	_, err := b.node.OnShutdown(cluster.PhaseRequestsDone, "requests", func(ctx context.Context) error {
		stop() // requests in hand are answered
		select {
		case <-closed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		stop()
		return fmt.Errorf("serve: %w", err)
	}
	o.running.Go(func() {
		defer close(closed)
		defer stop()
		if err := serve(ctx, listener, o.counter(b)); err != nil {
			o.fail(fmt.Errorf("%s: %w", b.node.Self().Name, err))
			b.node.Stop()
		}
	})
	return nil
}

// counter is the API of a branch. Where all of them are in this process, one can be stopped to see what the others make of it.
func (o *offices) counter(b *branch) http.Handler {
	if !o.whole {
		return b.api()
	}
	mux := http.NewServeMux()
	mux.Handle("/", b.api())
	mux.HandleFunc("DELETE /nodes/{name}", o.stop)
	return http.NewCrossOriginProtection().Handler(mux)
}

// stop ends a branch without letting it leave: the others have to find out.
func (o *offices) stop(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.all {
		if b.node.Self().Name != r.PathValue("name") {
			continue
		}
		b.node.Stop()
		printf(w, "%s stops without leaving; the others give it up when they have not heard of it for some seconds\n", b.node.Self().Name)
		return
	}
	http.Error(w, "there is no such branch", http.StatusNotFound)
}

// hurry is how long a branch waits for others without a word.
const hurry = 5 * time.Second

// ready waits until each branch reaches all accounts. It says what it waits for, if that is not in this process.
func (o *offices) ready(ctx context.Context) error {
	for _, b := range o.all {
		for said := ""; ; {
			soon, cancel := context.WithTimeout(ctx, hurry)
			err := b.region.AwaitReady(soon)
			late := soon.Err() != nil && ctx.Err() == nil
			cancel()
			if err == nil {
				break
			}
			if !late {
				return fmt.Errorf("serve: %w", err)
			}
			if why := b.waitsFor(); o.remote && why != said {
				said = why
				printf(o.app.stderr, "%s waits for %s\n", b.node.Self().Name, why)
			}
		}
	}
	return nil
}

// giveUp ends all branches because something has failed. If a node has ended by itself, that is why.
func (o *offices) giveUp(err error) error {
	closed := o.close()
	var why error
	for _, b := range o.all {
		if b.gaveUp() {
			why = errors.Join(why, fmt.Errorf("%s: %w", b.node.Self().Name, b.node.Err()))
		}
	}
	if why != nil {
		err = why
	}
	return errors.Join(err, closed)
}

// wait returns when all branches have ended: because the program is to end, or each for a reason of its own.
func (o *offices) wait() error {
	prepared := make(chan struct{})
	stop := context.AfterFunc(o.app.ctx, func() {
		defer close(prepared)
		o.prepare()
	})
	for _, b := range o.all {
		o.running.Go(func() {
			select {
			case <-o.app.ctx.Done():
				<-prepared
			case <-b.node.Stopping():
				o.fail(o.ended(b))
				return
			}
			o.fail(b.shutdown(context.WithoutCancel(o.app.ctx)))
		})
	}
	o.running.Wait()
	stop()
	if err := errors.Join(o.errs...); err != nil {
		return err
	}
	printf(o.app.stdout, "stopped\n")
	return nil
}

// prepare tells all branches that all of them are going to end, if it is so: nothing needs to move then.
func (o *offices) prepare() {
	for _, b := range o.all {
		if o.whole && b.node.PrepareForShutdown(context.WithoutCancel(o.app.ctx)) == nil {
			return
		}
	}
}

// ended waits for a branch that ends by itself, and returns why unless it has just left.
func (o *offices) ended(b *branch) error {
	err := b.close()
	why := b.node.Err()
	printf(o.app.stdout, "%s has ended: %v\n", b.node.Self().Name, why)
	if b.gaveUp() {
		err = errors.Join(fmt.Errorf("%s: %w", b.node.Self().Name, why), err)
	}
	return err
}

// close ends all branches at once.
func (o *offices) close() (err error) {
	for _, b := range o.all {
		b.node.Stop()
	}
	for _, b := range o.all {
		err = errors.Join(err, b.close())
	}
	o.running.Wait()
	return err
}

func (o *offices) fail(err error) {
	if err == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}
