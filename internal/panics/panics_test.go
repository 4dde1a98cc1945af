// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package panics_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/panics"
)

func TestCatch(t *testing.T) {
	t.Parallel()
	if err := panics.Catch(func() error { return nil }); err != nil {
		t.Errorf("Catch without an error: %v, want nil", err)
	}
	if err := panics.Catch(func() error { return io.EOF }); err != io.EOF { //nolint:errorlint // returned as it is
		t.Errorf("Catch of an error: %v, want io.EOF", err)
	}
	err := panics.Catch(func() error { return explode(io.ErrClosedPipe) })
	var p *panics.Error
	if !errors.As(err, &p) || !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(string(p.Stack), "explode") {
		t.Errorf("Catch of a panic with an error: %v, want an *Error that matches it, with the stack", err)
	}
	if err := panics.Catch(func() error { return explode("boom") }); err.Error() != "panic: boom" || errors.Unwrap(err) != nil {
		t.Errorf("Catch of a panic with a text: %v, want panic: boom", err)
	}
}

func explode(with any) error { panic(with) }

func TestCall(t *testing.T) {
	t.Parallel()
	if p := panics.Call(func() {}); p != nil {
		t.Errorf("Call without a panic: %v, want nil", p)
	}
	if p := panics.Call(func() { panic(7) }); p == nil || p.Value != 7 {
		t.Errorf("Call of a function that panics: %v, want the value 7", p)
	}
}
