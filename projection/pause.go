// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"sync"
)

// pauseGate admits handlers while the projection is not paused.
type pauseGate struct {
	mu      sync.Mutex
	closed  chan struct{} // nil while open; closed when it opens
	running int
	left    chan struct{} // nil, or closed when no handler is running
}

// enter waits until the projection is not paused. The caller must call leave afterwards.
func (g *pauseGate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed := g.closed
		if closed == nil {
			g.running++
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *pauseGate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 && g.left != nil {
		close(g.left)
		g.left = nil
	}
}

// close pauses the projection and waits until no handler is running.
func (g *pauseGate) close(ctx context.Context) error {
	g.mu.Lock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
	if g.running == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.left == nil {
		g.left = make(chan struct{})
	}
	left := g.left
	g.mu.Unlock()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *pauseGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *pauseGate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed != nil
}
