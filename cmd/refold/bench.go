// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/bench"
	"github.com/refold-io/refold/cmd/refold/operator"
)

// benchCommand is "refold bench".
type benchCommand struct {
	Name    string        `arg:"" default:"all" help:"A benchmark, a group (persistence), or all."`
	Journal string        `help:"Only on this journal: inmem:, leveldb: (a temporary directory) or leveldb:DIR (a new directory in DIR). Defaults to all that a benchmark is made for." placeholder:"ADDRESS"`
	JSON    bool          `name:"json" help:"Print one JSON object a line."`
	Rounds  int           `default:"5" help:"How often each side is measured."`
	Length  time.Duration `default:"2s" help:"How long a throughput is measured."`
	Scale   int           `default:"1" help:"Divide the sizes of the data sets. Then the goals mean nothing."`
}

// Validate checks the flags.
func (c *benchCommand) Validate() error {
	switch {
	case c.Rounds < 1:
		return fmt.Errorf("--rounds is %d, at least 1 is needed", c.Rounds)
	case c.Length <= 0:
		return fmt.Errorf("--length is %v, it has to be more than 0", c.Length)
	case c.Scale < 1:
		return fmt.Errorf("--scale is %d, at least 1 is needed", c.Scale)
	}
	return nil
}

// Run measures.
func (c *benchCommand) Run(ctx context.Context, env *operator.Env) error {
	rows, err := bench.Select(c.Name)
	if err != nil {
		return err
	}
	line := status{env: env}
	settings := bench.Settings{
		Journal: c.Journal, Rounds: c.Rounds, Length: c.Length, Scale: c.Scale, Progress: line.show,
	}
	if !c.JSON {
		if err := bench.WriteHeader(env.Stdout); err != nil {
			return err
		}
	}
	missed := false
	for _, row := range rows {
		var failed error
		err := row.Run(ctx, settings, func(r bench.Result) {
			line.clear()
			missed = missed || r.Met != nil && !*r.Met
			write := bench.WriteRow
			if c.JSON {
				write = bench.WriteJSON
			}
			if failed == nil {
				failed = write(env.Stdout, r)
			}
		})
		line.clear()
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
	}
	if missed {
		return operator.ErrProblems
	}
	return nil
}

// status is a line on the terminal that is written over.
type status struct {
	env   *operator.Env
	shown bool
}

func (s *status) show(what string) {
	if s.env.Terminal {
		s.shown = true
		_, _ = fmt.Fprintf(s.env.Stderr, "\r\x1b[K%s", what)
	}
}

func (s *status) clear() {
	if s.shown {
		s.shown = false
		_, _ = fmt.Fprint(s.env.Stderr, "\r\x1b[K")
	}
}
