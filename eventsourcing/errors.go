// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

var (
	// ErrNoReply is returned for a command whose handler returned a zero Decision, and for a
	// command with ReplyLater whose entity stops before the reply, or whose reply is lost because
	// the command that resolves it fails. The error then also matches ErrStopped, or the failure.
	// The command was handled, and its events are stored.
	ErrNoReply = engine.ErrNoReply
	// ErrUnhandled is returned for a command without a handler, and for Context.Unhandled.
	ErrUnhandled = engine.ErrUnhandled
	// ErrStashFull is returned for a command that arrives while the stash of its entity is full.
	ErrStashFull = engine.ErrStashFull
	// ErrStopped is returned for a command that waits in the stash of an entity that stops, and for
	// every command after the runtime is closed.
	ErrStopped = engine.ErrStopped
	// ErrClosed means that the runtime is closed. It matches ErrStopped.
	ErrClosed = fmt.Errorf("eventsourcing: runtime closed: %w", engine.ErrStopped)
	// ErrNotStored means that a write failed and that none of its events is stored now or later.
	ErrNotStored = engine.ErrNotStored
	// ErrPartlyStored means that a command failed after some of its events were stored: one of
	// several units, or the events before a callback.
	ErrPartlyStored = engine.ErrPartlyStored
	// ErrOutcomeUnknown means that the caller stopped waiting while its command was being handled.
	// The events of the command may be stored, now or later.
	ErrOutcomeUnknown = engine.ErrOutcomeUnknown
	// ErrConflict means that another instance of the entity wrote first.
	ErrConflict = journal.ErrConflict
	// ErrRejected means that the journal or the codec rejected the events.
	ErrRejected = journal.ErrRejected
	// ErrReadOnly is returned for a command that persists events of an entity that was recovered with
	// Recovery.UpTo or Recovery.AsOf.
	ErrReadOnly = errors.New("eventsourcing: read-only: the entity was not recovered to its latest event")
	// ErrNoJournal is returned for a command that persists events in a runtime without a journal.
	ErrNoJournal = errors.New("eventsourcing: the runtime has no journal")
	// ErrNoSnapshots means that a snapshot was requested in a runtime without a snapshot store.
	ErrNoSnapshots = errors.New("eventsourcing: the runtime has no snapshot store")
	// ErrSnapshotVersion means that a snapshot has another Snapshots.Version than its type. Recoveries
	// ignore it.
	ErrSnapshotVersion = errors.New("eventsourcing: the snapshot has another version of the state")
	// ErrNotCovered means that after a deletion no stored snapshot that can be decoded would cover the
	// deleted events, or that only this node of a cluster can read it.
	ErrNotCovered = errors.New("eventsourcing: no stored snapshot would cover the deleted events")
	// ErrWrongReply means that the reply does not have the type that the command declares.
	ErrWrongReply = errors.New("eventsourcing: the reply has another type than the command declares")
	// ErrUnknownType means that the runtime does not host this type of entity.
	ErrUnknownType = errors.New("eventsourcing: no host for the type")
	// ErrInvalid is matched by errors about configurations and arguments.
	ErrInvalid = errors.New("eventsourcing: invalid")
	// ErrArgument means that a message can't be sent because the Ref, the ID or the message is
	// invalid. It matches ErrInvalid.
	ErrArgument = fmt.Errorf("%w argument", ErrInvalid)
	// ErrRecovery means that the entity could not be recovered. It wraps the reason.
	ErrRecovery = errors.New("eventsourcing: recovery failed")
	// ErrRecoveryTimeout means that a recovery made no progress for Config.RecoveryTimeout.
	ErrRecoveryTimeout = errors.New("eventsourcing: recovery made no progress")
)

// RecoveryFailed is the cause that Observer.Failure receives when an entity could not be recovered.
// Its field Err is the reason.
type RecoveryFailed = engine.RecoveryFailed

// recoveryError is the reason why an entity could not be recovered.
type recoveryError struct{ reason error }

func (e *recoveryError) Error() string { return e.reason.Error() }

// Is reports whether target is ErrRecovery.
func (e *recoveryError) Is(target error) bool { return target == ErrRecovery }

func (e *recoveryError) Unwrap() error { return e.reason }

// Refusal is a business error with a stable code, with which a handler refuses a command. Callers on
// any node match it with errors.Is. Two refusals match if their codes are equal.
type Refusal struct {
	code, message string
	kind          Kind
}

// Kind classifies a refusal for APIs, see StatusOf.
type Kind uint8

const (
	// Rejected means that the state does not allow the command. It is the default.
	Rejected Kind = iota
	// BadRequest means that the command is malformed.
	BadRequest
	// Denied means that the caller may not send the command.
	Denied
	// NotFound means that the object of the command does not exist.
	NotFound
	// AlreadyExists means that the object that the command creates already exists.
	AlreadyExists
)

// NewRefusal returns a refusal. The code must not change between releases. By convention it begins
// with the name of its package: "bank/insufficient_funds". It must not be empty or "internal", or
// begin with "refold/".
func NewRefusal(code, message string) *Refusal { return &Refusal{code: code, message: message} }

// OfKind returns the refusal with a kind. Callers on other nodes receive the kind too. A value that is
// not one of the constants counts as Rejected.
func (r *Refusal) OfKind(k Kind) *Refusal {
	if int(k) >= len(kindCodes()) {
		k = Rejected
	}
	return &Refusal{code: r.code, message: r.message, kind: k}
}

// Code returns the stable code.
func (r *Refusal) Code() string { return r.code }

