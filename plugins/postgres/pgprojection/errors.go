// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// serverError returns what the server has reported, nil if err is something else.
func serverError(err error) *pgconn.PgError {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	return pg
}

// class returns the first two characters of a SQLSTATE.
func class(pg *pgconn.PgError) string { return pg.Code[:min(2, len(pg.Code))] }

// lostRace reports whether a transaction was surely rolled back because of
// others, and may well succeed the next time: a deadlock, a serialization
// failure.
func lostRace(err error) bool {
	pg := serverError(err)
	return pg != nil && (pg.Code == "40001" || pg.Code == "40P01")
}

// outage reports whether an error is about the server and not about what it was
// asked: no connection, no memory or disk, a shutdown, a standby, a lock that was
// not to be had.
func outage(err error) bool {
	pg := serverError(err)
	if pg == nil {
		return false
	}
	switch class(pg) {
	case "08", "53", "58", "XX":
		return true
	case "57":
		return pg.Code != "57014" // canceled, as the statement took too long
	}
	return pg.Code == "25006" || pg.Code == "55P03"
}

// refused reports whether a commit was surely not done because of what was in the
// transaction: a statement had failed in it, or a deferred constraint did at the
// end.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	pg := serverError(err)
	return pg != nil && pg.SeverityUnlocalized == "ERROR" && !outage(err) && class(pg) != "40" && class(pg) != "57"
}
