// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
)

// ErrContract says that a journal did what no journal may do, such as to answer
// with a wrong number of slots or to panic. The outcome of the writes is
// unknown.
var ErrContract = errors.New("journal: contract broken by the plugin")

// PanicError says that a journal panicked. It matches ErrContract.
type PanicError struct {
	// Value is what it panicked with.
	Value any
	// Stack is the stack of the panic.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("%v: panic: %v", ErrContract, e.Value) }

// Is reports whether target is ErrContract.
func (e *PanicError) Is(target error) bool { return target == ErrContract }
