// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"time"

	"github.com/refold-io/refold/journal"
)

// Observer is told what happens in a runtime: a struct of functions, each of
// which may be nil. They are called on the goroutine on which it happens, must
// not block, and may be called from several goroutines at once.
type Observer struct {
	// Command: a command was handled and its reply left; err is the reply's.
	Command func(CommandInfo)
	// Commit: the writer sent a group of writes to the journal.
	Commit func(CommitInfo)
	// RecoveryStarted and Recovery: an entity begins and ends a recovery.
	RecoveryStarted func(id string)
	Recovery        func(RecoveryInfo)
	// Snapshot: a snapshot was saved, or could not be.
	Snapshot func(SnapshotInfo)
	// Failure: an entity dropped its instance because of an error: a write that
	// failed or was rejected, a conflict, a panic, a failed recovery.
	Failure func(id string, cause error)
	// Fence: a write had an unknown outcome and is being settled.
	Fence func(id string, seqNr uint64)
	// Dropped: a message reached nobody: the stash was full, the entity or the
	// runtime had stopped.
	Dropped func(DroppedInfo)
	// Stopped: an entity left memory.
	Stopped func(id string)
	// Durable: the events of an entity are durable up to this number.
	Durable func(id string, seqNr uint64)
}

// CommandInfo describes a command that was answered.
type CommandInfo struct {
	// ID is the persistence ID, Command the command itself.
	ID      string
	Command any
	// Err is what it was answered with.
	Err error
}

// CommitInfo describes a group of writes.
type CommitInfo = journal.CommitInfo

// RecoveryInfo describes a recovery that ended.
type RecoveryInfo struct {
	ID string
	// SequenceNr is where the entity stands, SnapshotNr where its snapshot did,
	// 0 for none, and Events how many were replayed.
	SequenceNr, SnapshotNr, Events uint64
	// Duration includes the wait for a permit.
	Duration time.Duration
	Err      error
}

// SnapshotInfo describes a save.
type SnapshotInfo struct {
	ID         string
	SequenceNr uint64
	Bytes      int
	Duration   time.Duration
	Err        error
}

// DroppedInfo describes a message that reached nobody.
type DroppedInfo struct {
	ID      string
	Message any
	Err     error
}
