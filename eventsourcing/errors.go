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
	// ErrClosed means that the runtime is closed, or that the type was withdrawn from it (Local.Close).
	// It matches ErrStopped.
	ErrClosed = fmt.Errorf("eventsourcing: runtime or host closed: %w", engine.ErrStopped)
	// ErrNotStored means that a write failed and that none of its events is stored now or later.
	ErrNotStored = engine.ErrNotStored
	// ErrPartlyStored means that a command failed after some of its events were stored: one of
	// several units, or the events before a callback.
	ErrPartlyStored = engine.ErrPartlyStored
	// ErrOutcomeUnknown means that the caller stopped waiting while its command was being handled. The
	// events of the command may be stored, now or later. It also means that a write seemed to fail and
	// another instance of the entity then deleted the records that would show whether it was stored.
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
	// ErrUnknownType means that a part of an entity, such as a delivery.Outbox, sends a command to
	// a type that its runtime cannot reach: see Runtime.Connect.
	ErrUnknownType = errors.New("eventsourcing: no host for the type")
	// ErrInvalid is matched by errors about configurations, and by the errors of handlers that return
	// an invalid effect.
	ErrInvalid = errors.New("eventsourcing: invalid")
	// ErrArgument means that a message can't be sent because the Ref, the ID or the message is
	// invalid. It matches ErrInvalid.
	ErrArgument = fmt.Errorf("%w argument", ErrInvalid)
	// ErrRecovery means that the entity could not be recovered. It wraps the reason.
	ErrRecovery = engine.ErrRecovery
	// ErrRecoveryTimeout means that a recovery made no progress for Config.RecoveryTimeout.
	ErrRecoveryTimeout = errors.New("eventsourcing: recovery made no progress")
)

// RecoveryFailed is the error (*RecoveryFailed) of an entity that could not be recovered. It matches
// ErrRecovery. Its field Err is the reason.
//
// The value RecoveryFailed is the signal that the entity receives after each such attempt, with the empty
// state of Type.New. The handler may log, notify others (Effect.Then, Effect.Go), or return Effect.Stop:
// then the entity leaves memory, and the next command starts the next attempt. Otherwise the entity
// tries again after a pause, see HostOptions.MinBackoff. An effect that would persist or delete something
// fails with ErrReadOnly. A panic of the handler of RecoveryCompleted causes no signal.
type RecoveryFailed = engine.RecoveryFailed

// Refusal is a business error with a stable code, with which a handler refuses a command. Callers on
// any node match it with errors.Is. Two refusals match if their codes are equal.
type Refusal struct {
	code, message string
	kind          Kind
}

// Kind classifies a refusal for APIs, see StatusOf. The values of the constants are stored, see
// delivery.Inbox, and never change.
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
	if err == nil {
		return Status{HTTP: 200}
	}
	for _, r := range errorTable() {
		if !r.matches(err) {
			continue
		}
		if refusal, ok := errors.AsType[*Refusal](err); ok && refusal != nil && r.Outcome == DoneByEntity {
			r.Code = refusal.code
			r.HTTP, r.GRPC = refusal.kind.status()
		}
		return r.Status
	}
	return Status{DoneByEntity, RetryNo, codeInternal, 500, 2}
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

// NotDone reports whether no event of the command is stored, now or later, so that the command can
// be sent again without harm. It is the same as StatusOf(err).Outcome == DoneNot.
func NotDone(err error) bool { return StatusOf(err).Outcome == DoneNot }

// errorRow is a row of the table of errors.
type errorRow struct {
	err  error // nil for a type, see matches
	code string
	Status
}

// Codes with a meaning of their own.
const (
	codeRefusal  = "" // a Refusal has its own code
	codePanic    = "refold/panic"
	codeInternal = "internal"
)

