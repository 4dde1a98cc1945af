// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"strconv"
)

// pathError says where in a value something is wrong.
type pathError struct {
	path string // Field.Field[3]
	err  error
}

func (e *pathError) Error() string { return e.path + ": " + e.err.Error() }

func (e *pathError) Unwrap() error { return e.err }

// mistakes are errors that were found together, each with its own path.
type mistakes []error

func (m mistakes) Error() string { return errors.Join(m...).Error() }

// at puts a field or an index, such as "Name" or "[3]", before the path of err.
func at(step string, err error) error {
	if all, ok := errors.AsType[mistakes](err); ok {
		located := make(mistakes, len(all))
		for i, err := range all {
			located[i] = at(step, err)
		}
		return located
	}
	if inner, ok := errors.AsType[*pathError](err); ok {
		if inner.path[0] != '[' {
			step += "."
		}
		return &pathError{path: step + inner.path, err: inner.err}
	}
	return &pathError{path: step, err: err}
}

func atIndex(i int, err error) error { return at("["+strconv.Itoa(i)+"]", err) }
