// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Outcome is the result of a run in one word.
type Outcome string

// The outcomes.
const (
	// Caught: a test failed.
	Caught Outcome = "caught"
	// Missed: all tests passed.
	Missed Outcome = "MISSED"
	// Broken: the mutant does not match the source code or does not compile, or its test fails
	// without the fault.
	Broken Outcome = "BROKEN"
)

// Result is the outcome of one mutant.
type Result struct {
	Mutant  Mutant
	Outcome Outcome
	// Detail is the output of go test. If the outcome is Caught, it has only the lines that begin
	// with "noticed:".
	Detail string
	Took   time.Duration
}

// Runner runs mutants.
type Runner struct {
	// Source is the source code of the module. Its root must be an absolute path. Required.
	Source *Source
	// Timeout is how long a test may take. Defaults to 2 minutes.
	Timeout time.Duration
}

// Healthy runs a mutant's test without the fault. It returns an error if the test does not pass.
func (r Runner) Healthy(ctx context.Context, test []string) error {
	out, err := r.goCommand(ctx, slices.Concat([]string{"test", "-timeout", r.timeout().String()}, test))
	switch {
	case err != nil:
		return fmt.Errorf("the test does not pass without the fault: %w\n%s", err, out)
	case bytes.Contains(out, []byte("no tests to run")):
		return errors.New("-run matches no test")
	}
	return nil
}

// Run plants the fault and runs the test, which must be Healthy.
func (r Runner) Run(ctx context.Context, m Mutant) Result {
	start := time.Now()
	result := Result{Mutant: m, Outcome: Caught}
	out, err := r.runWithFault(ctx, m)
	failure, isFailure := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		result.Outcome, result.Detail = Missed, string(out)
	case !isFailure || failure.ExitCode() != 1 || bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		result.Outcome, result.Detail = Broken, fmt.Sprintf("%v\n%s", err, out)
	default:
		result.Detail = noticed(out)
	}
	result.Took = time.Since(start)
	return result
}

// noticed returns the lines in which a test names the check that failed.
func noticed(out []byte) string {
	var found []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "noticed:") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "\n")
}

// runWithFault runs the test with the changed files.
func (r Runner) runWithFault(ctx context.Context, m Mutant) (out []byte, err error) {
	fit, err := r.Source.Fit(m)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	replace := make(map[string]string)
	for name, text := range fit.Files {
		changed := filepath.Join(dir, fmt.Sprintf("%d%s", len(replace), filepath.Ext(name)))
		replace[filepath.Join(r.Source.Root, filepath.FromSlash(name))] = changed
		if err = os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	plan, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, plan, 0o600); err != nil {
		return nil, err
	}
	return r.goCommand(ctx, slices.Concat([]string{"test", "-overlay", overlay, "-timeout", r.timeout().String(), "-failfast"}, m.Test))
}

func (r Runner) timeout() time.Duration { return cmp.Or(r.Timeout, 2*time.Minute) }

func (r Runner) goCommand(ctx context.Context, args []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are those of our mutants
	cmd.Dir = r.Source.Root
	out, err := cmd.CombinedOutput()
	if len(out) > 4000 {
		out = append([]byte("…"), out[len(out)-4000:]...)
	}
	return []byte(strings.ToValidUTF8(string(out), "")), err
}
