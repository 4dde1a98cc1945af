// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/bench"
	"github.com/refold-io/refold/cmd/refold/operator"
)

// benchCommand is "refold bench".
type benchCommand struct {
	Name    string        `arg:"" optional:"" help:"A benchmark, a group (persistence, cluster, ddata, sharding), or all. Defaults to a list of them."`
	Journal string        `help:"Only on this journal: inmem:, leveldb: (a temporary directory), leveldb:DIR (a new directory in DIR), postgres: (a private server) or postgres://USER@HOST/DATABASE (a schema of its own there). Defaults to all that need no server." placeholder:"ADDRESS"`
	JSON    bool          `name:"json" help:"Print one JSON object a line."`
	Rounds  int           `default:"5" help:"How often each side is measured."`
	Length  time.Duration `default:"2s" help:"How long a throughput is measured."`
	Runs    int           `default:"1" help:"How often a node is killed, or joins under load."`
	Scale   int           `default:"1" help:"Divide the sizes of the data sets. Then the goals mean nothing."`
}

// shortest is a time in which something happens for sure.
const shortest = 10 * time.Millisecond

// Help is the long help of the command.
func (c *benchCommand) Help() string {
	return `Each figure is measured in turns with its raw limit, on this machine: what the disk, LevelDB or channels can do
without Refold. Their ratio is held against a goal. The exit status is 1 if one is not met. A figure that does not
count here, because the disk is too fast to tell, has no verdict ("met" is null).

A verdict needs an idle machine: what else runs takes a different part of either side, and a ratio then says
little. --rounds and --length make it steadier; docs/benchmarks.md says more.

Data is written to new directories, which are removed at the end.`
}

// Validate checks the flags.
func (c *benchCommand) Validate() error {
	switch {
	case c.Rounds < 1:
		return fmt.Errorf("--rounds is %d, at least 1 is needed", c.Rounds)
	case c.Length < shortest:
		return fmt.Errorf("--length is %v, at least %v is needed", c.Length, shortest)
	case c.Scale < 1:
		return fmt.Errorf("--scale is %d, at least 1 is needed", c.Scale)
	}
	return nil
}

// row is a bench.Row.
type row interface {
	Run(ctx context.Context, s bench.Settings, emit func(bench.Result)) error
}

// Run measures.
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

// list shows what there is to measure.
func (c *benchCommand) list(env *operator.Env) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	head := []string{"NAME", "GROUP", "JOURNALS"}
	if !c.JSON {
		_, _ = fmt.Fprintln(table, strings.Join(head, "\t"))
	}
	for _, r := range bench.Rows() {
		if !c.JSON {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", r.Name, r.Group, strings.Join(r.Journals, ", "))
			continue
		}
		line, err := json.Marshal(map[string]any{"name": r.Name, "group": r.Group, "journals": r.Journals})
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	_ = table.Flush() // into memory
	if !c.JSON {
		fmt.Fprintf(&text, "\n\"%s bench all\" measures them all; the machine should be idle.\n", env.Name)
	}
	_, err := fmt.Fprint(env.Stdout, text.String())
	return err
}

// measure runs the rows, and prints each result as soon as it is there.
func (c *benchCommand) measure(ctx context.Context, env *operator.Env, rows []row) error {
	p := printer{json: c.JSON, out: env.Stdout}
	line := status{env: env}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	settings := bench.Settings{
		Journal: c.Journal, Rounds: c.Rounds, Length: c.Length, Runs: c.Runs, Scale: c.Scale, Progress: line.show,
		Node: []string{program, "demo", "serve", "node"}, DataNode: []string{program, "demo", "serve", "data"},
		ShardNode: []string{program, "demo", "serve", "shards"},
	}
	for _, r := range rows {
		err := r.Run(ctx, settings, func(r bench.Result) {
			line.clear()
			p.print(r)
		})
		line.clear()
		if err = errors.Join(err, p.err); err != nil {
			return err
		}
	}
	switch {
	case p.results == 0:
		return fmt.Errorf("%s has no figures on --journal %s", c.Name, c.Journal)
	case p.missed:
		return operator.ErrProblems
	}
	return nil
}

// printer prints results.
type printer struct {
	json    bool
	out     io.Writer
	results int
	missed  bool // some goal is not met
	err     error
}

func (p *printer) print(r bench.Result) {
	if p.err != nil {
		return
	}
	p.missed = p.missed || r.Met != nil && !*r.Met
	if p.results++; p.json {
		p.err = bench.WriteJSON(p.out, r)
		return
	}
	if p.results == 1 {
		p.err = bench.WriteHeader(p.out)
	}
	p.err = errors.Join(p.err, bench.WriteRow(p.out, r))
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
