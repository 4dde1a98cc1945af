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
	// ErrSchema says that tables are missing: the schema was never migrated, or
	// not as far as this version needs it.
	ErrSchema = errors.New("postgres: schema is not there as it should be")
	// ErrReadOnly says that the server takes no writes: it is a standby, or the
	// database or the role is set to read-only transactions.
	ErrReadOnly = errors.New("postgres: server is read-only")
	// ErrDenied says that the role lacks a right.
	ErrDenied = errors.New("postgres: missing right")
	// ErrDSN says that a connection string can't be parsed. What is wrong with it is not quoted,
	// because passwords are.
	ErrDSN = errors.New("postgres: invalid connection string: " + dsnForm)
)

const dsnForm = "it must be like postgres://user:password@host:5432/database, with special characters percent-encoded, or like host=a port=5432 dbname=b user=c"

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

// certain reports whether an error is one after which the statement that it
// ended is surely not committed, now or later:
//
//   - nothing was sent, or
//   - the server itself reported that it gave the statement up. The statement is
//     a transaction of its own, which the server commits after the last thing that can
//     report an ERROR.
//
// A FATAL error ends the session and may come at any moment, so it says
// nothing about the commit. Nor do those that a proxy makes up when it has lost the
// server, or that the server reports about itself.
func certain(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return pgconn.SafeToRetry(err)
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

// translate turns an error of the driver into one of ours that says in plain
// words what is wrong. ctx is the context of the call.
func (db *DB) translate(ctx context.Context, err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg):
		return db.translateServer(ctx, pg, err)
	case ctx.Err() != nil:
		return ended(ctx, err)
	}
	return tell([]error{journal.ErrUnavailable, err}, "%s is unavailable: %s", db.target, reason(err))
}

// ended is the error of a call whose context has ended.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if why := reason(err); why != cause.Error() {
		return tell([]error{cause, err}, "%v (%s)", cause, why)
	}
	return tell([]error{cause, err}, "%v", cause)
}

func (db *DB) translateServer(ctx context.Context, pg *pgconn.PgError, err error) error {
	switch pg.Code {
	case codeCanceled:
		if ctx.Err() != nil {
			return ended(ctx, err)
		}
		return tell([]error{err}, "%s canceled the statement: %s", db.target, reason(err))
	case codeNoTable, codeNoSchema, codeNoColumn, codeNoFunction:
		return db.schemaError(err, "is not there as it should be: %s", reason(err))
	case codeTableThere, codeObjectThere, codeFunctionThere, codeSchemaThere:
		return db.schemaError(err, "holds something with the name of what is to be created: %s", reason(err))
	case codeDenied:
		return tell([]error{ErrDenied, err}, "role %q lacks a right in schema %q of %s: %s", db.role, db.cfg.Schema, db.target, reason(err))
	case codeReadOnly:
		return tell([]error{ErrReadOnly, err}, "%s is read-only: %s", db.target, reason(err))
	case codeDiskFull:
		return tell([]error{journal.ErrUnavailable, err}, "the disk of %s is full: %s", db.target, reason(err))
	case codeDataCorrupted, codeIndexCorrupted:
		return &journal.CorruptError{File: db.target, Offset: -1, Detail: pg.Error()}
	}
	if class := pg.Code[:min(2, len(pg.Code))]; class == "08" || class == "53" || class == "57" || class == "58" || class == "28" || class == "3D" || severity(pg) == "FATAL" {
		return tell([]error{journal.ErrUnavailable, err}, "%s is unavailable: %s", db.target, reason(err))
	}
	return tell([]error{err}, "%s: %s", db.target, reason(err))
}

// schemaError is an ErrSchema that says what is wrong with the schema. cause may
// be nil.
func (db *DB) schemaError(cause error, format string, args ...any) error {
	of := []error{ErrSchema}
	if cause != nil {
		of = append(of, cause)
	}
	return tell(of, "schema %q of %s %s", db.cfg.Schema, db.target, fmt.Sprintf(format, args...))
}

// told is an error in one sentence of ours. It matches all that it is made of,
// whose own texts would repeat where they come from in the middle of it.
type told struct {
	text string
	of   []error
}

func (e *told) Error() string   { return e.text }
func (e *told) Unwrap() []error { return e.of }

// tell makes an error with a text that matches others.
func tell(of []error, format string, args ...any) error {
	return &told{text: fmt.Sprintf(format, args...), of: of}
}

// reason is the text of an error of the driver, on one line: what the server
// said, or else what the network did. What the driver was about is said by the
// caller.
func reason(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Error()
	}
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = failed.Unwrap()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
