// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/journal"
)

var (
	// ErrNoReply answers a message whose effect has no reply.
	ErrNoReply = errors.New("eventsourcing: the command was handled without a reply")
	// ErrUnhandled answers a command that the aggregate does not handle.
	ErrUnhandled = errors.New("eventsourcing: the command is not handled by this entity")
	// ErrStashFull answers a command that arrives while a stash is full.
	ErrStashFull = errors.New("eventsourcing: stash full")
	// ErrStopped answers messages that wait in an entity that stops, and all messages after the
	// runtime is closed.
	ErrStopped = errors.New("eventsourcing: entity stopped")
	// ErrNotStored reports that a write failed and that none of its events is stored or can be
	// stored later.
	ErrNotStored = errors.New("eventsourcing: nothing was stored")
	// ErrPartlyStored reports that a command failed after one of its units, or the events before a
	// callback, had been stored.
	ErrPartlyStored = errors.New("eventsourcing: a part of the command was stored")
	// ErrOutcomeUnknown reports that the caller or the runtime stopped waiting before the entity
	// could determine whether a write was stored, or that the entity can't determine it.
	ErrOutcomeUnknown = errors.New("eventsourcing: outcome unknown")
	// errRecordsDeleted answers the messages of writes that may be stored, and whose records another
	// incarnation may have deleted.
	errRecordsDeleted = fmt.Errorf("%w: the records that would show whether the events were stored are deleted", ErrOutcomeUnknown)
	// errAnswerLost answers callers that wait for a later reply of an entity that stops.
	errAnswerLost = fmt.Errorf("%w: the entity stopped before its later reply: %w", ErrNoReply, ErrStopped)
	// ErrOutboxFull refuses a command that would exceed delivery.Options.MaxUnconfirmed.
	ErrOutboxFull = errors.New("delivery: too many unconfirmed deliveries")
	// errStashOverflow is the cause of a restart by the overflow policy Fail.
	errStashOverflow = fmt.Errorf("%w: the overflow policy restarts the entity", ErrStashFull)
)

// Signal is implemented by types that embed IsSignal. Programs can't add signals.
type Signal interface{ isSignal() }

// IsSignal makes the struct that embeds it a Signal. It takes up no space.
type IsSignal struct{}

func (IsSignal) isSignal() {}

type signal = IsSignal

// PersistFailed is the signal that a write was not stored. The recovered instance receives it.
type PersistFailed struct {
	Err error
	// Event is the event that was not stored, the first one of the write.
	Event journal.Event
}

// PersistRejected is the signal that the journal rejected a write. The recovered instance receives
// it.
type PersistRejected struct {
	Err error
	// Event is the rejected event.
	Event journal.Event
}

// RecoveryCompleted is the first signal of every incarnation.
type RecoveryCompleted struct{ Recovery }

// ErrRecovery reports that the entity could not be recovered.
var ErrRecovery = errors.New("eventsourcing: recovery failed")

// RecoveryFailed is the error of a recovery that failed. It matches ErrRecovery. It is also the signal
// that an entity receives after the failure.
type RecoveryFailed struct {
	signal

	Err error
}

func (e *RecoveryFailed) Error() string {
	return fmt.Sprintf("%v: %v", ErrRecovery, e.Err)
}

// Is reports whether target is ErrRecovery.
func (e *RecoveryFailed) Is(target error) bool { return target == ErrRecovery }

// Unwrap returns the cause.
func (e *RecoveryFailed) Unwrap() error { return e.Err }
