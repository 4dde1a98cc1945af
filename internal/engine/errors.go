// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
)

var (
	// ErrNoReply answers a message whose effect decided about no reply.
	ErrNoReply = errors.New("eventsourcing: the command was handled without a reply")
	// ErrUnhandled answers a command that the aggregate does not know.
	ErrUnhandled = errors.New("eventsourcing: the command is not handled by this entity")
	// ErrStashFull answers a command that came when a stash was full.
	ErrStashFull = errors.New("eventsourcing: stash full")
	// ErrStopped answers what waits inside an entity that stops, and everything
	// once the runtime is closed.
	ErrStopped = errors.New("eventsourcing: entity stopped")
	// ErrNotStored says that a write failed and that it is settled that nothing
	// of it is stored, or ever will be.
	ErrNotStored = errors.New("eventsourcing: nothing was stored")
	// ErrPartlyStored says that a command failed when something of it was stored:
	// another unit, or what stood ahead of a callback.
	ErrPartlyStored = errors.New("eventsourcing: a part of the command was stored")
	// ErrOutcomeUnknown says that the entity could not find out whether a write
	// is stored before the caller or the runtime gave up.
	ErrOutcomeUnknown = errors.New("eventsourcing: outcome unknown")
	// errAnswerLost answers what waits for a later reply of an entity that stops.
	errAnswerLost = fmt.Errorf("%w: the one that was to come later is lost: %w", ErrNoReply, ErrStopped)
	// errStashOverflow is the cause of a restart by the overflow policy Fail.
	errStashOverflow = fmt.Errorf("%w: the overflow policy restarts the entity", ErrStashFull)
)

// PersistFailed is the signal that a write was not stored. It is delivered to
// the refolded instance.
type PersistFailed struct{ Err error }

// PersistRejected is the signal that a write was rejected by the journal. It is
// delivered to the refolded instance.
type PersistRejected struct{ Err error }

// RecoveryCompleted is the signal that comes first in every incarnation.
type RecoveryCompleted struct{}

// RecoveryFailed is the cause for which an entity could not be recovered.
type RecoveryFailed struct{ Err error }

func (e *RecoveryFailed) Error() string {
	return fmt.Sprintf("eventsourcing: recovery failed: %v", e.Err)
}

// Unwrap returns the reason.
func (e *RecoveryFailed) Unwrap() error { return e.Err }
