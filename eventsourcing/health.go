// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"net/http"

	"github.com/refold-io/refold/internal/probe"
)

// Live returns an error that matches ErrClosed if Close has ended, and nil otherwise. It does not
// block.
func (r *Runtime) Live() error {
	select {
	case <-r.ended:
		return ErrClosed
	default:
		return nil
	}
}

// Ready returns an error that matches ErrClosed if Close was called, and nil otherwise. It does not
// block. The runtime stays ready while its journal is unavailable: usually all processes share the
// database, and a process without commands would make no call that closes the circuit breaker again.
func (r *Runtime) Ready() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return ErrClosed
	}
	return nil
}

// OpenBreakers returns the number of journals whose circuit breaker is open, for monitoring. Until
// the journal responds again, commands that persist events fail with journal.ErrBreakerOpen.
func (r *Runtime) OpenBreakers() (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.storages {
		if s.broken.Load() {
			n++
		}
	}
	return n
}

// Health returns an HTTP handler for the probes of a process without a cluster: GET /live and GET
// /ready respond with status 200, or with 503 and the reason. The runtime is ready if Ready and all
// given checks return nil. The checks must not block. On a node of a cluster, use
// sharding.NewHealth or cluster.Node.Health.
func (r *Runtime) Health(ready ...func() error) http.Handler {
	return probe.Health(r.Live, append([]func() error{r.Ready}, ready...)...)
}

// AdminHandler returns an HTTP handler for the port of operators: health under /live and /ready,
// metrics under /metrics, and profiles for go tool pprof and go tool trace under /debug/pprof/. A nil
// handler is omitted. Health is that of a runtime, a node or package sharding; metrics is that of the
// program's metrics library.
//
// The handler has no authentication. A profile shows the inside of the process and costs time, so
// serve the handler on 127.0.0.1 or on a network of operators, and never on the port of the API.
// Nothing is added to http.DefaultServeMux.
func AdminHandler(health, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	if health != nil {
		mux.Handle("GET /live", health)
		mux.Handle("GET /ready", health)
	}
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.Handle("GET /debug/pprof/", probe.Profiles())
	return mux
}
