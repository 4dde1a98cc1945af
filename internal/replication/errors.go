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

// TooLargeError reports that a value would exceed the maximum size.
type TooLargeError struct {
	Key string
	// Size is the size of the encoded value, Max the limit, in bytes.
	Size, Max int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("replication: value of %q would have %d bytes, limit %d", e.Key, e.Size, e.Max)
}
