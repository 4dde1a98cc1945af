// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/bench"
	"github.com/refold-io/refold/cmd/refold/operator"
)

// fixed is a row with fixed results.
type fixed struct {
	results []bench.Result
	err     error
}

func (f fixed) Run(_ context.Context, s bench.Settings, emit func(bench.Result)) error {
	s.Progress("measuring")
	for _, r := range f.results {
		emit(r)
	}
	return f.err
}

func result(met *bool) bench.Result {
	return bench.Result{Group: "g", Name: "n", Journal: "inmem", Value: 2, Unit: "asks/s", Limit: 4, Ratio: 0.5, Goal: 0.6, Better: "higher", Met: met, Settings: "s"}
}

// The exit status reports whether each goal is met. A figure without a verdict is not a failure.
func TestGoals(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		rows []row
		want error
	}{
		"met":        {[]row{fixed{results: []bench.Result{result(&yes)}}}, nil},
		"no verdict": {[]row{fixed{results: []bench.Result{result(nil)}}, fixed{results: []bench.Result{result(&yes)}}}, nil},
		"missed":     {[]row{fixed{results: []bench.Result{result(&no), result(&yes)}}, fixed{results: []bench.Result{result(nil)}}}, operator.ErrProblems},
		"failed":     {[]row{fixed{results: []bench.Result{result(&no)}, err: broken}}, broken},
	} {
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			err := (&benchCommand{JSON: asJSON}).measure(t.Context(), &operator.Env{Stdout: &out}, c.rows)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%s: measure = %v, want %v", name, err, c.want)
			}
			if out.Len() == 0 {
				t.Errorf("%s: measure printed nothing", name)
			}
		}
	}
	if err := (&benchCommand{}).measure(t.Context(), &operator.Env{}, []row{fixed{}}); err == nil || errors.Is(err, operator.ErrProblems) {
		t.Errorf("measure without figures = %v, want an error other than ErrProblems", err)
	}
}

// A table has one header, JSON has none, and the status line is removed at the end.
func TestBenchOutput(t *testing.T) {
	t.Parallel()
	rows := []row{fixed{results: []bench.Result{result(nil)}}, fixed{results: []bench.Result{result(nil)}}}
	for _, terminal := range []bool{false, true} {
		for _, asJSON := range []bool{false, true} {
			var out, errs bytes.Buffer
			env := &operator.Env{Stdout: &out, Stderr: &errs, Terminal: terminal}
			if err := (&benchCommand{JSON: asJSON}).measure(t.Context(), env, rows); err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{false: 3, true: 2}[asJSON]; strings.Count(out.String(), "\n") != want {
				t.Errorf("JSON %v: printed %q, want %d lines", asJSON, out.String(), want)
			}
			if terminal != strings.Contains(errs.String(), "measuring") || terminal && !strings.HasSuffix(errs.String(), "\r\x1b[K") {
				t.Errorf("terminal %v: status line %q, want a line with \"measuring\" that is removed at the end only on a terminal", terminal, errs.String())
			}
		}
	}
}

// Without the name of a benchmark, the command lists the benchmarks and measures nothing.
func TestBenchList(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"bench":        "snapshot-recover  persistence  leveldb\n",
		"bench --json": `{"group":"persistence","journals":["leveldb"],"name":"snapshot-recover"}` + "\n",
	} {
		var out, errs bytes.Buffer
		p := program()
		p.Stdout, p.Stderr = &out, &errs
		if status := p.Run(t.Context(), strings.Fields(args)); status != operator.ExitOK || errs.Len() > 0 {
			t.Errorf("%s: exit status %d, standard error %q; want %d and nothing", args, status, errs.String(), operator.ExitOK)
		}
		if !strings.Contains(out.String(), want) || strings.Count(out.String(), "persistence")+strings.Count(out.String(), "cluster")+strings.Count(out.String(), "ddata-")+strings.Count(out.String(), "shard-") != len(bench.Rows()) {
			t.Errorf("%s printed\n%s\nwant all %d benchmarks, with %q", args, out.String(), len(bench.Rows()), want)
		}
	}
}

func TestBenchArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []benchCommand{
		{Rounds: 0, Length: time.Second, Entities: 100, Scale: 1},
		{Rounds: 1, Length: time.Millisecond, Entities: 100, Scale: 1},
		{Rounds: 1, Length: time.Second, Entities: 99, Scale: 1},
		{Rounds: 1, Length: time.Second, Entities: 100, Scale: 0},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("Validate of %+v returned no error", c)
		}
	}
	for args, want := range map[string]string{
		"bench none":                            `no benchmark "none"`,
		"bench wake --journal file:x":           "must be inmem:, leveldb:, leveldb:DIR, nats:, postgres: or a PostgreSQL URL",
		"bench wake --journal leveldb:":         "no figure for --journal leveldb:",
		"bench persist --rounds 0":              "--rounds is 0",
		"verify --journal leveldb:/nonexistent": "the directory does not exist",
	} {
		var out, errs bytes.Buffer
		p := program()
		p.Stdout, p.Stderr = &out, &errs
		if status := p.Run(t.Context(), strings.Fields(args)); status != operator.ExitFailed || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit status %d, standard error %q; want %d and %q", args, status, errs.String(), operator.ExitFailed, want)
		}
	}
}

// TestBench runs a benchmark with small sizes.
func TestBench(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	p := program()
	p.Stdout, p.Stderr = &out, &errs
	status := p.Run(t.Context(), strings.Fields("bench persist --journal leveldb:"+t.TempDir()+" --rounds 1 --length 20ms --scale 1000 --json"))
	if status == operator.ExitFailed || errs.Len() > 0 {
		t.Errorf("exit status %d, standard error %q; want no failure and nothing", status, errs.String())
	}
	if !strings.HasPrefix(out.String(), `{"group":"persistence","name":"persist","journal":"leveldb",`) {
		t.Errorf("printed %s, want a result of persist on leveldb", out.String())
	}
}
