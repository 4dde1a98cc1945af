// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package panics_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// hostile is an error of which one method panics with the error itself.
type hostile struct{ method string }

func (h hostile) check(method string) {
	if h.method == method {
		panic(h)
	}
}

func (h hostile) Error() string {
	h.check("Error")
	return "hostile"
}

func (h hostile) Unwrap() error {
	h.check("Unwrap")
	return nil
}

func (h hostile) Is(error) bool {
	h.check("Is")
	return false
}

func (h hostile) As(any) bool {
	h.check("As")
	return false
}

func (h hostile) Format(s fmt.State, _ rune) {
	h.check("Format")
	_, _ = io.WriteString(s, "hostile")
}

// TestSafe checks that the methods of the results of Safe, Catch and Call never panic, whatever the
// methods of the user's error do.
func TestSafe(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Error", "Unwrap", "Is", "As", "Format"} {
		for _, bad := range []error{hostile{method}, errors.Join(io.EOF, hostile{method})} {
			for name, err := range map[string]error{
				"Safe":  panics.Safe(bad),
				"Catch": panics.Catch(func() error { return bad }),
				"Call":  panics.Call(func() { panic(bad) }),
			} {
				var p *fs.PathError
				if errors.Is(err, io.ErrNoProgress) || errors.As(err, &p) || !strings.Contains(fmt.Sprint(err), err.Error()) {
					t.Errorf("%s of an error whose %s panics: %v", name, method, err)
				}
			}
		}
	}
	if err := panics.Safe(io.EOF); err != io.EOF || panics.Safe(nil) != nil { //nolint:errorlint // returned as it is
		t.Errorf("Safe of io.EOF: %v", err)
	}
	if text := panics.Text(hostile{"Format"}); !strings.Contains(text, "hostile") {
		t.Errorf("Text = %q, want the type", text)
	}
}
