// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// stuckAfter is after how long a loop that does not turn is reported.
const stuckAfter = 30 * time.Second

var errStuck = errors.New("cluster: the node does not react")

// Live returns nil unless the process should be started again: because the node has ended, which includes that it was downed, or does
// not react. It does not block.
func (n *Node) Live() error {
	select {
	case <-n.done:
		return n.err
	default:
	}
	s := n.hub.current()
	idle := n.now() - time.Duration(n.beat.Load())
	if !s.Stopped && idle > stuckAfter {
		return fmt.Errorf("%w for %v", errStuck, idle.Truncate(time.Second))
	}
	return nil
}

// Ready returns nil if the node can work: it is Up or WeaklyUp, connected, and not shutting down. It does not block.
func (n *Node) Ready() error {
	s := n.hub.current()
	select {
	case <-n.done:
		return n.err
	default:
	}
	select {
	case <-n.stopped:
		return ErrShuttingDown
	default:
	}
	switch status := s.Status(n.self); {
	case s.Stopped:
		return s.Err
	case !s.Joined:
		return fmt.Errorf("%w yet: %v", ErrNotMember, n.self)
	case !s.Connected:
		return fmt.Errorf("%w: %v does not hear itself", ErrDisconnected, n.self)
	case s.Suspended:
		return fmt.Errorf("%w: %v hosts nothing until it is known who goes on: some members can't be reached, or have not said that it still is one", ErrDisconnected, n.self)
	case status != Up && status != WeaklyUp && status != PreparingForShutdown && status != ReadyForShutdown:
		return fmt.Errorf("cluster: %v is %v", n.self, status)
	}
	return nil
}

// Health returns a handler for probes: GET /live and GET /ready answer 200, or 503 with the reason.
func (n *Node) Health() http.Handler {
	probe := func(check func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = fmt.Fprintln(w, err)
				return
			}
			_, _ = fmt.Fprintln(w, "ok")
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", probe(n.Live))
	mux.HandleFunc("GET /ready", probe(n.Ready))
	return mux
}
