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
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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
	access := nats.Access{URLs: c.NATS, TokenFile: c.TokenFile, CAFile: c.CA, AllowPlaintext: c.Plaintext}
	if len(access.URLs) == 0 {
		server, failed := embedded.Start(embedded.Config{})
		if failed != nil {
			return fmt.Errorf("serve: %w", failed)
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		access = server.Access()
	}
	open := &branches{app: app, whole: c.Nodes > 0, remote: len(c.NATS) > 0, hosts: c.Host, delay: c.DrainDelay}
	open.reopen = func(name string, seeds []string) (*branch, error) {
		return c.openBranch(app, name, seeds, access, s, r)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(app.ctx))
	open.page, open.stopPage = openPage(ctx, open.running, app.logger), stop
	defer func() { stop(); open.page.wait() }()
	if open.whole {
		open.page.branches = open
		operator, failed := nats.ConnectOperator(nats.OperatorConfig{Access: access, Cluster: c.Cluster, Name: "console"})
		if failed != nil {
			return fmt.Errorf("serve: %w", failed)
		}
		defer func() { stop(); open.page.wait(); err = errors.Join(err, operator.Close()) }() // the console ends first
		if err = open.page.mount(operator, listeners[0].Addr(), c.Host); err != nil {
			return err
		}
	}
	for i, name := range all {
		b, failed := open.reopen(name, seeds)
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
		cluster: c.Cluster, carrier: carrier, seeds: seeds, state: c.State, standbys: c.Standbys, members: c.members(), logger: app.logger,
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
	delay  time.Duration // --drain-delay
	page   *webPage
	// stopPage ends the work of the page, such as its streams to browsers.
	stopPage func()
	// reopen starts a branch with seeds that run.
	reopen func(name string, seeds []string) (*branch, error)
	// leaving is set when the program has been asked to end.
	leaving atomic.Bool

	work     sync.WaitGroup
	restarts sync.Mutex // held by a restart
	mu       sync.Mutex
	all      []*branch // the last one of each name
	servers  []*branchServer
	turn     int           // the branch that has received the last request of the page
	prepared chan struct{} // set by wait, closed when the cluster is prepared for the end of ctx
	errs     []error
}

// branchServer is the HTTP server at the address of a branch.
type branchServer struct {
	address string
	api     http.Handler // of the last branch
	stop    func()
	closed  chan struct{}
}

// start starts the HTTP server of a branch. s owns the branch even if start fails.
func (s *branches) start(b *branch, listener net.Listener) error {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.app.ctx))
	server := &branchServer{address: listener.Addr().String(), api: s.handler(b), stop: stop, closed: make(chan struct{})}
	s.mu.Lock()
	i := len(s.all)
	s.all, s.servers = append(s.all, b), append(s.servers, server)
	s.mu.Unlock()
	if err := s.drain(b, server); err != nil {
		stop()
		return fmt.Errorf("serve: %w", err)
	}
	s.work.Go(func() {
		defer close(server.closed)
		defer stop()
		if err := serve(ctx, listener, s.page.handler(s.front(i)), s.hosts...); err != nil {
			s.fail(fmt.Errorf("%s: %w", b.node.Self().Name, err))
			s.branch(i).node.Stop()
		}
	})
	return nil
}

