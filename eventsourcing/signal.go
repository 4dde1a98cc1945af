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

// RecoveryCompleted comes first, before any command, in every instance.
type RecoveryCompleted struct{}

// PersistFailed says that a write failed and that nothing of it is stored. The instance that gets
// it was refolded since.
type PersistFailed struct{ Err error }

// PersistRejected says that the journal rejected a write. The instance that gets it was refolded
// since.
type PersistRejected struct{ Err error }

// signalOf translates the signals of the engine.
func signalOf(message any) any {
	switch s := message.(type) {
	case engine.RecoveryCompleted:
		return RecoveryCompleted(s)
	case engine.PersistFailed:
		return PersistFailed(s)
	case engine.PersistRejected:
		return PersistRejected(s)
	}
	return message
}

// ReceiveTimeout says that no command came for as long as Effect.ReceiveTimeout asked for.
type ReceiveTimeout struct{}

// StateTimeout says that the time of Type.Deadline has passed, and still
// is its deadline.
type StateTimeout struct{ Deadline time.Time }

// SnapshotSaved says that a snapshot is stored.
type SnapshotSaved struct{ Metadata snapshot.Metadata }

// SnapshotFailed says that a snapshot could not be encoded or stored. The entity goes on without
// it.
type SnapshotFailed struct {
	Metadata snapshot.Metadata
	Err      error
}

// SnapshotsDeleted answers Effect.DeleteSnapshots, or a deletion by retention.
type SnapshotsDeleted struct{ Criteria snapshot.Criteria }

// SnapshotsNotDeleted says that a deletion of snapshots failed.
type SnapshotsNotDeleted struct {
	Criteria snapshot.Criteria
	Err      error
}

// EventsDeleted answers Effect.DeleteEvents, or a deletion by retention.
type EventsDeleted struct{ Request DeleteEvents }

// EventsNotDeleted says that a deletion of events failed.
type EventsNotDeleted struct {
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

// The methods make the types signals.

// IsSignal implements Signal.
func (RecoveryCompleted) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (PersistFailed) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (PersistRejected) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (ReceiveTimeout) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (StateTimeout) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (SnapshotSaved) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (SnapshotFailed) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (SnapshotsDeleted) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (SnapshotsNotDeleted) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (EventsDeleted) IsSignal(hosting.Internal) {}

// IsSignal implements Signal.
func (EventsNotDeleted) IsSignal(hosting.Internal) {}
