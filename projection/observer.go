// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

// Observer receives events of a projection. Each function is optional. They are called on the
// goroutine of the worker, possibly concurrently, and must not block. A panic is logged and has no
// further effect.
type Observer struct {
	// Batch reports a call of the handler, successful or failed.
	Batch func(BatchInfo)
	// Skipped reports a skipped event and the reason.
	Skipped func(*EventError)
	// Restarted reports that a worker failed and restarts after a pause.
	Restarted func(RestartInfo)
}

// BatchInfo describes one call of a handler.
type BatchInfo struct {
	Projection string
	// Slices is the range of the worker.
	Slices journal.Slices
	// Events is the number of events in the batch, and Last the time of the last one.
	Events int
	Last   time.Time
	// Duration is the time that the batch took, including the transaction if there is one.
	Duration time.Duration
	Err      error
}

// RestartInfo describes a failure of a worker.
type RestartInfo struct {
	Projection string
	// Slices is the range of the worker. Its Count is 0 if the projection failed to start.
	Slices journal.Slices
	// Attempt counts consecutive failures, from 1.
	Attempt int
	// Pause is the time until the restart.
	Pause time.Duration
	Err   error
}

// observe calls a function of the Observer, which may be nil.
func observe[E, T any](ctx context.Context, p *Projection[E], f func(T), subject T) {
	if f == nil {
		return
	}
	if panicked := panics.Call(func() { f(subject) }); panicked != nil {
		p.cfg.Logger.ErrorContext(ctx, "projection: observer panicked", p.attrs(panicked)...)
	}
}

// attrs returns the log attributes of an error.
func (p *Projection[E]) attrs(err error, more ...any) []any {
	attrs := append([]any{slog.String("projection", p.cfg.Name)}, more...)
	attrs = append(attrs, slog.Any("error", err))
	if panicked, ok := errors.AsType[*panics.Error](err); ok {
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	return attrs
}
