// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// maxOutlet is how many lines and figures may wait.
const maxOutlet = 4096

// outlet writes the log and tells the observer on a goroutine of its own, so that the loop waits for
// neither.
type outlet struct {
	log  *slog.Logger
	base context.Context //nolint:containedctx // of all lines
	news chan struct{}
	done chan struct{}

	mu     sync.Mutex
	queue  []func()
	lost   int
	closed bool
}

func newOutlet(base context.Context, log *slog.Logger) *outlet {
	o := &outlet{log: log, base: base, news: make(chan struct{}, 1), done: make(chan struct{})}
	go o.run()
	return o
}

// add lets f be called, in order, unless too much waits. Once all is written it is called at once.
func (o *outlet) add(f func()) {
	o.mu.Lock()
	closed := o.closed
	switch {
	case closed:
	case len(o.queue) < maxOutlet:
		o.queue = append(o.queue, f)
	default:
		o.lost++
	}
	o.mu.Unlock()
	if !closed {
		wake(o.news)
		return
	}
	select {
	case <-o.done:
		o.call(f)
	default: // it was given up
	}
}

func (o *outlet) run() {
	defer close(o.done)
	for {
		o.mu.Lock()
		queue, lost, closed := o.queue, o.lost, o.closed
		o.queue, o.lost = nil, 0
		o.mu.Unlock()
		for _, f := range queue {
			o.call(f)
		}
		if lost > 0 {
			o.call(func() {
				o.log.WarnContext(o.base, "lines of the log and figures were dropped, as they were not taken", slog.Int("count", lost))
			})
		}
		switch {
		case len(queue) > 0 || lost > 0:
		case closed:
			return
		default:
			<-o.news
		}
	}
}

// call calls what is the user's: an observer, or the handler of the log, which may panic again when that is said.
func (o *outlet) call(f func()) {
	if p := caught(f); p != nil {
		_ = caught(func() {
			o.log.ErrorContext(o.base, "an observer panicked", slog.String("panic", fmt.Sprint(p)))
		})
	}
}

// caught calls f and returns what it panicked with.
func caught(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

// close waits a while until all is written.
func (o *outlet) close(atMost time.Duration) {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	wake(o.news)
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}

// levelOf returns the level of a line of the protocols.
func levelOf(l membership.Level) slog.Level {
	switch l {
	case membership.Debug:
		return slog.LevelDebug
	case membership.Info:
		return slog.LevelInfo
	case membership.Warn:
		return slog.LevelWarn
	case membership.Error:
	}
	return slog.LevelError
}

// attrsOf returns what is said in a line of the protocols.
func attrsOf(attrs []membership.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = slog.Any(a.Key, a.Value)
		switch v := a.Value.(type) {
		case []identity.Node:
			names := make([]string, len(v))
			for j, n := range v {
				names[j] = n.String()
			}
			out[i] = slog.Any(a.Key, names)
		case error:
		case fmt.Stringer:
			out[i] = slog.String(a.Key, v.String())
		}
	}
	return out
}
