// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
)

// copyCommand is "refold copy".
type copyCommand struct {
	From     string `arg:"" help:"The journal to copy, such as leveldb:DIR. It is only read."`
	To       string `arg:"" help:"The journal to copy to, such as postgres://USER@HOST/DATABASE."`
	Parallel int    `default:"256" help:"How many persistence IDs are copied at the same time." placeholder:"N"`
	JSON     bool   `name:"json" help:"Print one JSON object a line."`
}

// Help is the long help of the command.
func (c *copyCommand) Help() string {
	return `Copies all records of all persistence IDs, with their numbers, times, writers, tags and metadata, fences, what was
deleted, and the snapshots. In the end it compares both sides, and prints a digest that "verify --digest" prints
for either of them.

Interrupted, by whatever it may be, it goes on when it is run again. If the source was in use, run it again to
copy what was added since. The target must hold nothing, or a part of the same: if it does not, the first difference
is named and nothing is copied. While it is copied to, nobody may use it.

What is not copied is the order between persistence IDs: offsets mean nothing in the target, and projections have to be
rebuilt.`
}

// Validate checks the flags.
func (c *copyCommand) Validate() error {
	if c.Parallel < 1 || c.Parallel > maxParallel {
		return fmt.Errorf("--parallel is %d, it has to be 1 to %d", c.Parallel, maxParallel)
	}
	return nil
}

const maxParallel = 4096

// Run copies.
func (c *copyCommand) Run(ctx context.Context, env *Env) (err error) {
	from, err := env.Open(ctx, c.From)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := env.OpenTarget(ctx, c.To)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()

	bars := env.copyBars(ctx)
	report, err := Copy(ctx, from, to, CopyOptions{Parallel: c.Parallel, Progress: bars.set})
	bars.stop()
	switch {
	case errors.Is(err, ErrDifferent):
		return fmt.Errorf("%w; nothing is copied", err)
	case err != nil:
		env.note("%s copied; run it again and it goes on", count(report.CopiedRecords, "record"))
		return err
	}
	if err := c.print(env, &report); err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return ErrProblems
	}
	return nil
}

func (c *copyCommand) print(env *Env, r *CopyReport) error {
	if c.JSON {
		return c.printJSON(env, r)
	}
	for _, p := range r.Problems {
		if _, err := fmt.Fprintln(env.Stdout, printable(p.String())); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("copied %s and %s", count(r.CopiedRecords, "record"), count(r.CopiedSnapshots, "snapshot"))
	if r.RemovedSnapshots > 0 {
		text += fmt.Sprintf(", removed %s that the source holds no more", count(r.RemovedSnapshots, "snapshot"))
	}
	result := "equal"
	if len(r.Problems) > 0 {
		result = "not equal: " + count(uint64(len(r.Problems)), "problem")
	}
	text += fmt.Sprintf("\n%s, %s, %s on both sides: %s\n", count(r.IDs, "persistence ID"), count(r.Records, "record"), count(r.Snapshots, "snapshot"), result)
	if len(r.Problems) == 0 {
		text += fmt.Sprintf("digest %v\n", r.Digest)
	}
	if r.Grown > 0 {
		text += fmt.Sprintf("%s got %s in the source meanwhile: run it again to copy them\n", count(r.Grown, "persistence ID"), count(r.Later, "more record"))
	}
	_, err := fmt.Fprint(env.Stdout, text)
	return err
}

func (c *copyCommand) printJSON(env *Env, r *CopyReport) error {
	for _, p := range r.Problems {
		if err := writeJSON(env.Stdout, jsonProblem(p)); err != nil {
			return err
		}
	}
	return writeJSON(env.Stdout, struct {
		IDs              uint64 `json:"ids"`
		Records          uint64 `json:"records"`
		Snapshots        uint64 `json:"snapshots"`
		CopiedRecords    uint64 `json:"copied_records"`
		CopiedSnapshots  uint64 `json:"copied_snapshots"`
		RemovedSnapshots uint64 `json:"removed_snapshots"`
		Grown            uint64 `json:"grown"`
		Later            uint64 `json:"later"`
		Problems         int    `json:"problems"`
		Equal            bool   `json:"equal"`
		Digest           string `json:"digest"`
	}{
		r.IDs, r.Records, r.Snapshots, r.CopiedRecords, r.CopiedSnapshots, r.RemovedSnapshots, r.Grown, r.Later,
		len(r.Problems), len(r.Problems) == 0, r.Digest.String(),
	})
}
