// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"sync"
)

// gate is what handlers pass, and what Pause closes.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while open; closed when it opens
	inside int
	left   chan struct{} // nil, or closed when nobody is inside any more
}

// enter waits until the gate is open. Then leave has to be called.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed := g.closed
		if closed == nil {
			g.inside++
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

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.left != nil {
		close(g.left)
		g.left = nil
	}
}

// close closes the gate and waits until nobody is inside.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
	if g.inside == 0 {
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

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed != nil
}
