// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/cmd/refold/internal/console"
)

type verifyCommand struct {
	journalFlag
	ID     string `arg:"" optional:"" help:"The persistence ID, such as account|42. Defaults to all."`
	Digest bool   `help:"Also print a digest. Journals with equal contents have equal digests."`
	JSON   bool   `name:"json" help:"Print one JSON object per line."`
}

// Run verifies the journal.
func (c *verifyCommand) Run(ctx context.Context, env *Env) error {
	return c.with(ctx, env, func(src *Source) error {
		if c.ID != "" {
			if _, err := requireID(ctx, src, c.ID); err != nil {
				return err
			}
		}
		status, total := env.status(), 0
		if env.Terminal && c.ID == "" {
			for _, err := range listed(ctx, src.Journal, "") {
				if err != nil {
					break // Verify reports the problem
				}
				total++
			}
		}
		report, err := Verify(ctx, src.Journal, VerifyOptions{
			ID: c.ID, Snapshots: src.Snapshots, Entities: env.entities, Order: src.VerifyOrder, Digest: c.Digest,
			Progress: func(done uint64) { status.Show("%d of %s", done, count(max(total, 1), "persistence ID")) },
		})
		status.Clear()
		if err = errors.Join(err, c.print(env, &report, err == nil)); err == nil && report.Found() > 0 {
			err = ErrProblems
		}
		return err
	})
}

func (c *verifyCommand) print(env *Env, r *Report, complete bool) error {
	if err := env.printProblems(r.Problems, c.JSON); err != nil {
		return err
	}
	if c.JSON {
		return c.printJSON(env, r, complete)
	}
	line := fmt.Sprintf("%s, %s (%s), %s: %s", count(r.IDs, "persistence ID"), count(r.Records, "record"),
		count(r.Fences, "fence"), count(r.Snapshots, "snapshot"), count(r.Found(), "problem"))
	if !complete {
		line = "incomplete: " + line
	}
	if r.Omitted > 0 {
		line += fmt.Sprintf(" (%d not shown)", r.Omitted)
	}
	if r.Unchecked > 0 {
		line += fmt.Sprintf("; %s not checked, in an application-specific format", count(r.Unchecked, "payload"))
	}
	if r.OtherVersions > 0 {
		line += fmt.Sprintf("; %s of another Snapshots.Version, which recoveries ignore", count(r.OtherVersions, "snapshot"))
	}
	if r.Uncompared > 0 {
		line += fmt.Sprintf("; %s not compared with the replayed state", count(r.Uncompared, "snapshot"))
	}
	if c.Digest && complete {
		line += fmt.Sprintf("\ndigest %v", r.Digest)
	}
	_, err := fmt.Fprintln(env.Stdout, line)
	return err
}

func (c *verifyCommand) printJSON(env *Env, r *Report, complete bool) error {
	digest := ""
	if c.Digest && complete {
		digest = r.Digest.String()
	}
	return console.WriteJSON(env.Stdout, struct {
		IDs        uint64 `json:"ids"`
		Records    uint64 `json:"records"`
		Fences     uint64 `json:"fences"`
		Snapshots  uint64 `json:"snapshots"`
		Unchecked  uint64 `json:"unchecked"`
		Uncompared uint64 `json:"uncompared"`
		Other      uint64 `json:"other_versions,omitempty"`
		Problems   uint64 `json:"problems"`
		Complete   bool   `json:"complete"`
		Digest     string `json:"digest,omitempty"`
	}{r.IDs, r.Records, r.Fences, r.Snapshots, r.Unchecked, r.Uncompared, r.OtherVersions, r.Found(), complete, digest})
}

func (e *Env) printProblems(problems []Problem, asJSON bool) error {
	for _, p := range problems {
		var err error
		if asJSON {
			err = console.WriteJSON(e.Stdout, struct {
				ID         string `json:"id"`
				SequenceNr uint64 `json:"sequence_nr,omitempty"`
				Problem    string `json:"problem"`
			}{p.ID, p.SequenceNr, p.Err.Error()})
		} else {
			_, err = fmt.Fprintln(e.Stdout, console.Printable(p.String()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
