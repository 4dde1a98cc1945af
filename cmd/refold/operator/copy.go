// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
)

// CopyOptions configures Copy. The zero value is the default.
type CopyOptions struct {
	// Parallel is how many persistence IDs Copy processes at the same time. Defaults to 256.
	Parallel int
	// Progress is called after each step, concurrently from several goroutines. Defaults to none.
	Progress func(CopyProgress)
}

// CopyProgress is the progress of a Copy.
type CopyProgress struct {
	// Stage is the current stage.
	Stage CopyStage
	// Done and Total count persistence IDs; in the stage Copying they count records. Total is 0 if
	// it is unknown.
	Done, Total uint64
}

// String describes the progress as one line of text.
func (p CopyProgress) String() string {
	switch p.Stage {
	case Comparing:
		return "comparing: " + count(p.Done, "persistence ID")
	case Copying:
		return fmt.Sprintf("copying: %d of %s, %d %%", p.Done, count(p.Total, "record"), 100*p.Done/max(1, p.Total))
	case Checking:
	}
	return fmt.Sprintf("checking: %d of %s, %d %%", p.Done, count(p.Total, "persistence ID"), 100*p.Done/max(1, p.Total))
}

// CopyStage is a stage of a Copy.
type CopyStage uint8

// The stages, in order.
const (
	// Comparing compares the present contents of the target with the source.
	Comparing CopyStage = iota
	// Copying copies the missing records and snapshots.
	Copying
	// Checking compares all contents of both sides after the copy.
	Checking
)

// CopyReport is the result of a Copy.
type CopyReport struct {
	// IDs, Records and Snapshots count the checked contents of the target.
	IDs, Records, Snapshots uint64
	// CopiedRecords and CopiedSnapshots count the part that this Copy copied.
	CopiedRecords, CopiedSnapshots uint64
	// RemovedSnapshots counts snapshots of an earlier copy that were removed because the source no
	// longer has them.
	RemovedSnapshots uint64
	// Digest is the digest of both sides. It is valid only without problems.
	Digest Digest
	// GrownIDs counts the persistence IDs to which the source appended records during the copy.
	// AddedRecords counts these records. The next Copy copies them.
	GrownIDs, AddedRecords uint64
	// Problems lists unreadable snapshots, which are not copied, and persistence IDs that differ
	// after the copy.
	Problems []Problem
}

// ErrDifferent reports contents of the target that are not a part of the source. Nothing was
// copied. The error also wraps a Problem, which names the first record that differs.
var ErrDifferent = errors.New("the target differs from the source")

func different(id string, seqNr uint64, detail string) error {
	return fmt.Errorf("%w: %w", ErrDifferent, Problem{ID: id, SequenceNr: seqNr, Err: errors.New(detail)})
}

// Copy copies a journal to another journal, which may use another plugin. It copies records with
// their numbers, times, writers, tags and metadata, and also fences, deletions and snapshots. It
// then compares both sides. Copy only reads the source, which may be in use. Records that the
// source appends to a persistence ID after Copy has read it are counted; another Copy copies them.
// Copy follows deletions and replaced snapshots in the source until it ends.
//
// The target must be empty or hold a part of the source, such as the result of an interrupted Copy,
// which Copy then continues. For any other target, Copy changes nothing and returns an error that
// matches ErrDifferent and names the first difference. No program may use the target during the
// copy, because an entity there may lack its last events or its snapshot.
//
// Copy does not preserve the order between persistence IDs. Query offsets of the source are invalid
// in the target, and projections must be rebuilt.
//
// The first record of a persistence ID must have the number 1. For each record that the source has
// deleted, Copy therefore appends a fence by the writer PlaceholderWriter. It deletes these fences
// after it has copied the rest of the persistence ID.
func Copy(ctx context.Context, from, to *Source, opts CopyOptions) (CopyReport, error) {
	c := &copier{from: from, to: to, opts: opts, heavy: make(chan struct{}, snapshotsAtOnce)}
	c.opts.Parallel = cmp.Or(opts.Parallel, 256)
	if from.Snapshots != nil && to.Snapshots == nil {
		return c.report, errors.New("the source has snapshots, but the target has no snapshot store")
	}
	if err := c.compare(ctx); err != nil {
		return c.finished(), err
	}
	// The queue needs no limit, because at most Parallel goroutines append.
	w, err := groupcommit.New(to.Journal, journal.WriterConfig{MaxBatchWrites: groupWrites, MaxQueuedWrites: math.MaxInt, MaxQueuedBytes: math.MaxInt})
	if err != nil {
		return c.finished(), fmt.Errorf("target: %w", err)
	}
	c.writer = w
	if err = c.copy(ctx); err == nil {
		err = c.check(ctx)
	}
	return c.finished(), errors.Join(err, w.Close(context.WithoutCancel(ctx)))
}

