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

func (c *serveCmd) runCluster(app *app) (err error) {
	all, seeds := []string{c.Name}, c.Join
	if c.Nodes > 0 {
		all = branchNames(c.Nodes)
		seeds = all[:1] // the other branches are in this process
	}
	listeners, err := c.listen(app, len(all))
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // the HTTP server closes the listener first
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
	access := nats.Access{URLs: c.NATS, TokenFile: c.TokenFile}
	if len(access.URLs) == 0 {
		server, failed := embedded.Start(embedded.Config{})
		if failed != nil {
			return fmt.Errorf("serve: %w", failed)
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		access = server.Access()
	}
	open := &branches{app: app, whole: c.Nodes > 0, remote: len(c.NATS) > 0, hosts: c.Host}
	for i, name := range all {
		b, failed := c.openBranch(app, name, seeds, access, s, r)
		if failed == nil {
			failed = open.start(b, listeners[i])
		}
		if failed != nil {
			return open.giveUp(failed)
		}
	}
	err = open.ready(app.ctx)
	switch {
	case app.ctx.Err() != nil: // interrupted during the start
	case err != nil:
		return open.giveUp(err)
	default:
		c.greet(app, all, listeners, access)
	}
	return open.wait()
}

// listen opens n listeners: on consecutive ports, or on any free ports if the port is 0.
func (c *serveCmd) listen(app *app, n int) (all []net.Listener, err error) {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return nil, err
	}
	first, err := strconv.Atoi(port)
	if err != nil && n > 1 {
		return nil, fmt.Errorf("--addr %q: several branches need a numeric port", c.Addr)
	}
	for i := range n {
		if n > 1 && first > 0 {
			port = strconv.Itoa(first + i)
		}
		l, err := listenAt(app, net.JoinHostPort(host, port))
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

func (c *serveCmd) openBranch(app *app, name string, seeds []string, access nats.Access, s store.DB, r rates.Rates) (*branch, error) {
	self, err := identity.New(name)
	if err != nil {
		return nil, usageError(fmt.Errorf("--name: %w", err))
	}
	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: c.Cluster, Self: self, Logger: app.logger})
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	cfg := branchConfig{
		cluster: c.Cluster, carrier: carrier, seeds: seeds, state: c.State, members: c.members(), logger: app.logger,
		// Branches that fail shortly one after the other do not stop the remaining branches.
		downing: downing.Settings{StableAfter: c.StableAfter, DownAllWhenUnstable: -1},
	}
	return openBranch(app.ctx, cfg, s, r)
}

func (c *serveCmd) greet(app *app, all []string, listeners []net.Listener, access nats.Access) {
	for i, name := range all {
		printf(app.stdout, "%s is open at http://%s\n", name, listeners[i].Addr())
	}
	greet(app.stdout, "http://"+listeners[0].Addr().String())
	printf(app.stdout, "\n")
	for _, subject := range []string{"cluster members", "shards"} {
		printf(app.stdout, "  go run ./cmd/refold %s --cluster %s --nats %s", subject, c.Cluster, access.URLs[0])
		if access.TokenFile != "" {
			printf(app.stdout, " --token-file %s", access.TokenFile)
		}
		printf(app.stdout, "\n")
	}
}

// branches are the branches in this process, each with its HTTP server.
type branches struct {
	app    *app
	whole  bool // the branches are the complete cluster
	remote bool // the NATS servers are remote
	hosts  []string

	running sync.WaitGroup
	mu      sync.Mutex
	all     []*branch
	errs    []error
}