// Kind returns the kind.
func (r *Refusal) Kind() Kind { return r.kind }

func (r *Refusal) Error() string { return r.message }

// Is reports whether target is a refusal with the same code.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.code == r.code
}

// PanicError is a panic of user code.
type PanicError struct {
	// PersistenceID is the persistence ID of the entity.
	PersistenceID string
	// Value is the argument of the panic.
	Value any
	// Stack is the stack trace of the panic.
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("eventsourcing: entity %q panicked: %s", e.PersistenceID, panics.Text(e.Value))
}

// Outcome is the effect of a command that ended in an error.
type Outcome uint8

const (
	// Done means that the events of the command are stored, or that there is no error.
	Done Outcome = iota
	// DoneNot means that no event of the command is stored, now or later.
	DoneNot
	// DonePartly means that some events of the command are stored.
	DonePartly
	// DoneUnknown means that the events of the command may be stored, now or later.
	DoneUnknown
	// DoneByEntity means that a handler has returned the error. Usually nothing is stored, unless the
	// error is in a callback or in a Decision with events.
	DoneByEntity
)

// Retry is the advice whether to send a command again after an error.
type Retry uint8

const (
	// RetryNo means that the command was done, or would lead to the same error again.
	RetryNo Retry = iota
	// RetryNow means that the same command may succeed at once.
	RetryNow
	// RetryLater means that the same command may succeed after a pause.
	RetryLater
	// RetryIfHarmless means that the command may be done twice if it is sent again.
	RetryIfHarmless
)

// Status describes an error of Ask for callers and APIs.
type Status struct {
	Outcome Outcome
	Retry   Retry
	// Code is the stable code of the error: the code of a Refusal, a code that begins with
	// "refold/" for errors of Refold, "internal" for any other error, and "" for nil.
	Code string
	// HTTP is a status code of HTTP, and GRPC one of gRPC.
	HTTP, GRPC int
}

// StatusOf describes an error of Ask. The package documentation has the table. The status of nil is
// the success: {Outcome: Done, HTTP: 200}.
func StatusOf(err error) Status {
	switch {
	case err == nil:
		return Status{HTTP: 200}
	case isAny(err, ErrPartlyStored):
		return Status{DonePartly, RetryNo, codeOf(err), 500, 13}
	case isAny(err, ErrOutcomeUnknown):
		return Status{DoneUnknown, RetryIfHarmless, codeOf(err), 504, 4}
	case isAny(err, ErrNoReply, ErrWrongReply):
		return Status{Done, RetryNo, codeOf(err), 500, 13}
	}
	if r, ok := errors.AsType[*Refusal](err); ok {
		s := Status{Outcome: DoneByEntity, Code: r.code}
		s.HTTP, s.GRPC = r.kind.status()
		return s
	}
	_, panicked := errors.AsType[*PanicError](err)
	switch {
	case panicked, isAny(err, ErrRejected, ErrReadOnly, ErrNoJournal):
		return Status{DoneNot, RetryNo, codeOf(err), 500, 13}
	case isAny(err, ErrInvalid):
		return Status{DoneNot, RetryNo, codeOf(err), 400, 3}
	case isAny(err, ErrUnhandled, ErrUnknownType):
		return Status{DoneNot, RetryNo, codeOf(err), 501, 12}
	case isAny(err, ErrStashFull):
		return Status{DoneNot, RetryLater, codeOf(err), 429, 8}
	case isAny(err, ErrConflict):
		return Status{DoneNot, RetryNow, codeOf(err), 503, 10}
	case isAny(err, ErrStopped, ErrNotStored, ErrRecovery, ErrRecoveryTimeout, journal.ErrHistoryGap):
		return Status{DoneNot, RetryLater, codeOf(err), 503, 14}
	case isAny(err, context.DeadlineExceeded):
		return Status{DoneNot, RetryNow, codeOf(err), 504, 4}
	case isAny(err, context.Canceled):
		return Status{DoneNot, RetryNow, codeOf(err), 499, 1}
	}
	return Status{DoneByEntity, RetryNo, codeOf(err), 500, 2}
}

func (k Kind) status() (http, grpc int) {
	switch k {
	case BadRequest:
		return 400, 3
	case Denied:
		return 403, 7
	case NotFound:
		return 404, 5
	case AlreadyExists:
		return 409, 6
	case Rejected:
	}
	return 422, 9
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// NotDone reports whether no event of the command is stored, now or later, so that the command can
// be sent again without harm. It is the same as StatusOf(err).Outcome == DoneNot.
func NotDone(err error) bool { return StatusOf(err).Outcome == DoneNot }

// codeOf returns the stable code of an error that is not a Refusal.
func codeOf(err error) string {
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

// reserved returns the codes of the errors of Refold. The code of an error is the first one that it
// matches.
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
		{ErrRecovery, "refold/recovery"},
		{ErrArgument, "refold/argument"},
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

const codePanic = "refold/panic"

// kindCodes returns the codes that carry the kind of a refusal to another node.
func kindCodes() []string {
	return []string{BadRequest: "refold/kind/bad_request", Denied: "refold/kind/denied", NotFound: "refold/kind/not_found", AlreadyExists: "refold/kind/already_exists"}
}

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

// errorOf returns the error of Refold with a code. It returns nil for a code that this version does
// not define.
func errorOf(code string) error {
	if code == codePanic {
		return &PanicError{Value: "see the log of the node that hosts the entity"}
	}
	for _, c := range reserved() {
		if c.code == code {
			return c.err
		}
	}
	return nil
}
