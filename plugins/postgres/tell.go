// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

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