// start starts the HTTP server of a branch. s owns the branch even if start fails.
func (s *branches) start(b *branch, listener net.Listener) error {
	s.mu.Lock()
	s.all = append(s.all, b)
	s.mu.Unlock()
	ctx, stop := context.WithCancel(context.WithoutCancel(s.app.ctx))
	closed := make(chan struct{})
	_, err := b.node.OnShutdown(cluster.PhaseRequestsDone, "requests", func(ctx context.Context) error {
		stop() // pending requests complete
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
	s.running.Go(func() {
		defer close(closed)
		defer stop()
		if err := serve(ctx, listener, s.handler(b), s.hosts...); err != nil {
			s.fail(fmt.Errorf("%s: %w", b.node.Self().Name, err))
			b.node.Stop()
		}
	})
	return nil
}

// handler returns the HTTP handler of a branch. If all branches are in this process, a request can
// stop one of them, to demonstrate the reaction of the others.
func (s *branches) handler(b *branch) http.Handler {
	if !s.whole {
		return b.api()
	}
	mux := http.NewServeMux()
	mux.Handle("/", b.api())
	mux.HandleFunc("DELETE /nodes/{name}", s.stop)
	return http.NewCrossOriginProtection().Handler(mux)
}

// stop ends a branch without leaving the cluster, so that the others must detect the failure.
func (s *branches) stop(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.all {
		if b.node.Self().Name != r.PathValue("name") {
			continue
		}
		b.node.Stop()
		printf(w, "%s stops without leaving; the others remove it after some seconds\n", b.node.Self().Name)
		return
	}
	http.Error(w, "no such branch", http.StatusNotFound)
}

// hurry is how long a branch waits for others before it prints the reason.
const hurry = 5 * time.Second

// ready waits until each branch can reach all accounts. If branches or servers run elsewhere, it
// prints what is missing.
func (s *branches) ready(ctx context.Context) error {
	for _, b := range s.all {
		for shown := ""; ; {
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
			if why := b.waitsFor(); s.remote && why != shown {
				shown = why
				printf(s.app.stderr, "%s waits for %s\n", b.node.Self().Name, why)
			}
		}
	}
	return nil
}

// giveUp ends all branches. It returns the errors that ended nodes, or err if there are none.
func (s *branches) giveUp(err error) error {
	closed := s.close()
	var why error
	for _, b := range s.all {
		why = errors.Join(why, b.failure())
	}
	if why != nil {
		err = why
	}
	return errors.Join(err, closed)
}

// wait waits until all branches have ended, because ctx has ended or because their nodes have.
func (s *branches) wait() error {
	prepared := make(chan struct{})
	stop := context.AfterFunc(s.app.ctx, func() {
		defer close(prepared)
		s.prepare()
	})
	for _, b := range s.all {
		s.running.Go(func() {
			select {
			case <-s.app.ctx.Done():
				<-prepared
			case <-b.node.Stopping():
				s.fail(s.ended(b))
				return
			}
			s.fail(b.shutdown(context.WithoutCancel(s.app.ctx)))
		})
	}
	s.running.Wait()
	stop()
	if err := errors.Join(s.errs...); err != nil {
		return err
	}
	printf(s.app.stdout, "stopped\n")
	return nil
}

// prepare announces the end of all branches to the cluster, so that no shard moves.
func (s *branches) prepare() {
	for _, b := range s.all {
		if s.whole && b.node.PrepareForShutdown(context.WithoutCancel(s.app.ctx)) == nil {
			return
		}
	}
}

// ended waits until a branch whose node stops has ended. It returns the reason, unless the branch
// has left the cluster normally.
func (s *branches) ended(b *branch) error {
	err := b.close()
	printf(s.app.stdout, "%s has ended: %v\n", b.node.Self().Name, b.node.Err())
	return errors.Join(b.failure(), err)
}

// close ends all branches. A branch that has joined others leaves, so that the others need not
// detect its end.
func (s *branches) close() (err error) {
	for _, b := range s.all {
		if s.whole {
			b.node.Stop()
		} else {
			_ = b.node.Shutdown(context.Background()) // its phases have time-outs; see failure for the error
		}
	}
	for _, b := range s.all {
		err = errors.Join(err, b.close())
	}
	s.running.Wait()
	return err
}

func (s *branches) fail(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}
