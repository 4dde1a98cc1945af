// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/refold-io/refold/journal"
)

// Observer is told what happens in a projection: a struct of functions, each of
// which may be nil. They are called on the goroutine of the worker, must not
// block, and may be called from several goroutines at once. A panic of one is
// logged and has no further effect.
type Observer struct {
	// Batch: the handler was called, and succeeded or failed.
	Batch func(BatchInfo)
	// Skipped: an event was given up. The error says which and why.
	Skipped func(*EventError)
	// Restarted: a worker failed and begins again after a pause.
	Restarted func(RestartInfo)
}

// BatchInfo describes one call of a handler.
type BatchInfo struct {
	Projection string
	// Slices is the range of the worker.
	Slices journal.Slices
	// Events is how many it was given, and Last the time of the last of them.
	Events int
	Last   time.Time
	// Duration is how long it took, with the transaction if there is one.
	Duration time.Duration
	Err      error
}

// RestartInfo describes a failure of a worker.
type RestartInfo struct {
	Projection string
	// Slices is the range of the worker; its Count is 0 if the projection as a
	// whole could not begin.
	Slices journal.Slices
	// Attempt counts the failures in a row, from 1.
	Attempt int
	// Pause is how long it waits.
	Pause time.Duration
	Err   error
}

// observe calls a function of the Observer, which may be nil.
func observe[E, T any](ctx context.Context, p *Projection[E], f func(T), what T) {
	if f == nil {
		return
	}
	err := contain(func() error {
		f(what)
		return nil
	})
	if err != nil {
		p.cfg.Logger.ErrorContext(ctx, "an observer of a projection panicked", p.attrs(err)...)
	}
}

// attrs are what a log line about an error has.
func (p *Projection[E]) attrs(err error, more ...any) []any {
	attrs := append([]any{slog.String("projection", p.cfg.Name)}, more...)
	attrs = append(attrs, slog.Any("error", err))
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	return attrs
}
