// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fielderror_test

import (
	"errors"
	"io"
	"testing"

	"github.com/refold-io/refold/internal/fielderror"
)

var (
	errCore  = errors.New("core: invalid")
	errShell = errors.New("shell: invalid")
)

func TestErrors(t *testing.T) {
	t.Parallel()
	var errs fielderror.Errors
	if err := errs.Err(errCore); err != nil {
		t.Errorf("Err without errors: %v, want nil", err)
	}
	errs.Addf("Config.Size", "is %d, it must be at least 1", 0)
	errs.Add("Config.Name", nil)
	errs.Add("Config.Name", io.EOF)
	err := errs.Err(errCore)
	if want := "core: invalid: Config.Size is 0, it must be at least 1; Config.Name: EOF"; err.Error() != want {
		t.Errorf("the error is %q, want %q", err, want)
	}
	var field *fielderror.Error
	if !errors.Is(err, errCore) || !errors.Is(err, io.EOF) || !errors.As(err, &field) || field.Field != "Config.Size" {
		t.Errorf("the error %v does not match its kind and its errors", err)
	}
}

func TestRename(t *testing.T) {
	t.Parallel()
	var inner, outer fielderror.Errors
	inner.Addf("Settings.Size", "is %q", "Config.Size")
	inner.Addf("Settings.Other", "is missing")
	outer.Join(inner.Err(errCore), "Settings.", "Config.Settings.")
	outer.Join(io.EOF)
	outer.Join(nil)
	err := fielderror.Rename(errShell, outer.Err(errCore), "Config.Settings.Size", "Options.Buffer", "Config.", "Options.")
	if want := `shell: invalid: Options.Buffer is "Config.Size"; Options.Settings.Other is missing; EOF`; err.Error() != want {
		t.Errorf("the error is %q, want %q", err, want)
	}
	if !errors.Is(err, errShell) || errors.Is(err, errCore) || !errors.Is(err, io.EOF) {
		t.Errorf("the renamed error %v does not match errShell and io.EOF, or matches errCore", err)
	}
	if err := fielderror.Rename(errShell, nil, "a", "b"); err != nil {
		t.Errorf("Rename of nil = %v, want nil", err)
	}
}
