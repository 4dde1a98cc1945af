// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// VerifyOptions configures Verify. The zero value verifies all persistence IDs of a journal without
// snapshots and without Go types.
type VerifyOptions struct {
	// ID is the only persistence ID to verify. Defaults to all.
	ID string
	// Snapshots is the snapshot store of the journal. Defaults to none; deleted events are then a
	// problem.
	Snapshots snapshot.Store
	// Entities are types whose events and snapshots are decoded in full, with upcasters, and whose
	// events are replayed. Payloads of other types are only checked for syntax, except those of
	// Refold itself, which are decoded. Defaults to none.
	Entities []Linked
	// Order checks that queries find all events; it runs if all persistence IDs are verified. See
	// Source.VerifyOrder. Defaults to none.
	Order func(context.Context) error
	// MaxProblems bounds the listed problems. The report counts the others. Defaults to 1,000.
	MaxProblems int
	// Digest computes Report.Digest.
	Digest bool
	// Progress is called after each persistence ID with the number of verified IDs. Defaults to
	// none.
	Progress func(ids uint64)
}

type (
	// Report is the result of Verify: counts of the verified data and the problems.
	Report = inspect.Report
	// Problem is a fault in the stored data of a persistence ID.
	Problem = inspect.Problem
	// Digest identifies the contents of a persistence ID or of a journal. Equal digests mean equal highest
	// numbers, records and snapshots.
	Digest = inspect.Digest
)

// ErrNoLister reports a journal that cannot list its persistence IDs.
var ErrNoLister = inspect.ErrNoLister

// Verify checks all persistence IDs of a journal, or one:
//
//   - Sequence numbers have no gap up to the highest one. Only records that a stored snapshot
//     covers may be deleted, and only from the beginning.
//   - Times do not decrease.
//   - Each payload can be decoded, and fences have no payload.
//   - Each snapshot can be read and decoded, and its number is not above the highest one. A snapshot
//     of another Snapshots.Version is not decoded.
//   - Each snapshot of an entity type in VerifyOptions.Entities equals the state that the events up to
//     its number give. If events were deleted, the replay begins with the oldest snapshot that covers
//     them.
//   - Queries find each event, if the journal offers this check.
//
// Verify changes nothing. Other programs may write at the same time; Verify may or may not see
// records that they append. The report lists problems with the data. The error is the reason why
// Verify could not check everything; the report then covers the checked part.
func Verify(ctx context.Context, j journal.Journal, opts VerifyOptions) (Report, error) {
	for i := range opts.Entities {
		if err := opts.Entities[i].check(); err != nil {
			return Report{}, err
		}
	}
	o := inspect.VerifyOptions{ID: opts.ID, Snapshots: opts.Snapshots, Types: typesOf(opts.Entities), Order: opts.Order, MaxProblems: opts.MaxProblems, Digest: opts.Digest}
	if opts.Progress != nil {
		o.Progress = func(_ string, sofar *Report) { opts.Progress(sofar.IDs) }
	}
	return inspect.Verify(ctx, j, o)
}

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
			for _, err := range inspect.Listed(ctx, src.Journal, "") {
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
	return jsontext.WriteJSON(env.Stdout, struct {
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
			err = jsontext.WriteJSON(e.Stdout, struct {
				ID         string `json:"id"`
				SequenceNr uint64 `json:"sequence_nr,omitempty"`
				Problem    string `json:"problem"`
			}{p.ID, p.SequenceNr, p.Err.Error()})
		} else {
			_, err = fmt.Fprintln(e.Stdout, jsontext.Printable(p.String()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
