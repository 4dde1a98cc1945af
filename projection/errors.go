// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"errors"
	"fmt"

	"github.com/refold-io/refold/journal"
)

var (
	// ErrInvalid is matched by errors about configurations and arguments.
	ErrInvalid = errors.New("projection: invalid")
	// ErrFenced is returned by a Store whose positions differ from those that the move expected:
	// another process runs the same projection, or a rebuild was requested. The error is not a
	// fault: the fenced worker pauses and restarts at the stored position.
	ErrFenced = errors.New("projection: fenced: the stored positions differ from the expected ones")
	// ErrRefused is matched by an error of TxStore.Apply if the transaction was not committed
	// because of a change by the handler, for example a deferred constraint.
	ErrRefused = errors.New("projection: transaction refused")
	// ErrUnavailable is matched by an error of TxStore.Apply that the events did not cause, such as
	// a lost connection. It is matched even if the handler returned an error, too.
	ErrUnavailable = errors.New("projection: store unavailable")
	// ErrNotSetUp is matched by an error of a Store whose tables or other storage were never
	// created. Run returns this error.
	ErrNotSetUp = errors.New("projection: store not set up")
	// ErrRunning is returned by a second Run of a running projection.
	ErrRunning = errors.New("projection: already running")
	// ErrNoClear is returned by Rebuild if the handler has no Clear.
	ErrNoClear = errors.New("projection: rebuild requires a handler with Clear")

	// errRangesChanged ends a session: the ranges of slices changed, or a rebuild was requested.
	errRangesChanged = errors.New("projection: the ranges of slices changed")
	// errRebuild ends a session when a rebuild was requested in this process.
	errRebuild = errors.New("projection: a rebuild was requested")
	// errExited is the error of a worker whose handler ended its goroutine.
	errExited = errors.New("projection: a handler ended its goroutine")
)

// EventError reports the event that could not be handled.
type EventError struct {
	// Projection is the name of the projection.
	Projection string
	// ID is the persistence ID of the event, SequenceNr its number in the history of this ID, and
	// Manifest the stored name of its type.
	ID         string
	SequenceNr uint64
	Manifest   string
	// Offset is its position in the journal.
	Offset journal.Offset
	// Undecodable is set if the event could not be decoded.
	Undecodable bool
	// Attempts is the number of calls of the handler with this event alone.
	Attempts int
	// Err is the cause.
	Err error
}

func (e *EventError) Error() string {
	verb := "handle"
	if e.Undecodable {
		verb = "decode"
	}
	return fmt.Sprintf("projection %q: %s event %d of %q (%s): %v", e.Projection, verb, e.SequenceNr, e.ID, e.Manifest, e.Err)
}

// Unwrap returns the cause.
func (e *EventError) Unwrap() error { return e.Err }

// failure is an error of a handler, in contrast to an error of the journal or of the store.
type failure struct{ cause error }

func (f *failure) Error() string { return f.cause.Error() }
func (f *failure) Unwrap() error { return f.cause }

// isPermanent reports whether a restart cannot resolve an error.
func isPermanent(err error) bool {
	if _, ok := errors.AsType[*EventError](err); ok {
		return false // regardless of the error of the handler
	}
	for _, target := range []error{journal.ErrClosed, journal.ErrInvalid, journal.ErrOffset, ErrInvalid, ErrNotSetUp, ErrNoClear, errExited} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
