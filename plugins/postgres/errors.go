// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refold-io/refold/journal"
)

var (
	// ErrSchema reports missing or changed tables: the schema was not migrated as far as this
	// version needs.
	ErrSchema = errors.New("postgres: invalid schema")
	// ErrReadOnly reports that the server accepts no writes: it is a standby, or the database or
	// the role has read-only transactions.
	ErrReadOnly = errors.New("postgres: server is read-only")
	// ErrDenied reports that the role lacks a right.
	ErrDenied = errors.New("postgres: missing right")
	// ErrDSN reports an invalid connection string, or one that permits plaintext to another machine
	// without sslmode=disable. The error does not quote the string, which may contain a password.
	ErrDSN = errors.New("postgres: invalid connection string: want a URL like postgres://user:password@host:5432/database?sslmode=verify-full, " +
		"with special characters percent-encoded, or keywords like host=a port=5432 dbname=b user=c sslmode=verify-full")
	errPlaintext = describe([]error{ErrDSN}, "postgres: the connection string permits connections to other machines without TLS: set sslmode=verify-full, or sslmode=disable to allow plaintext")
)

// SQLSTATEs.
const (
	codeUniqueViolation = "23505"
	codeReadOnly        = "25006"
	codeDenied          = "42501"
	codeNoTable         = "42P01"
	codeNoColumn        = "42703"
	codeNoFunction      = "42883"
	codeNoSchema        = "3F000"
	codeTableThere      = "42P07"
	codeObjectThere     = "42710"
	codeFunctionThere   = "42723"
	codeSchemaThere     = "42P06"
	codeDiskFull        = "53100"
	codeCanceled        = "57014"
	codeDataCorrupted   = "XX001"
	codeIndexCorrupted  = "XX002"
	codeRewound         = "RF001" // of append_one and append_many
)

// certain reports whether the statement that failed with this error is certainly not committed, now
// or later:
//
//   - nothing was sent, or
//   - the server itself reported that it aborted the statement. The statement is a transaction, which
//     the server commits after the last point that can report an ERROR.
//
// A FATAL error may end the session before or after the commit, so it proves nothing about the
// commit. Errors that a proxy generates after it lost the server, and internal errors of the
// server, prove nothing either.
func certain(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return errors.Is(err, errNotStarted) || pgconn.SafeToRetry(err)
	}
	if severity(pg) != "ERROR" || len(pg.Code) != 5 {
		return false
	}
	switch pg.Code[:2] {
	case "08", "58", "XX": // connection, system, internal
		return false
	case "57":
		return pg.Code == codeCanceled
	}
	return pg.Code != "40003" // statement completion unknown
}

func severity(pg *pgconn.PgError) string {
	if pg.SeverityUnlocalized != "" {
		return pg.SeverityUnlocalized
	}
	return pg.Severity
}

// translate converts an error of the driver to one of this package with a plain description. ctx is
// the context of the call.
func (db *DB) translate(ctx context.Context, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return db.translateServer(ctx, pg, err)
	case ctx.Err() != nil:
		return contextError(ctx, err)
	}
	return describe([]error{journal.ErrUnavailable, err}, "%s is unavailable: %s", db.target, reason(err))
}

func contextError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if why := reason(err); why != cause.Error() {
		return describe([]error{cause, err}, "%v (%s)", cause, why)
	}
	return describe([]error{cause, err}, "%v", cause)
}

func (db *DB) translateServer(ctx context.Context, pg *pgconn.PgError, err error) error {
	switch pg.Code {
	case codeCanceled:
		if ctx.Err() != nil {
			return contextError(ctx, err)
		}
		return describe([]error{err}, "%s canceled the statement: %s", db.target, reason(err))
	case codeNoTable, codeNoSchema, codeNoColumn, codeNoFunction:
		return db.schemaError(err, "is invalid: %s", reason(err))
	case codeTableThere, codeObjectThere, codeFunctionThere, codeSchemaThere:
		return db.schemaError(err, "contains an object with a required name: %s", reason(err))
	case codeDenied:
		return describe([]error{ErrDenied, err}, "role %q lacks a right in schema %q of %s: %s", db.role, db.cfg.Schema, db.target, reason(err))
	case codeReadOnly:
		return describe([]error{ErrReadOnly, err}, "%s is read-only: %s", db.target, reason(err))
	case codeDiskFull:
		return describe([]error{journal.ErrUnavailable, err}, "the disk of %s is full: %s", db.target, reason(err))
	case codeDataCorrupted, codeIndexCorrupted:
		return &journal.CorruptError{File: db.target, Offset: -1, Detail: pg.Error()}
	}
	if class := pg.Code[:min(2, len(pg.Code))]; class == "08" || class == "53" || class == "57" || class == "58" || class == "28" || class == "3D" || severity(pg) == "FATAL" {
		return describe([]error{journal.ErrUnavailable, err}, "%s is unavailable: %s", db.target, reason(err))
	}
	return describe([]error{err}, "%s: %s", db.target, reason(err))
}

// schemaError returns an ErrSchema with a description. cause may be nil.
func (db *DB) schemaError(cause error, format string, args ...any) error {
	of := []error{ErrSchema}
	if cause != nil {
		of = append(of, cause)
	}
	return describe(of, "schema %q of %s %s", db.cfg.Schema, db.target, fmt.Sprintf(format, args...))
}

// described is an error with its own text that also matches other errors. The texts of these errors
// are not part of its text.
type described struct {
	text string
	of   []error
}

func (e *described) Error() string   { return e.text }
func (e *described) Unwrap() []error { return e.of }

func describe(of []error, format string, args ...any) error {
	return &described{text: fmt.Sprintf(format, args...), of: of}
}

// wrap adds the operation to an error. It is deferred.
func wrap(err *error, operation string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("postgres: %s: %w", fmt.Sprintf(operation, args...), *err)
	}
}

// reason returns the text of an error of the driver on one line: the message of the server or the
// network, without the driver's context.
func reason(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Error()
	}
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = failed.Unwrap()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
