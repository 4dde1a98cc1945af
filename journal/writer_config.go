// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"time"
)

// MaxAppendBytes is the most that one Append carries: the upper bound and the
// default of WriterConfig.MaxBatchBytes.
const MaxAppendBytes = 64 << 20

// WriterConfig holds the limits of a Writer.
type WriterConfig struct {
	// MaxQueuedWrites is how many accepted requests may wait to be sent.
	// Defaults to 16,384.
	MaxQueuedWrites int
	// MaxQueuedBytes is how many bytes they may have together; one request is
	// always accepted. Defaults to 128 MiB.
	MaxQueuedBytes int
	// MaxBatchWrites is how many writes one Append may hold. Defaults to 1,024.
	MaxBatchWrites int
	// MaxBatchBytes is how many bytes one Append may hold. A write that is
	// larger by itself is rejected. Defaults to MaxAppendBytes and can't be
	// more.
	MaxBatchBytes int
	// OnCommit is called after each Append, before its owners are told, on a
	// goroutine of the Writer. It must not block. With a Parallel journal there
	// may be several calls at a time. Defaults to none.
	OnCommit func(CommitInfo)
}

func (c WriterConfig) withDefaults() WriterConfig {
	def := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	def(&c.MaxQueuedWrites, 16_384)
	def(&c.MaxQueuedBytes, 128<<20)
	def(&c.MaxBatchWrites, 1_024)
	def(&c.MaxBatchBytes, MaxAppendBytes)
	return c
}

func (c WriterConfig) validate() error {
	var errs []error
	check := func(name string, value int) {
		if value < 0 {
			errs = append(errs, fmt.Errorf("%w: WriterConfig.%s is %d, it can't be negative", ErrInvalid, name, value))
		}
	}
	check("MaxQueuedWrites", c.MaxQueuedWrites)
	check("MaxQueuedBytes", c.MaxQueuedBytes)
	check("MaxBatchWrites", c.MaxBatchWrites)
	check("MaxBatchBytes", c.MaxBatchBytes)
	if c.MaxBatchBytes > MaxAppendBytes {
		errs = append(errs, fmt.Errorf("%w: WriterConfig.MaxBatchBytes is %d, at most %d are allowed", ErrInvalid, c.MaxBatchBytes, MaxAppendBytes))
	}
	return errors.Join(errs...)
}

// CommitInfo describes one Append of a Writer.
type CommitInfo struct {
	// Writes, Events and Bytes say what it held.
	Writes, Events, Bytes int
	// Failed is how many of the writes were not stored or have an unknown
	// outcome.
	Failed int
	// Duration is how long the journal took.
	Duration time.Duration
}