// drain makes a branch that leaves complete the pending requests. If all branches are in this
// process, the server outlives a crash of the branch: the page stays, and the branch may start again.
func (s *branches) drain(b *branch, server *branchServer) error {
	_, err := b.node.OnShutdown(cluster.PhaseRequestsDone, "requests", func(ctx context.Context) error {
		if s.whole && s.app.ctx.Err() == nil {
			return nil
		}
		s.stopPage()
		server.stop() // pending requests complete
		select {
		case <-server.closed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return err
}

// front passes requests to the last branch with a name. While it does not run, the response is 503.
func (s *branches) front(i int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.leaving.Load() {
			w.Header().Set("Connection", "close")
			if r.URL.Path == "/ready" {
				http.Error(w, "the branch is about to leave", http.StatusServiceUnavailable)
				return
			}
		}
		s.mu.Lock()
		b, api := s.all[i], s.servers[i].api
		s.mu.Unlock()
		if s.whole && !b.runs() && r.Method != http.MethodDelete {
			http.Error(w, b.node.Self().Name+" does not run; ask another branch", http.StatusServiceUnavailable)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// handler returns the HTTP handler of a branch. If all branches are in this process, a request can
// stop one of them, to demonstrate the reaction of the others.
func (s *branches) handler(b *branch) http.Handler {
	if !s.whole {
		return b.api()
	}
	mux := http.NewServeMux()
	mux.Handle("/", b.api())
	mux.HandleFunc("DELETE /nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		done, err := s.crash(r.PathValue("name"))
		switch {
		case errors.Is(err, errNoBranch):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			printf(w, "%s\n", done)
		}
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

var (
	errNoBranch    = errors.New("no such branch")
	errLastBranch  = errors.New("no other branch is ready to take over its accounts")
	errNotRunning  = errors.New("the branch does not run")
	errStillRuns   = errors.New("the branch runs")
	errNotStarting = errors.New("the bank is starting or ending")
)

// crash ends a branch without leaving the cluster, so that the others must detect the failure.
func (s *branches) crash(name string) (done string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(name)
	switch {
	case i < 0:
		return "", errNoBranch
	case !s.all[i].runs():
		return "", fmt.Errorf("%s: %w", name, errNotRunning)
	case !slices.ContainsFunc(s.all, func(b *branch) bool { return b != s.all[i] && b.runs() && b.region.Ready() }):
		return "", fmt.Errorf("%s: %w", name, errLastBranch)
	}
	s.all[i].node.Stop()
	return name + " stops without leaving; the others remove it after some seconds", nil
}

// restart starts a branch that has ended. It joins the branches that run.
func (s *branches) restart(name string) (done string, err error) {
	s.restarts.Lock() // one at a time
	defer s.restarts.Unlock()
	s.mu.Lock()
	i, started := s.find(name), s.prepared != nil
	var seeds []string
	for _, b := range s.all {
		if b.runs() {
			seeds = append(seeds, b.node.Self().Name)
		}
	}
	s.mu.Unlock()
	switch {
	case i < 0:
		return "", errNoBranch
	case s.branch(i).runs():
		return "", fmt.Errorf("%s: %w", name, errStillRuns)
	case !started || s.app.ctx.Err() != nil || len(seeds) == 0:
		return "", fmt.Errorf("%s: %w", name, errNotStarting)
	}
	_ = s.branch(i).close() // wait returns the error
	b, err := s.reopen(name, seeds)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.all[i], s.servers[i].api = b, s.handler(b)
	s.mu.Unlock()
	err = s.drain(b, s.servers[i])
	s.work.Go(func() { s.watch(b) })
	return name + " joins the others, which hand some accounts over to it", err
}

func (s *branches) find(name string) int {
	return slices.IndexFunc(s.all, func(b *branch) bool { return b.node.Self().Name == name })
}

func (s *branches) branch(i int) *branch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[i]
}

// snapshot returns the branches and their addresses.
func (s *branches) snapshot() (all []*branch, addresses []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.servers {
		addresses = append(addresses, server.address)
	}
	return slices.Clone(s.all), addresses
}

// running returns the bank and the name of a branch that runs, of each in turn.
func (s *branches) running() (*bank, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.all {
		s.turn++
		if b := s.all[s.turn%len(s.all)]; b.runs() && b.region.Ready() {
			return b.bank, b.node.Self().Name
		}
	}
	return s.all[0].bank, s.all[0].node.Self().Name
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
	s.mu.Lock()
	s.prepared = make(chan struct{})
	all := slices.Clone(s.all)
	s.mu.Unlock()
	stop := context.AfterFunc(s.app.ctx, func() {
		defer close(s.prepared)
		s.linger()
		s.prepare()
		s.stopServers()
	})
	for _, b := range all {
		s.work.Go(func() { s.watch(b) })
	}
	s.work.Wait()
	stop()
	if err := errors.Join(s.errs...); err != nil {
		return err
	}
	printf(s.app.stdout, "stopped\n")
	return nil
}

// linger serves for a while before the branch leaves. Load balancers find that it is not ready, and
// clients open their next connection to another branch, so that no request is lost when the listener
// closes.
func (s *branches) linger() {
	s.leaving.Store(true)
	if s.delay > 0 {
		<-time.After(s.delay)
	}
}

// watch ends a branch when ctx has ended, unless its node has ended before.
func (s *branches) watch(b *branch) {
	select {
	case <-s.app.ctx.Done():
		<-s.prepared
	case <-b.node.Stopping():
		s.fail(s.ended(b))
		return
	}
	s.fail(b.shutdown(context.WithoutCancel(s.app.ctx)))
}

// stopServers ends all HTTP servers, after their pending requests.
func (s *branches) stopServers() {
	s.stopPage()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.servers {
		server.stop()
	}
}

// prepare announces the end of all branches to the cluster, so that no shard moves.
func (s *branches) prepare() {
	all, _ := s.snapshot()
	for _, b := range all {
		if s.whole && b.node.PrepareForShutdown(context.WithoutCancel(s.app.ctx)) == nil {
			return
		}
	}
}

// ended waits until a branch whose node stops has ended. It returns the reason, unless the branch
// has left the cluster normally. After the last branch, the servers end.
func (s *branches) ended(b *branch) error {
	err := b.close()
	if all, _ := s.snapshot(); !slices.ContainsFunc(all, (*branch).runs) {
		s.stopServers()
	}
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
	s.stopServers()
	s.work.Wait()
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
