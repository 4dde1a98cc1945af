// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/panics"
)

const maxDispatched = 4096

// Dispatcher calls functions in order on its own goroutine. Loops use it for log lines and
// observers, which are the user's code and may block. At most 4,096 calls wait. Further calls are
// dropped and their number is logged. A panic of a call is logged.
type Dispatcher struct {
	log   *slog.Logger
	base  context.Context //nolint:containedctx // of all lines
	ready Signal
	done  chan struct{}

	mu      sync.Mutex
	calls   []func()
	dropped int
	closed  bool
}

// NewDispatcher starts a dispatcher that writes lines to log with the values of ctx. Close ends the
// dispatcher.
func NewDispatcher(ctx context.Context, log *slog.Logger) *Dispatcher {
	d := &Dispatcher{log: log, base: context.WithoutCancel(ctx), ready: NewSignal(), done: make(chan struct{})}
	go d.run()
	return d
}

// Do calls f after all earlier functions, unless 4,096 calls wait already. After a Close that did
// not time out, Do calls f at once.
func (d *Dispatcher) Do(f func()) {
	d.mu.Lock()
	closed := d.closed
	switch {
	case closed:
	case len(d.calls) < maxDispatched:
		d.calls = append(d.calls, f)
	default:
		d.dropped++
	}
	d.mu.Unlock()
	if !closed {
		d.ready.Set()
		return
	}
	select {
	case <-d.done:
		d.call(f)
	default: // Close timed out: an earlier call may never return
	}
}

// Log writes a line with the time and the source of the caller. The handler's level is checked on
// the dispatcher's goroutine, because the handler is the user's code.
func (d *Dispatcher) Log(level slog.Level, message string, attrs ...slog.Attr) {
	var pc [1]uintptr
	runtime.Callers(2, pc[:])
	r := slog.NewRecord(time.Now(), level, message, pc[0])
	r.AddAttrs(attrs...)
	d.Do(func() {
		if handler := d.log.Handler(); handler.Enabled(d.base, level) {
			_ = handler.Handle(d.base, r) // there is no other place to report it
		}
	})
}

func (d *Dispatcher) run() {
	defer close(d.done)
	for {
		d.mu.Lock()
		calls, dropped, closed := d.calls, d.dropped, d.closed
		d.calls, d.dropped = nil, 0
		d.mu.Unlock()
		for _, f := range calls {
			d.call(f)
		}
		if dropped > 0 {
			d.call(func() {
				d.log.WarnContext(d.base, "log lines and observer calls were dropped: the log handler or the observer is too slow", slog.Int("count", dropped))
			})
		}
		switch {
		case len(calls) > 0 || dropped > 0:
		case closed:
			return
		default:
			<-d.ready
		}
	}
}

// call calls f, an observer or a log handler. Logging a panic of f may panic again.
func (d *Dispatcher) call(f func()) {
	if p := panics.Call(f); p != nil {
		_ = panics.Call(func() {
			d.log.ErrorContext(d.base, "observer panicked", slog.String("panic", fmt.Sprint(p.Value)))
		})
	}
}

// Close waits until all calls have returned, for at most the given time.
func (d *Dispatcher) Close(atMost time.Duration) {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.ready.Set()
	select {
	case <-d.done:
	case <-time.After(atMost):
	}
}

// Handler returns a slog.Handler that passes records to next on the dispatcher's goroutine, so that
// a slow handler blocks no caller.
func (d *Dispatcher) Handler(next slog.Handler) slog.Handler { return logHandler{d, next} }

// SafeHandler returns a slog.Handler that contains the panics of next. A line whose handler panics is
// lost.
func SafeHandler(next slog.Handler) slog.Handler { return logHandler{nil, next} }

type logHandler struct {
	dispatcher *Dispatcher // nil for the caller's goroutine
	next       slog.Handler
}

// Enabled implements slog.Handler.
func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	enabled := true
	_ = panics.Call(func() { enabled = h.next.Enabled(ctx, level) })
	return enabled
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.dispatcher == nil {
		return panics.Catch(func() error { return h.next.Handle(ctx, r) })
	}
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.dispatcher.Do(func() { _ = h.next.Handle(ctx, r) }) // there is no other place to report it
	return nil
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.dispatcher, h.next.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.dispatcher, h.next.WithGroup(name)}
}
