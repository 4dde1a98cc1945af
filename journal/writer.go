// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import "time"

// WriterConfig configures the writer of the runtime, which groups the writes of many entities into
// few appends.
type WriterConfig struct {
	// MaxQueuedWrites is how many accepted requests may wait to be sent. Defaults to 16,384.
	MaxQueuedWrites int
	// MaxQueuedBytes is how many bytes they may have together; one request is always accepted.
	// Defaults to 128 MiB.
	MaxQueuedBytes int
	// MaxBatchWrites is how many writes one Append may hold. Defaults to 1,024.
	MaxBatchWrites int
	// MaxBatchBytes is the maximum size of one Append in bytes. A single larger write is rejected.
	// Defaults to 64 MiB, which is also the maximum.
	MaxBatchBytes int
	// OnCommit is called after each Append, before the entities receive the outcome. It must not
	// block. With a Parallel journal, calls may be concurrent. Optional.
	OnCommit func(CommitInfo)
}

// CommitInfo describes one Append of a Writer.
type CommitInfo struct {
	// Writes, Events and Bytes are the size of the Append.
	Writes, Events, Bytes int
	// Failed is how many of the writes were not stored or have an unknown outcome.
	Failed int
	// Duration is how long the journal took.
	Duration time.Duration
}
