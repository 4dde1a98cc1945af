// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// pool runs functions on goroutines that are used again: a fresh one would have
// to grow its stack each time.
type pool struct {
	work    chan func()
	done    chan struct{}
	idle    atomic.Int32
	maxIdle int32
	workers sync.WaitGroup
}

func (p *pool) init() {
	p.work, p.done = make(chan func()), make(chan struct{})
	p.maxIdle = int32(4 * runtime.GOMAXPROCS(0)) //nolint:gosec // small
}

// run runs f at once, on a worker that is idle or on a new one. It must not be
// called after wait.
func (p *pool) run(f func()) {
	select {
	case p.work <- f:
	default:
		p.workers.Go(func() { p.worker(f) })
	}
}

func (p *pool) worker(f func()) {
	for {
		f()
		if p.idle.Add(1) > p.maxIdle {
			p.idle.Add(-1)
			return
		}
		select {
		case f = <-p.work:
			p.idle.Add(-1)
		case <-p.done:
			return
		}
	}
}

// wait ends the workers once they are idle.
func (p *pool) wait() {
	close(p.done)
	p.workers.Wait()
}
