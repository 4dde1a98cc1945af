// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
)

// ErrNotReady says that no coordinator knows a region yet: nobody is reached through it.
var ErrNotReady = errors.New("sharding: no coordinator knows the region yet")

// HealthConfig says when a node is ready, as far as its regions are concerned.
type HealthConfig struct {
	// Types are the names of the entity types whose regions, or proxies, must be known to a coordinator. A type that was not started
	// is not ready. Defaults to those that are started on the node when it is asked.
	Types []string
	// GiveUpAfter is how long a node may not be ready for their sake, from the first time that it is asked as a member. It is ready
	// then: a rolling restart must not wait for a coordinator that only another node can have. Defaults to 10 s; below 0 is for ever. One
	// whose region is refused, since its settings are others, is never ready.
	GiveUpAfter time.Duration
}

// Health tells probes whether a node is alive, and ready together with its regions. It is safe for concurrent use.
type Health struct {
	node *cluster.Node
	cfg  HealthConfig
	mux  *http.ServeMux

	mu    sync.Mutex
	first time.Time       // that it was asked as a member
	known map[string]bool // to a coordinator, once
}

// NewHealth returns what a node's probes ask.
func NewHealth(node *cluster.Node, cfg HealthConfig) *Health {
	cfg.Types = slices.Clone(cfg.Types)
	cfg.GiveUpAfter = cmp.Or(cfg.GiveUpAfter, 10*time.Second)
	h := &Health{node: node, cfg: cfg, mux: http.NewServeMux(), known: map[string]bool{}}
	h.mux.HandleFunc("GET /live", probe(node.Live))
	h.mux.HandleFunc("GET /ready", probe(h.Ready))
	return h
}

// Ready returns nil if the node is ready and coordinators have known its regions; that one has known them once is enough. It does
// not block. The error is that of cluster.Node.Ready, or matches ErrNotReady, and
// ErrMismatch if that is why.
func (h *Health) Ready() error {
	if err := h.node.Ready(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first.IsZero() {
		h.first = time.Now()
	}
	missing, refused := h.missing()
	if refused != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, refused)
	}
	if len(missing) == 0 || h.cfg.GiveUpAfter > 0 && time.Since(h.first) >= h.cfg.GiveUpAfter {
		return nil
	}
	return fmt.Errorf("%w: %q on %v", ErrNotReady, missing, h.node.Self())
}

// missing returns the types that no coordinator knows, sorted, and why one of them is refused.
func (h *Health) missing() (missing []string, refused error) {
	b := routerOf(h.node)
	types := h.cfg.Types
	if len(types) == 0 {
		types = b.types()
	}
	for _, name := range types {
		if !h.known[name] {
			s := b.find(name)
			h.known[name] = s != nil && s.isReady()
			if s != nil && !h.known[name] {
				refused = errors.Join(refused, s.mismatchErr())
			}
		}
		if !h.known[name] {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing, refused
}

func (s *shell) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// ServeHTTP answers GET /live and GET /ready with 200, or 503 and the reason, as cluster.Node.Health does.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// probe answers with what check says.
func probe(check func() error) http.HandlerFunc {
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
