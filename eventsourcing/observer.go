// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"time"

	"github.com/refold-io/refold/journal"
)

// Observer is told what happens in a runtime: a struct of functions, each of
// which may be nil and then costs nothing. They are called on the goroutine on
// which it happens, must not block, and may be called from several goroutines at
// once.
type Observer struct {
	// Begin: a command was handed over to its entity. It returns the context of
	// the command: that of the info or one derived from it, never nil. It is
	// what Context.Context returns and what Inject and Command get. One Command
	// follows.
	Begin func(CommandInfo) context.Context
	// Command: a command was answered, or handled if there is no answer, or its
	// asker left before it was handled.
	Command func(CommandInfo)
	// Stashed: a command waits inside its entity, which could not handle it at
	// once or put it aside.
	Stashed func(StashInfo)
	// Commit: the writer sent a group of writes to the journal.
	Commit func(CommitInfo)
	// RecoveryStarted and Recovery: an entity begins and ends a recovery.
	RecoveryStarted func(persistenceID string)
	Recovery        func(RecoveryInfo)
	// Snapshot: a snapshot was saved, or could not be.
	Snapshot func(SnapshotInfo)
	// Failure: an entity dropped its instance because of an error: a write that
	// failed or was rejected, a conflict, a panic, a failed recovery.
	Failure func(persistenceID string, cause error)
	// Fence: a write had an unknown outcome and is being settled.
	Fence func(persistenceID string, seqNr uint64)
	// Dropped: a message reached nobody: the stash was full, the entity or the
	// runtime had stopped.
	Dropped func(DroppedInfo)
	// Unreturned: a handler or callback made effects and did not return them, so
	// that nothing came of them. It may be told again when a command is handled
	// again.
	Unreturned func(UnreturnedInfo)
	// Stopped: an entity left memory.
	Stopped func(persistenceID string)
	// Durable: the events of an entity are durable up to this number.
	Durable func(persistenceID string, seqNr uint64)

	// Inject returns what is stored as metadata with the events of a command
	// that has this context, nil for nothing. It must not change later.
	Inject func(ctx context.Context) []byte
	// Extract is the reverse: it returns a context derived from ctx. A companion
	// sends commands with the context that it extracts from the metadata of the
	// event that asked for them.
	Extract func(ctx context.Context, metadata []byte) context.Context
}

// CommandInfo describes a command.
type CommandInfo struct {
	PersistenceID string
	Command       any
	// Context is that of the asker, for its values, and that of Begin once it
	// was called. It may have ended. It is the background if nobody gave one: for
	// the command of a timer for example.
	Context context.Context //nolint:containedctx // the info is about it
	// Attempt counts the transmissions of a command that a companion sent, from
	// 1 at each start of the companion's entity. It is 0 for other commands.
	Attempt int
	// Began is when the command was handed over, and Duration how long it took
	// from there to its answer, 0 in Begin.
	Began    time.Time
	Duration time.Duration
	// Events is how many events the command decided on, and SequenceNr the
	// number of the last of them, 0 if there are none. They are stored unless
	// Err says otherwise.
	Events     int
	SequenceNr uint64
	// Err is what it was answered with.
	Err error
}

// StashInfo describes a command that waits inside its entity.
type StashInfo struct {
	PersistenceID string
	Command       any
	// Aside says that the aggregate put it aside, with Context.Stash. Otherwise
	// it waits for a recovery, for the end of a back-off, or for something that
	// no command may overtake.
	Aside bool
}

// CommitInfo describes a group of writes.
type CommitInfo = journal.CommitInfo

// RecoveryInfo describes a recovery that ended.
type RecoveryInfo struct {
	PersistenceID string
	// Context is that of the first command that waits for the recovery, for its
	// values; the background if there is none.
	Context context.Context //nolint:containedctx // see CommandInfo
	// SequenceNr is where the entity stands, SnapshotNr where its snapshot did,
	// 0 for none, and Events how many were replayed.
	SequenceNr, SnapshotNr, Events uint64
	// Duration includes the wait for a permit.
	Duration time.Duration
	Err      error
}

// SnapshotInfo describes a save.
type SnapshotInfo struct {
	PersistenceID string
	SequenceNr    uint64
	Bytes         int
	Duration      time.Duration
	Err           error
}

// DroppedInfo describes a message that reached nobody.
type DroppedInfo struct {
	PersistenceID string
	Message       any
	Err           error
}

// UnreturnedInfo describes effects that were made and not returned.
type UnreturnedInfo struct {
	PersistenceID string
	// Message is the command, or the signal, that was handled.
	Message any
	// Effects is how many were not returned. Those that only reply or refuse,
	// Unhandled, and empty ones do not count.
	Effects int
}
