// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"time"

	"github.com/refold-io/refold/journal"
)

// Observer is told what happens in a projection: a struct of functions, each of
// which may be nil. They are called on the goroutine of the worker, must not
// block, and may be called from several goroutines at once.
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
	// Slices is the range of the worker; its Count is 0 if the projection as a whole could not
	// begin.
	Slices journal.Slices
	// Pause is how long it waits.
	Pause time.Duration
	Err   error
}
