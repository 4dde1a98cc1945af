// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/bench"
	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
)

type benchCommand struct {
	Name     string        `arg:"" optional:"" help:"A benchmark, a group (persistence, cluster, ddata, sharding), or all. Without one, the command lists them."`
	Journal  string        `help:"Run only on this journal: inmem:, leveldb: (a temporary directory), leveldb:DIR (a new directory in DIR), postgres: (a private server) or postgres://USER@HOST/DATABASE (a new schema). Defaults to all that need no server." placeholder:"ADDRESS"`
	JSON     bool          `name:"json" help:"Print one JSON object per line."`
	Rounds   int           `default:"5" help:"Number of measurements of each side."`
	Length   time.Duration `default:"2s" help:"Duration of a throughput measurement."`
	Runs     int           `default:"1" help:"Number of kills of a node, or of joins under load."`
	Entities int           `default:"10000" help:"Number of entities with 200 events each in shard-standby; 100,000 need 8 GB of disk."`
	Scale    int           `default:"1" help:"Divide the sizes of the data sets. The goals are then invalid."`
}

const shortest = 10 * time.Millisecond

func (c *benchCommand) Help() string {
	return `Measures each figure alternately with its limit on this machine: the throughput of the disk, of LevelDB or of channels
without Refold. It compares the ratio of both with a goal. The exit status is 1 if a goal is missed. Some goals cannot be
checked on some machines, for example because the disk is too fast: "met" is then null in JSON.

Run it on an idle machine, because other programs distort the ratio. Larger --rounds and --length make the ratio steadier;
see docs/benchmarks.md.

It writes its data to new directories and removes them at the end.`
}

func (c *benchCommand) Validate() error {
	switch {
	case c.Rounds < 1:
		return fmt.Errorf("--rounds is %d, must be at least 1", c.Rounds)
	case c.Length < shortest:
		return fmt.Errorf("--length is %v, must be at least %v", c.Length, shortest)
	case c.Entities < 100:
		return fmt.Errorf("--entities is %d, must be at least 100", c.Entities)
	case c.Scale < 1:
		return fmt.Errorf("--scale is %d, must be at least 1", c.Scale)
	}
	return nil
}

type row interface {
	Run(ctx context.Context, s bench.Settings, emit func(bench.Result)) error
}

func (c *benchCommand) Run(ctx context.Context, env *operator.Env) error {
	if c.Name == "" {
		return c.list(env)
	}
	selected, err := bench.Select(c.Name)
	if err != nil {
		return err
	}
	rows := make([]row, len(selected))
	for i, r := range selected {
		rows[i] = r
	}
	return c.measure(ctx, env, rows)
}

func (c *benchCommand) list(env *operator.Env) error {
	table := console.NewTable(env.Stdout, c.JSON, "NAME", "GROUP", "JOURNALS")
	for _, r := range bench.Rows() {
		if err := table.Add(
			func() any { return map[string]any{"name": r.Name, "group": r.Group, "journals": r.Journals} },
			func() []string { return []string{r.Name, r.Group, strings.Join(r.Journals, ", ")} },
		); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil || c.JSON {
		return err
	}
	_, err := fmt.Fprintf(env.Stdout, "\n\"%s bench all\" runs all of them; the machine should be idle.\n", env.Name)
	return err
}

func (c *benchCommand) measure(ctx context.Context, env *operator.Env, rows []row) error {
	results, missed := 0, false
	var failed error // the first error of printing a result
	line := console.NewStatus(env.Stderr, env.Terminal, 0)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	settings := bench.Settings{
		Journal: c.Journal, Rounds: c.Rounds, Length: c.Length, Runs: c.Runs, Entities: c.Entities, Scale: c.Scale, Progress: func(subject string) { line.Show("%s", subject) },
		Worker: []string{program, "demo", "serve"},
	}
	for _, r := range rows {
		err := r.Run(ctx, settings, func(r bench.Result) {
			line.Clear()
			missed = missed || r.Met != nil && !*r.Met
			results++
			if failed == nil {
				failed = c.print(env.Stdout, r, results == 1)
			}
		})
		line.Clear()
		if err = errors.Join(err, failed); err != nil {
			return err
		}
	}
	switch {
	case results == 0:
		return fmt.Errorf("%s has no figure for --journal %s", c.Name, c.Journal)
	case missed:
		return operator.ErrProblems
	}
	return nil
}

func (c *benchCommand) print(w io.Writer, r bench.Result, first bool) error {
	if c.JSON {
		return bench.WriteJSON(w, r)
	}
	if first {
		if err := bench.WriteHeader(w); err != nil {
			return err
		}
	}
	return bench.WriteRow(w, r)
}