// errorTable returns the table of errors. The status of an error is that of the first row that matches. The
// codes must not change, because they travel between nodes.
func errorTable() []errorRow {
	of := func(err error, code string, o Outcome, r Retry, http, grpc int) errorRow {
		return errorRow{err, code, Status{o, r, code, http, grpc}}
	}
	return []errorRow{
		{errByEntity, "refold/by_entity", Status{DoneByEntity, RetryNo, codeInternal, 500, 2}},
		of(ErrPartlyStored, "refold/partly_stored", DonePartly, RetryNo, 500, 13),
		of(ErrOutcomeUnknown, "refold/outcome_unknown", DoneUnknown, RetryIfHarmless, 504, 4),
		of(ErrNoReply, "refold/no_reply", Done, RetryNo, 500, 13),
		of(ErrWrongReply, "refold/wrong_reply", Done, RetryNo, 500, 13),
		of(ErrRecoveryTimeout, "refold/recovery_timeout", DoneNot, RetryLater, 503, 14),
		of(ErrRecovery, "refold/recovery", DoneNot, RetryLater, 503, 14),
		of(nil, codePanic, DoneNot, RetryNo, 500, 13),
		of(ErrRejected, "refold/rejected", DoneNot, RetryNo, 500, 13),
		of(ErrReadOnly, "refold/read_only", DoneNot, RetryNo, 500, 13),
		of(ErrNoJournal, "refold/no_journal", DoneNot, RetryNo, 500, 13),
		of(ErrArgument, "refold/argument", DoneNot, RetryNo, 400, 3),
		of(ErrInvalid, "refold/invalid", DoneNot, RetryNo, 500, 13),
		of(codec.ErrNotRegistered, "refold/not_registered", DoneNot, RetryNo, 500, 13),
		of(ErrUnhandled, "refold/unhandled", DoneNot, RetryNo, 501, 12),
		of(ErrUnknownType, "refold/unknown_type", DoneNot, RetryNo, 501, 12),
		of(ErrStashFull, "refold/stash_full", DoneNot, RetryLater, 429, 8),
		of(engine.ErrOutboxFull, "refold/outbox_full", DoneNot, RetryLater, 429, 8),
		of(ErrConflict, "refold/conflict", DoneNot, RetryNow, 503, 10),
		of(ErrStopped, "refold/stopped", DoneNot, RetryLater, 503, 14),
		of(ErrNotStored, "refold/not_stored", DoneNot, RetryLater, 503, 14),
		of(journal.ErrHistoryGap, "refold/history_gap", DoneNot, RetryLater, 503, 14),
		of(context.DeadlineExceeded, "refold/deadline_exceeded", DoneNot, RetryNow, 504, 4),
		of(context.Canceled, "refold/canceled", DoneNot, RetryNow, 499, 1),
		// The last row, because code of the user below Refold, such as a codec, may return a refusal too.
		of(nil, codeRefusal, DoneByEntity, RetryNo, 0, 0),
	}
}

func (r *errorRow) matches(err error) bool {
	switch r.code {
	case codeRefusal:
		refusal, ok := errors.AsType[*Refusal](err)
		return ok && refusal != nil
	case codePanic:
		_, ok := errors.AsType[*PanicError](err)
		return ok
	}
	return errors.Is(err, r.err)
}

// errByEntity is matched by an error that a handler has returned and that also matches an error of the
// table. The events of the command may be stored, whatever that row reports.
var errByEntity = errors.New("eventsourcing: the handler returned an error of Refold")

// refusedError is an error that matches errByEntity.
type refusedError struct{ error }

// Is implements the method that errors.Is calls.
func (e *refusedError) Is(target error) bool { return target == errByEntity }

func (e *refusedError) Unwrap() error { return e.error }

// refusedWith returns the error with which a handler answers. A method of the handler's error may
// panic.
func refusedWith(err error) error {
	if _, ok := err.(*Refusal); ok || err == nil { //nolint:errorlint // the usual cases
		return err
	}
	refused := err
	_ = panics.Call(func() {
		if s := StatusOf(err); s.Outcome != DoneByEntity {
			refused = &refusedError{err}
		}
	})
	return refused
}

// kindCodes returns the codes that carry the kind of a refusal to another node.
func kindCodes() []string {
	return []string{BadRequest: "refold/kind/bad_request", Denied: "refold/kind/denied", NotFound: "refold/kind/not_found", AlreadyExists: "refold/kind/already_exists"}
}

// codes returns the codes of all errors of Refold that an error matches.
func codes(err error) []string {
	var all []string
	for _, r := range errorTable() {
		if r.code != codeRefusal && r.matches(err) {
			all = append(all, r.code)
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
	for _, r := range errorTable() {
		if r.code == code {
			return r.err
		}
	}
	return nil
}
