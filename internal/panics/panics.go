// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package panics converts panics into errors.
//
// Code of the user (handlers, observers, codecs, stores, strategies) runs inside Catch or below a
// deferred Into, so that a panic of this code fails one operation and does not end the program. The
// methods of an error are code of the user too, so Safe and Text contain their panics.
package panics

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Error is a recovered panic.
type Error struct {
	// Value is the argument of the panic. If it is an error, it is the result of Safe.
	Value any
	// Stack is the stack of the goroutine at the time of the panic, as debug.Stack formats it.
	Stack []byte
}

func (e *Error) Error() string { return "panic: " + Text(e.Value) }

// Unwrap returns the value of the panic if it is an error, otherwise nil.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Catch calls f and returns the result of Safe for its error. A panic of f is returned as an *Error.
func Catch(f func() error) (err error) {
	defer Into(&err)
	return Safe(f())
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
	if err, ok := recovered.(error); ok {
		recovered = Safe(err)
	}
	return &Error{Value: recovered, Stack: debug.Stack()}
}

// Safe returns err, or if one of the methods of err or of an error that it wraps panics, another
// error with the name of its type.
func Safe(err error) (safe error) {
	if err == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil { // not New, because the methods of p can panic as well
			safe = fmt.Errorf("error of type %T, which has a method that panics: %s", err, Text(p))
		}
	}()
	_ = err.Error()
	_ = fmt.Sprint(err)
	_ = errors.Is(err, errNone)
	_, _ = errors.AsType[none](err)
	return err
}

// errNone is an error that no other error matches.
var errNone error = none{}

type none struct{}

func (none) Error() string { return "none" }

// Text returns fmt.Sprint of a value, or if this panics, the name of its type. fmt recovers the
// panic of a method, but not that of a method of the panic's argument.
func Text(value any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T, which has a method that panics", value)
		}
	}()
	return fmt.Sprint(value)
}
