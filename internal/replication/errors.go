// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid is matched by the errors about keys and levels that can't be.
	ErrInvalid = errors.New("replication: invalid")
	// ErrMalformed is matched by the errors about bytes that are no message or no
	// record.
	ErrMalformed = errors.New("replication: malformed data")
	// ErrType is matched by the errors about a value that is of another type than
	// what the key holds.
	ErrType = errors.New("replication: the key holds another type")
	// ErrForeign says that a value was changed on behalf of another node.
	ErrForeign = errors.New("replication: changed with the Self of another node")
	// ErrFull says that there are as many keys as there may be.
	ErrFull = errors.New("replication: too many keys")
)

// TooLargeError says that a value would be too large to be sent to the others.
type TooLargeError struct {
	Key string
	// Size is that of the encoded value, Max what is allowed, in bytes.
	Size, Max int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("replication: the value of %q would have %d bytes, at most %d are allowed", e.Key, e.Size, e.Max)
}

// PanicError says that a function that changes a value has panicked.
type PanicError struct{ Value any }

func (e *PanicError) Error() string { return fmt.Sprintf("replication: panic: %v", e.Value) }
