// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/refold-io/refold/console"
)

// drainPatience bounds how long a stopping server waits for pending requests.
const drainPatience = 10 * time.Second

func (c *serveCmd) Run(app *app) (err error) {
	if err = c.check(app.flags.Journal, os.Getenv); err != nil {
		return usageError(err)
	}
	if c.clustered() {
		return c.runCluster(app)
	}
	listener, err := listenAt(app, c.Addr)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer listener.Close() //nolint:errcheck // the server closes it first
	m, err := newMetrics()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var meter console.Meter
	b, done, err := app.open(nil, meter.Observer(), m.Observer())
	if err != nil {
		return err
	}
	defer m.Watch(b.runtime)()
	defer func() { err = errors.Join(err, done()) }()
	agent, err := b.agent(&meter, nil, app.logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.Close()) }()
	ctx, stop := context.WithCancel(app.ctx)
	page := openPage(ctx, func() (*bank, string) { return b, "" }, app.logger)
	defer func() { stop(); page.wait() }()
	if err = page.mount(agent, listener.Addr(), c.Host); err != nil {
		return err
	}
	greet(app.stdout, "http://"+listener.Addr().String())
	if err := serve(app.ctx, listener, page.handler(m.serve(newAPI(b, app.logger))), c.Host...); err != nil {
		return err
	}
	printf(app.stdout, "stopped\n")
	return nil
}

// listenAt listens at an address. If the address is in use, the error names the flag to change it.
// If other machines can reach the address, listenAt prints a warning.
func listenAt(app *app, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(app.ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: choose another address with --addr HOST:PORT", err)
	}
	if err != nil {
		return nil, err
	}
	if !local(l.Addr()) {
		printf(app.stderr, "bank: warning: other machines can reach %v, and the API has no users and no passwords\n", l.Addr())
	}
	return l, nil
}

// local reports whether only the machine itself can reach an address.
func local(addr net.Addr) bool {
	a, ok := addr.(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// checkHost refuses requests for a host other than an IP address, localhost and the given names.
// Otherwise a web page could resolve its own name to this server and read the accounts (DNS
// rebinding).
func checkHost(names []string, next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		_, err := netip.ParseAddr(host)
		if err != nil && !strings.EqualFold(host, "localhost") && !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, name) }) {
			http.Error(w, "the bank does not serve this host name; bank serve --host NAME adds it", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// serve answers requests until ctx ends, and then completes the pending ones. The names are further
// hosts for checkHost.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, names ...string) error {
	server := &http.Server{
		Handler:           checkHost(names, handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainPatience)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(drain), server.Close())
	})
	err := server.Serve(listener)
	if stop() { // ctx has not ended
		return fmt.Errorf("serve: %w", err)
	}
	return <-stopped
}

// greet prints the address of the bank and example calls.
func greet(w io.Writer, base string) {
	printf(w, `The bank is open at %[1]s

  curl -X POST %[1]s/accounts -H 'Content-Type: application/json' -d '{"id": "alice", "currency": "TWD", "owner": "Alice Chen"}'
  curl -X POST %[1]s/accounts/alice/deposits -H 'Content-Type: application/json' -d '{"amount": "100.00", "currency": "USD", "request_id": "r1"}'
  curl %[1]s/accounts/alice

All calls: %[1]s/openapi.json
`, base)
}

// probeTimeout bounds how long a probe waits for the response.
const probeTimeout = 5 * time.Second

// Run returns an error with the reason unless the response has status 200.
func (c *probeCmd) Run(app *app) (err error) {
	ctx, cancel := context.WithTimeout(app.ctx, probeTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return usageError(err)
	}
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	why, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("probe: %s: %s", response.Status, strings.TrimSpace(string(why)))
	}
	return nil
}