type copier struct {
	from, to *Source
	opts     CopyOptions
	writer   *groupcommit.Writer // appends the writes of many IDs in batches
	report   CopyReport
	ids      uint64 // number of persistence IDs in the source

	heavy chan struct{} // slots for persistence IDs whose snapshots are in memory

	total                                     uint64        // records missing in the target
	sent                                      atomic.Uint64 // records copied so far, including placeholders
	copied, copiedSnapshots, removedSnapshots atomic.Uint64
}

func (c *copier) progress(stage CopyStage, done, total uint64) {
	if c.opts.Progress != nil {
		c.opts.Progress(CopyProgress{Stage: stage, Done: done, Total: total})
	}
}

func (c *copier) finished() CopyReport {
	r := c.report
	r.CopiedRecords, r.CopiedSnapshots, r.RemovedSnapshots = c.copied.Load(), c.copiedSnapshots.Load(), c.removedSnapshots.Load()
	return r
}

// listed yields the persistence IDs of both sides, in order.
func (c *copier) listed(ctx context.Context) iter.Seq2[string, error] {
	return merged(labeled("source", inspect.Listed(ctx, c.from.Journal, "")), labeled("target", inspect.Listed(ctx, c.to.Journal, "")))
}

// labeled yields IDs, and names their side in an error.
func labeled(side string, ids iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for id, err := range ids {
			if err != nil {
				err = fmt.Errorf("%s: %w", side, err)
			}
			if !yield(id, err) {
				return
			}
		}
	}
}

// compare checks that the target is a part of the source, and counts the missing records.
func (c *copier) compare(ctx context.Context) error {
	return inOrder(ctx, c.opts.Parallel, c.listed(ctx), c.missingRecords, func(_ string, missing uint64) error {
		c.ids++
		c.total += missing
		c.progress(Comparing, c.ids, 0)
		return nil
	})
}

func (c *copier) copy(ctx context.Context) error {
	return inOrder(ctx, c.opts.Parallel, labeled("source", inspect.Listed(ctx, c.from.Journal, "")), c.copyOne, func(_ string, problems []Problem) error {
		c.report.Problems = append(c.report.Problems, problems...)
		return nil
	})
}

func (c *copier) check(ctx context.Context) error {
	all, done := inspect.NewDigester(""), uint64(0)
	err := inOrder(ctx, c.opts.Parallel, c.listed(ctx), c.comparedAgain, func(id string, d digests) error {
		done++
		c.progress(Checking, done, max(done, c.ids))
		if d.later > 0 {
			c.report.GrownIDs++
			c.report.AddedRecords += d.later
		}
		if d.new {
			return nil
		}
		c.report.IDs++
		c.report.Records += d.to.records
		c.report.Snapshots += d.to.snapshots
		all.Add(d.to.digest)
		if d.from != d.to {
			c.report.Problems = append(c.report.Problems, Problem{ID: id, Err: fmt.Errorf("the copy differs: the source has %v, the target %v", d.from, d.to)})
		}
		return nil
	})
	c.report.Digest = all.Sum()
	return err
}
