// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/internal/jsontext"
)

type copyCommand struct {
	From     string `arg:"" help:"The source journal, such as leveldb:DIR. It is only read."`
	To       string `arg:"" help:"The target journal, such as postgres://USER@HOST/DATABASE."`
	Parallel int    `default:"256" help:"Number of persistence IDs to copy at the same time." placeholder:"N"`
	JSON     bool   `name:"json" help:"Print one JSON object per line."`
}

// Help explains the command.
func (c *copyCommand) Help() string {
	return `Copies all records of all persistence IDs, with their numbers, times, writers, tags and metadata, and fences, deletions
and snapshots. Then it compares both sides and prints their digest, which "verify --digest" prints for each side, too.

An interrupted copy continues when it is run again. If the source was in use, run it again to copy the records that
were added since. The target must be empty or hold a part of the source: otherwise the command names the first
difference and copies nothing. Do not use the target during the copy.

The order between persistence IDs is not copied: offsets of the source are invalid in the target, and projections must
be rebuilt.`
}

// Validate checks the flags.
func (c *copyCommand) Validate() error {
	if c.Parallel < 1 || c.Parallel > maxParallel {
		return fmt.Errorf("--parallel is %d, must be 1 to %d", c.Parallel, maxParallel)
	}
	return nil
}

const maxParallel = 4096

// Run copies the journal.
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

	status := env.status()
	report, err := Copy(ctx, from, to, CopyOptions{Parallel: c.Parallel, Progress: func(p CopyProgress) { status.Show("%v", p) }})
	status.Clear()
	switch {
	case errors.Is(err, ErrDifferent):
		return fmt.Errorf("%w; nothing is copied", err)
	case err != nil:
		env.note("%s copied; run the command again to continue", count(report.CopiedRecords, "record"))
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
	if err := env.printProblems(r.Problems, c.JSON); err != nil {
		return err
	}
	if c.JSON {
		return c.printJSON(env, r)
	}
	text := fmt.Sprintf("copied %s and %s", count(r.CopiedRecords, "record"), count(r.CopiedSnapshots, "snapshot"))
	if r.RemovedSnapshots > 0 {
		text += fmt.Sprintf(", removed %s that the source no longer has", count(r.RemovedSnapshots, "snapshot"))
	}
	result := "equal"
	if len(r.Problems) > 0 {
		result = "not equal: " + count(uint64(len(r.Problems)), "problem")
	}
	text += fmt.Sprintf("\n%s, %s, %s on both sides: %s\n", count(r.IDs, "persistence ID"), count(r.Records, "record"), count(r.Snapshots, "snapshot"), result)
	if len(r.Problems) == 0 {
		text += fmt.Sprintf("digest %v\n", r.Digest)
	}
	if r.GrownIDs > 0 {
		text += fmt.Sprintf("the source added %s to %s during the copy: run it again to copy them\n", count(r.AddedRecords, "record"), count(r.GrownIDs, "persistence ID"))
	}
	_, err := fmt.Fprint(env.Stdout, text)
	return err
}

func (c *copyCommand) printJSON(env *Env, r *CopyReport) error {
	return jsontext.WriteJSON(env.Stdout, struct {
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
		r.IDs, r.Records, r.Snapshots, r.CopiedRecords, r.CopiedSnapshots, r.RemovedSnapshots, r.GrownIDs, r.AddedRecords,
		len(r.Problems), len(r.Problems) == 0, r.Digest.String(),
	})
}
