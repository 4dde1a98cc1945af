// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
)

var (
	// ErrNoReply answers a command whose effect names no reply: not Reply,
	// Refuse, NoReply, ReplyLater or Stash; and one that chose ReplyLater when its
	// entity stops before the reply, and then the error matches ErrStopped too. The
	// command was done: its events are stored.
	ErrNoReply = engine.ErrNoReply
	// ErrUnhandled answers a command that the aggregate does not handle.
	ErrUnhandled = engine.ErrUnhandled
	// ErrStashFull answers a command that came when a stash was full.
	ErrStashFull = engine.ErrStashFull
	// ErrStopped answers what waits in the stash of an entity that stops. Once
	// the runtime is closed it answers everything.
	ErrStopped = engine.ErrStopped
	// ErrClosed says that the runtime is closed. It matches ErrStopped.
	ErrClosed = fmt.Errorf("eventsourcing: runtime closed: %w", engine.ErrStopped)
	// ErrNotStored says that a write failed, and that nothing of it is stored
	// or ever will be.
	ErrNotStored = engine.ErrNotStored
	// ErrPartlyStored says that a command failed when something of it was stored:
	// one of several units, or what stood ahead of a callback that panicked or
	// whose events were rejected.
	ErrPartlyStored = engine.ErrPartlyStored
	// ErrOutcomeUnknown says that the caller stopped waiting while its command
	// was being handled: it may be done, now or later.
	ErrOutcomeUnknown = engine.ErrOutcomeUnknown
	// ErrConflict says that another incarnation of the entity wrote first.
	ErrConflict = journal.ErrConflict
	// ErrRejected says that the journal or the codec rejected the events.
	ErrRejected = journal.ErrRejected
	// ErrReadOnly answers a command that persists to an entity that was
	// recovered only up to a number or a time.
	ErrReadOnly = errors.New("eventsourcing: read-only: the entity was not recovered to its latest event")
	// ErrNoJournal answers a command that persists on a runtime without a
	// journal.
	ErrNoJournal = errors.New("eventsourcing: the runtime has no journal")
	// ErrNoSnapshots is the reason of a snapshot that fails on a runtime without
	// a snapshot store.
	ErrNoSnapshots = errors.New("eventsourcing: the runtime has no snapshot store")
	// ErrNotCovered says that a deletion would leave events deleted that no
	// stored snapshot covers.
	ErrNotCovered = errors.New("eventsourcing: no stored snapshot would cover the deleted events")
	// ErrWrongReply says that an entity answered with another type than the
	// command declares.
	ErrWrongReply = errors.New("eventsourcing: the reply has another type than the command declares")
	// ErrUnknownType says that no host has this type of entity.
	ErrUnknownType = errors.New("eventsourcing: no host for the type")
	// ErrInvalid is matched by errors about configurations and arguments.
	ErrInvalid = errors.New("eventsourcing: invalid")
	// ErrRecoveryTimeout says that a recovery made no progress for too long.
	ErrRecoveryTimeout = errors.New("eventsourcing: recovery made no progress")
)

// RecoveryFailed is the cause that Observer.Failure gets when an entity could
// not be recovered; its field Err is the reason.
type RecoveryFailed = engine.RecoveryFailed

// Refusal is a business error with a stable code: an aggregate refuses a
// command with it, and callers compare with errors.Is, on whatever node they
// are. Two refusals are the same if their codes are.
type Refusal struct {
	code, message string
}

// NewRefusal returns a refusal. The code is stable over releases and is best
// prefixed with the name of its package: "bank/insufficient_funds". It must not be
// empty or "internal", or begin with "refold/".
func NewRefusal(code, message string) *Refusal { return &Refusal{code: code, message: message} }

// Code returns the stable code.
func (r *Refusal) Code() string { return r.code }

func (r *Refusal) Error() string { return r.message }

// Is reports whether target is a refusal with the same code.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.code == r.code
}

// PanicError says that user code panicked.
type PanicError struct {
	// PersistenceID is that of the entity.
	PersistenceID string
	// Value is what the code panicked with.
	Value any
	// Stack is the stack trace of the panic.
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("eventsourcing: the aggregate %q panicked: %v", e.PersistenceID, e.Value)
}

// NotDone reports whether an error of Ask says that surely no event of the
// command is stored, now or later, so that it does no harm to send it again. It is
// false for nil, for an outcome that is unknown or partial, and for an aggregate's
// own answer, such as a Refusal: what that says is up to the aggregate, which
// should not answer with errors of this package. See the table in the package
// documentation.
func NotDone(err error) bool {
	for _, not := range []error{ErrPartlyStored, ErrOutcomeUnknown, ErrNoReply, ErrWrongReply} {
		if errors.Is(err, not) {
			return false
		}
	}
	if _, refused := errors.AsType[*Refusal](err); refused {
		return false
	}
	if _, panicked := errors.AsType[*PanicError](err); panicked {
		return true
	}
	for _, sure := range []error{
		ErrUnhandled, ErrStashFull, ErrStopped, ErrConflict, ErrRejected, ErrNotStored, ErrReadOnly, ErrNoJournal,
		ErrUnknownType, ErrInvalid, ErrRecoveryTimeout, journal.ErrHistoryGap, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, sure) {
			return true
		}
	}
	return false
}

// Code returns the stable code of an error that came from Ask: that of a
// Refusal, a reserved one for the errors of Refold, "internal" for any other,
// and "" for nil.
func Code(err error) string {
	if err == nil {
		return ""
	}
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.code
	}
	if _, ok := errors.AsType[*PanicError](err); ok && !errors.Is(err, ErrPartlyStored) {
		return codePanic
	}
	for _, c := range reserved() {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "internal"
}

// reserved are the codes of the errors of Refold; the first that an error matches is its code.
func reserved() []coded {
	return []coded{
		{ErrPartlyStored, "refold/partly_stored"},
		{ErrNoReply, "refold/no_reply"},
		{ErrUnhandled, "refold/unhandled"},
		{ErrStashFull, "refold/stash_full"},
		{ErrStopped, "refold/stopped"},
		{ErrConflict, "refold/conflict"},
		{ErrRejected, "refold/rejected"},
		{ErrNotStored, "refold/not_stored"},
		{ErrOutcomeUnknown, "refold/outcome_unknown"},
		{ErrReadOnly, "refold/read_only"},
		{ErrNoJournal, "refold/no_journal"},
		{ErrWrongReply, "refold/wrong_reply"},
		{ErrUnknownType, "refold/unknown_type"},
		{ErrRecoveryTimeout, "refold/recovery_timeout"},
		{ErrInvalid, "refold/invalid"},
		{journal.ErrHistoryGap, "refold/history_gap"},
		{codec.ErrNotRegistered, "refold/not_registered"},
		{context.DeadlineExceeded, "refold/deadline_exceeded"},
		{context.Canceled, "refold/canceled"},
	}
}

type coded struct {
	err  error
	code string
}

// codePanic is the code of a PanicError.
const codePanic = "refold/panic"

// codes returns the codes of all errors of Refold that an error matches.
func codes(err error) []string {
	var all []string
	if _, ok := errors.AsType[*PanicError](err); ok {
		all = append(all, codePanic)
	}
	for _, c := range reserved() {
		if errors.Is(err, c.err) {
			all = append(all, c.code)
		}
	}
	return all
}

// known returns the error of Refold with a code, nil if there is none: the program may be older than the one that
// sent it.
func known(code string) error {
	if code == codePanic {
		return &PanicError{Value: "see the log of the node that hosts it"}
	}
	for _, c := range reserved() {
		if c.code == code {
			return c.err
		}
	}
	return nil
}
