// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid matches errors about invalid keys and levels.
	ErrInvalid = errors.New("replication: invalid")
	// ErrMalformed matches errors about bytes that are not a message or record.
	ErrMalformed = errors.New("replication: malformed data")
	// ErrType matches errors about a value of another type than that of the key.
	ErrType = errors.New("replication: type mismatch")
	// ErrForeign is returned if a value was changed with the Self of another node.
	ErrForeign = errors.New("replication: changed with the Self of another node")
	// ErrFull is returned if the number of keys has reached Config.MaxKeys.
	ErrFull = errors.New("replication: too many keys")
)

// kindError is an error that matches kind, with the text of err.
type kindError struct{ kind, err error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

// Errorf is fmt.Errorf with an error that also matches kind. Its text does not contain that of kind,
// because the error of a request names its reason.
func Errorf(kind error, format string, args ...any) error {
	return &kindError{kind, fmt.Errorf(format, args...)}
}

// TooLargeError reports that a value would exceed the maximum size.
type TooLargeError struct {
	Key string
	// Size is the size of the encoded value, Max the limit, in bytes.
	Size, Max int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("value of %q would have %d bytes, limit %d", e.Key, e.Size, e.Max)
}
