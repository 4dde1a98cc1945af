// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
)

var (
	// ErrNotRegistered is wrapped by the error about a Go type that has no
	// name in the registry.
	ErrNotRegistered = errors.New("codec: type is not registered")
	// ErrUnknown is wrapped by the error about a manifest that the registry
	// can't read: an unknown name, version or format.
	ErrUnknown = errors.New("codec: unknown manifest")
	// ErrMalformed is wrapped by the errors about bytes that are damaged, cut
	// short, followed by more, or do not fit the type they are read into.
	ErrMalformed = errors.New("malformed data")
	// ErrLimit is wrapped by the errors about values that are nested too
	// deeply, and about data that would take far more memory than its size.
	ErrLimit = errors.New("limit exceeded")
)

// PanicError says that a method of the value, an upcaster or a format of the
// user's panicked.
type PanicError struct {
	Value any // what it panicked with
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
