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

// ErrNotReady reports that a region is not registered with a coordinator yet. No entity can be
// reached through it.
var ErrNotReady = errors.New("sharding: region not registered yet")

// HealthConfig configures when a node is ready with respect to its regions.
type HealthConfig struct {
	// Types are the entity types whose regions or proxies must have registered. A type that was not
	// started is not ready. Defaults to all types that run on the node at the time of the probe.
	Types []string
	// GiveUpAfter limits how long regions that are not registered delay the readiness of the node.
	// The time counts from the first probe after the node became a member. After this time the node
	// is ready without these regions: a rolling restart must not wait for a coordinator that only
	// another node can run. Defaults to 10 s; a negative value means no limit. A node with a
	// rejected region is never ready.
	GiveUpAfter time.Duration
}

// Health serves the liveness and readiness probes of a node and its regions. It is safe for
// concurrent use.
type Health struct {
	node *cluster.Node
	cfg  HealthConfig
	http http.Handler

	mu    sync.Mutex
	first time.Time       // first probe of the node as a member
	known map[string]bool // types that have registered
}

// NewHealth returns the handler of the probes of a node.
func NewHealth(node *cluster.Node, cfg HealthConfig) *Health {
	cfg.Types = slices.Clone(cfg.Types)
	cfg.GiveUpAfter = cmp.Or(cfg.GiveUpAfter, 10*time.Second)
	h := &Health{node: node, cfg: cfg, known: map[string]bool{}}
	h.http = node.Health(h.Ready)
	return h
}

// Ready returns nil if the node is ready and its regions have registered with a coordinator once.
// It does not block. The error is that of cluster.Node.Ready, or matches ErrNotReady, and
// ErrMismatch if a region is rejected.
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

// missing returns the types that have not registered, sorted, and the errors of rejected regions.
func (h *Health) missing() (missing []string, refused error) {
	b := routerOf(h.node)
	types := h.cfg.Types
	if len(types) == 0 {
		types = b.types()
	}
	for _, name := range types {
		if !h.known[name] {
			s := b.find(name)
			h.known[name] = s != nil && isClosed(s.ready)
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

// ServeHTTP replies to GET /live and GET /ready with 200, or with 503 and the reason, as
// cluster.Node.Health does.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.http.ServeHTTP(w, r) }
