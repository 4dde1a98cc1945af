// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"time"
)

// FilterMode selects how a replay treats a record that violates the rule of one writer at a time.
type FilterMode uint8

const (
	// FilterFail ends the replay with a *ViolationError.
	FilterFail FilterMode = iota
	// FilterRepairByDiscardOld drops the record. If a newer writer has overwritten records of an
	// older writer, it drops the older records instead.
	FilterRepairByDiscardOld
	// FilterWarn reports the violation and yields all records unchanged. A recovery applies each of
	// them, also one with a number that it has applied before.
	FilterWarn
	// FilterOff disables the filter: it is FilterWarn without reports.
	FilterOff
)

// String returns the name of the mode as used in configuration files.
func (m FilterMode) String() string {
	switch m {
	case FilterFail:
		return "fail"
	case FilterRepairByDiscardOld:
		return "repair-by-discard-old"
	case FilterWarn:
		return "warn"
	case FilterOff:
		return "off"
	}
	return fmt.Sprintf("FilterMode(%d)", uint8(m))
}

// FilterConfig configures the replay filter of the runtime. The filter detects records of two
// concurrent writers of one persistence ID. Conditional appends make such records impossible; the
// filter protects entities from histories that were imported from a journal without conditional
// appends.
type FilterConfig struct {
	// Mode selects the treatment of a violation. Defaults to FilterFail. The other modes are for
	// imported histories.
	Mode FilterMode
	// WindowSize is the size of the window in which overwritten records are found. The window
	// contains the latest records, including the first record of the new writer. Defaults to 100.
	WindowSize int
	// MaxOldWriters is how many earlier writers are remembered. Defaults to 10.
	MaxOldWriters int
	// OnViolation is called for each violation, in every mode but FilterOff, before the replay
	// continues. Optional.
	OnViolation func(*ViolationError)
}

// ErrViolation is matched by a *ViolationError.
var ErrViolation = errors.New("journal: replay filter: violation")

// ViolationError reports a record that cannot belong to the history of an ID with one writer at a
// time.
type ViolationError struct {
	ID string
	// SequenceNr and Writer identify the faulty record.
	SequenceNr uint64
	Writer     string
	// Detail is the relation between the two records: "comes after number", "comes from an old
	// writer, after number" or "was overwritten by number".
	Detail string
	// OtherSequenceNr and OtherWriter identify the record that contradicts the faulty one.
	OtherSequenceNr uint64
	OtherWriter     string
}

func (e *ViolationError) Error() string {
	return fmt.Sprintf("journal: replay filter: %q: event %d of writer %q %s %d of writer %q",
		e.ID, e.SequenceNr, e.Writer, e.Detail, e.OtherSequenceNr, e.OtherWriter)
}

// Is reports whether target is ErrViolation.
func (e *ViolationError) Is(target error) bool { return target == ErrViolation }

// WriterConfig configures the writer of the runtime, which groups the writes of many entities into
// few appends.
type WriterConfig struct {
	// MaxQueuedWrites is how many accepted requests may wait to be sent. Defaults to 16,384.
	MaxQueuedWrites int
	// MaxQueuedBytes is the maximum total size of these requests in bytes. If the queue is empty, a
	// request of any size is accepted. Defaults to 128 MiB.
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
