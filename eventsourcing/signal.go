// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/snapshot"
)

// Signal is a message of the runtime to an entity: one of the types below, or one of a Part, such
// as delivery.Answered. Programs can't add signals.
type Signal interface{ hosting.Signal }

type signal = hosting.IsSignal

// RecoveryCompleted comes first, before any command, in every instance.
type RecoveryCompleted struct{ signal }

// PersistFailed says that a write failed and that nothing of it is stored. The instance that gets
// it was refolded since.
type PersistFailed struct {
	signal

	Err error
}

// PersistRejected says that the journal rejected a write. The instance that gets it was refolded
// since.
type PersistRejected struct {
	signal

	Err error
}

// signalOf translates the signals of the engine.
func signalOf(message any) any {
	switch s := message.(type) {
	case engine.RecoveryCompleted:
		return RecoveryCompleted{}
	case engine.PersistFailed:
		return PersistFailed{Err: s.Err}
	case engine.PersistRejected:
		return PersistRejected{Err: s.Err}
	}
	return message
}

// ReceiveTimeout says that no command came for as long as Effect.ReceiveTimeout asked for.
type ReceiveTimeout struct{ signal }

// StateTimeout says that the time of Type.Deadline has passed, and still
// is its deadline.
type StateTimeout struct {
	signal

	Deadline time.Time
}

// SnapshotSaved says that a snapshot is stored.
type SnapshotSaved struct {
	signal

	Metadata snapshot.Metadata
}

// SnapshotFailed says that a snapshot could not be encoded or stored. The entity goes on without
// it.
type SnapshotFailed struct {
	signal

	Metadata snapshot.Metadata
	Err      error
}

// SnapshotsDeleted answers Effect.DeleteSnapshots, or a deletion by retention.
type SnapshotsDeleted struct {
	signal

	Criteria snapshot.Criteria
}

// SnapshotsNotDeleted says that a deletion of snapshots failed.
type SnapshotsNotDeleted struct {
	signal

	Criteria snapshot.Criteria
	Err      error
}

// EventsDeleted answers Effect.DeleteEvents, or a deletion by retention.
type EventsDeleted struct {
	signal

	Request DeleteEvents
}

// EventsNotDeleted says that a deletion of events failed.
type EventsNotDeleted struct {
	signal

	Request DeleteEvents
	Err     error
}

// DeleteEvents asks to delete the events up to a number, which stay counted.
type DeleteEvents struct {
	// UpTo is the last number to delete; 0 means all that are durable now. One beyond the last
	// durable number fails.
	UpTo uint64
	// Abandon allows a deletion that no stored snapshot covers: the state can't be refolded
	// afterwards, other than by what the next snapshot says.
	Abandon bool
}
