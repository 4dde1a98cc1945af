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
	// ErrFenced says that a Store holds other positions than the move expected:
	// another process runs the same projection, or a rebuild was asked for. It is
	// no fault: who is fenced pauses, and begins again where the other one is.
	ErrFenced = errors.New("projection: fenced: the stored positions are others than expected")
	// ErrRefused is matched by an error of TxStore.Apply that says that the
	// transaction surely was not committed, because of what the handler did in
	// it: a constraint that is checked at the end for example.
	ErrRefused = errors.New("projection: transaction refused")
	// ErrUnavailable is matched by an error of TxStore.Apply that is not about
	// the events, even if the handler returned an error too: the connection was
	// lost for example.
	ErrUnavailable = errors.New("projection: store unavailable")
	// ErrNotSetUp is matched by an error of a Store whose tables, or whatever it
	// keeps positions in, were never made. Run ends with it.
	ErrNotSetUp = errors.New("projection: store not set up")
	// ErrRunning answers a second Run of a projection that is running.
	ErrRunning = errors.New("projection: already running")
	// ErrNoClear says that a projection can't be rebuilt, as its handler has no
	// Clear.
	ErrNoClear = errors.New("projection: the handler has no Clear, which a rebuild needs")

	// errMoved tells that the ranges of slices are others than a worker knows, or
	// that a rebuild was asked for.
	errMoved = errors.New("projection: the ranges of slices changed")
	// errRebuild is why a session ends when a rebuild was asked for here.
	errRebuild = errors.New("projection: a rebuild was asked for")
	// errExited is what a worker leaves behind whose handler ended its goroutine.
	errExited = errors.New("projection: a handler ended its goroutine")
)

// EventError says which event could not be handled.
type EventError struct {
	// Projection is the name of the projection.
	Projection string
	// ID is the persistence ID of the event, SequenceNr its number there, and
	// Manifest the stored name of its type.
	ID         string
	SequenceNr uint64
	Manifest   string
	// Offset is its position in the journal.
	Offset journal.Offset
	// Undecodable says that it could not even be read.
	Undecodable bool
	// Attempts is how often it was handed to the handler.
	Attempts int
	// Err is why.
	Err error
}

func (e *EventError) Error() string {
	verb := "handle"
	if e.Undecodable {
		verb = "decode"
	}
	return fmt.Sprintf("projection %q: %s event %d of %q (%s): %v", e.Projection, verb, e.SequenceNr, e.ID, e.Manifest, e.Err)
}

// Unwrap returns why.
func (e *EventError) Unwrap() error { return e.Err }

// PanicError says that a function of the program panicked: a handler, a Clear, or
// one of an Observer.
type PanicError struct {
	// Value is what it panicked with, and Stack where.
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("projection: panic: %v", e.Value)
}

// Unwrap returns the value of the panic, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// failure is an error of a handler, as opposed to one of the journal or of the
// store.
type failure struct{ cause error }

func (f *failure) Error() string { return f.cause.Error() }
func (f *failure) Unwrap() error { return f.cause }

// hopeless reports whether a new start can't mend an error.
func hopeless(err error) bool {
	if _, ok := errors.AsType[*EventError](err); ok {
		return false // whatever its handler says
	}
	for _, target := range []error{journal.ErrClosed, journal.ErrInvalid, journal.ErrOffset, ErrInvalid, ErrNotSetUp, ErrNoClear, errExited} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
