// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import "time"

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
