// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package panics converts panics into errors.
//
// Code of the user (handlers, observers, codecs, stores, strategies) runs inside Catch or below a
// deferred Into, so that a panic of this code fails one operation and does not end the program.
package panics

import (
	"fmt"
	"runtime/debug"
)

// Error is a recovered panic.
type Error struct {
	// Value is the argument of the panic.
	Value any
	// Stack is the stack of the goroutine at the time of the panic, as debug.Stack formats it.
	Stack []byte
}

func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error, otherwise nil.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Catch calls f and returns its error. A panic of f is returned as an *Error.
func Catch(f func() error) (err error) {
	defer Into(&err)
	return f()
}

// Call calls f. A panic of f is returned; the result is nil if f returns normally.
func Call(f func()) (p *Error) {
	defer func() { p = New(recover()) }()
	f()
	return nil
}

// Into recovers a panic of the calling function and stores it in err as an *Error. It must be
// deferred directly:
//
//	defer panics.Into(&err)
func Into(err *error) {
	if p := New(recover()); p != nil {
		*err = p
	}
}

// New returns the result of the built-in recover as an *Error with the current stack. It returns
// nil for nil. It is for deferred functions that do more than Into.
func New(recovered any) *Error {
	if recovered == nil {
		return nil
	}
	return &Error{Value: recovered, Stack: debug.Stack()}
}
