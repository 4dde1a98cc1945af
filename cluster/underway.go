// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync"
)

// underway counts what is going on, for somebody who waits until nothing is.
type underway struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when nothing goes on, nil if nobody waits
}

func (u *underway) more() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

func (u *underway) less() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.idle != nil {
		close(u.idle)
		u.idle = nil
	}
}

// wait waits until nothing goes on, and reports whether that came before the end of ctx.
func (u *underway) wait(ctx context.Context) bool {
	u.mu.Lock()
	if u.n == 0 {
		u.mu.Unlock()
		return true
	}
	if u.idle == nil {
		u.idle = make(chan struct{})
	}
	idle := u.idle
	u.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}
