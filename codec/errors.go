// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"strconv"

	"github.com/refold-io/refold/internal/panics"
)

var (
	// ErrNotRegistered is wrapped by errors about a Go type that has no name in the registry.
	ErrNotRegistered = errors.New("codec: type is not registered")
	// ErrUnknown is wrapped by the error about a manifest with an unknown name, version or format.
	ErrUnknown = errors.New("codec: unknown manifest")
	// ErrMalformed is wrapped by the errors about data that is damaged or truncated, has trailing
	// bytes, or does not fit the target type.
	ErrMalformed = errors.New("malformed data")
	// ErrLimit is wrapped by errors about values that are nested too deeply, and about data that
	// would need far more memory than its size.
	ErrLimit = errors.New("limit exceeded")
)

// PanicError reports a panic of a method of the value, of an upcaster, or of a Format.
type PanicError struct {
	Value any // the argument of the panic
}

func (e *PanicError) Error() string { return "panic: " + panics.Text(e.Value) }

// Unwrap returns the value of the panic, if that is an error. If a method of this error panics,
// Unwrap returns another error with its text.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return panics.Safe(err)
}

type pathError struct {
	path string // Field.Field[3]
	err  error
}

func (e *pathError) Error() string { return e.path + ": " + e.err.Error() }

func (e *pathError) Unwrap() error { return e.err }

// pathErrors is the list of errors of one value, each with its own path.
type pathErrors []error

func (m pathErrors) Error() string { return errors.Join(m...).Error() }

// at puts a field or an index, such as "Name" or "[3]", before the path of err.
func at(step string, err error) error {
	if all, ok := errors.AsType[pathErrors](err); ok {
		located := make(pathErrors, len(all))
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
