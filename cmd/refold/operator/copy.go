// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/refold-io/refold/journal"
)

// CopyOptions say how Copy works. The zero value is the default.
type CopyOptions struct {
	// Parallel is how many persistence IDs are copied at the same time. Defaults
	// to 256.
	Parallel int
	// Progress is called as things move on, by several goroutines at a time.
	// Defaults to nothing.
	Progress func(CopyProgress)
}

// CopyProgress is how far a Copy is.
type CopyProgress struct {
	// Stage is what it does now.
	Stage CopyStage
	// Done and Total count persistence IDs, and records while it copies. Total
	// is 0 if it is not known.
	Done, Total uint64
}

// CopyStage is a part of a Copy.
type CopyStage uint8

// The stages, in this order.
const (
	// Comparing is looking at what the target holds already.
	Comparing CopyStage = iota
	// Copying is copying the rest.
	Copying
	// Checking is comparing all that both sides hold in the end.
	Checking
)

// CopyReport is what Copy has done and found.
type CopyReport struct {
	// IDs, Records and Snapshots are what the target holds and was checked.
	IDs, Records, Snapshots uint64
	// CopiedRecords and CopiedSnapshots are how many of them were copied now.
	CopiedRecords, CopiedSnapshots uint64
	// RemovedSnapshots is how many snapshots of an earlier copy were removed,
	// which the source holds no more.
	RemovedSnapshots uint64
	// Digest is that of both sides, if there are no problems.
	Digest Digest
	// Grown is how many persistence IDs have got more records in the source
	// meanwhile, and Later how many records that is. Another Copy would copy them.
	Grown, Later uint64
	// Problems are snapshots that can't be read, and so are not copied, and
	// persistence IDs that differ in the end.
	Problems []Problem
}

// ErrDifferent is matched by a *DifferenceError.
var ErrDifferent = errors.New("operator: the target holds something else")

// DifferenceError says that a target holds something that did not come from the
// source, so that nothing was copied.
type DifferenceError struct {
	ID string
	// SequenceNr is the first record that differs, 0 if it is none in
	// particular.
	SequenceNr uint64
	// Detail says what differs.
	Detail string
}

func (e *DifferenceError) Error() string {
	if e.SequenceNr == 0 {
		return fmt.Sprintf("the target holds something else: %q: %s", e.ID, e.Detail)
	}
	return fmt.Sprintf("the target holds something else: %q at %d: %s", e.ID, e.SequenceNr, e.Detail)
}

// Is reports whether target is ErrDifferent.
func (e *DifferenceError) Is(target error) bool { return target == ErrDifferent }

// Copy makes one journal hold what another one does, between any two plugins:
// records with their numbers, times, writers, tags and metadata, fences,
// deletions and snapshots. In the end it compares both sides. The source is only
// read; it may be in use. A copy is of what a persistence ID held when its turn
// came; what was appended after that is counted, and another Copy copies it. What was deleted or replaced
// in the source until the end is followed.
//
// A target that holds anything already must hold a part of the same: that is
// what an interrupted Copy leaves, and the next one goes on there. If not, the
// error matches ErrDifferent, names the first difference, and the target is as it
// was. While it is being copied to, a target must not be used: an entity may lack
// its last events or its snapshot.
//
// What is not copied is the order between persistence IDs. So offsets of queries
// mean nothing in the target, and projections have to be rebuilt.
//
// A journal can't be told that its first records are deleted, and begins at
// number 1. So what the source has deleted is appended as fences by the writer
// PlaceholderWriter and deleted at once when the rest of the persistence ID is
// there.
func Copy(ctx context.Context, from, to *Source, opts CopyOptions) (CopyReport, error) {
	c := &copier{from: from, to: to, opts: opts, heavy: make(chan struct{}, snapshotsAtOnce)}
	c.opts.Parallel = cmp.Or(opts.Parallel, 256)
	if from.Snapshots != nil && to.Snapshots == nil {
		return c.report, errors.New("the source has snapshots, and the target has no place for them")
	}
	if err := c.compare(ctx); err != nil {
		return c.finished(), err
	}
	s, err := newSender(c.to.Journal) //nolint:contextcheck // it ends with close
	if err != nil {
		return c.finished(), fmt.Errorf("target: %w", err)
	}
	if err = c.copy(ctx, s); err == nil {
		err = c.check(ctx, s)
	}
	return c.finished(), errors.Join(err, s.close(context.WithoutCancel(ctx)))
}

// copier is a Copy in progress.
type copier struct {
	from, to *Source
	opts     CopyOptions
	report   CopyReport
	ids      uint64 // in the source

	heavy chan struct{} // held by those who hold snapshots

	total                                     uint64        // records that the target lacks
	sent                                      atomic.Uint64 // of those, placeholders included
	copied, copiedSnapshots, removedSnapshots atomic.Uint64
}

func (c *copier) progress(stage CopyStage, done, total uint64) {
	if c.opts.Progress != nil {
		c.opts.Progress(CopyProgress{Stage: stage, Done: done, Total: total})
	}
}

// finished returns the report.
func (c *copier) finished() CopyReport {
	r := c.report
	r.CopiedRecords, r.CopiedSnapshots, r.RemovedSnapshots = c.copied.Load(), c.copiedSnapshots.Load(), c.removedSnapshots.Load()
	return r
}

// compare looks at what the target holds, and counts what it lacks.
func (c *copier) compare(ctx context.Context) error {
	from, err := listed(ctx, c.from.Journal)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	to, err := listed(ctx, c.to.Journal)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	return inOrder(ctx, c.opts.Parallel, merged(from, to), c.collate, func(_ string, missing uint64) error {
		c.ids++
		c.total += missing
		c.progress(Comparing, c.ids, 0)
		return nil
	})
}

// copy copies what the target lacks.
func (c *copier) copy(ctx context.Context, s *sender) error {
	ids, err := listed(ctx, c.from.Journal)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	one := func(ctx context.Context, id string) ([]Problem, error) {
		return c.copyOne(ctx, s, id)
	}
	return inOrder(ctx, c.opts.Parallel, ids, one, func(_ string, problems []Problem) error {
		c.report.Problems = append(c.report.Problems, problems...)
		return nil
	})
}

// check compares what both sides hold in the end.
func (c *copier) check(ctx context.Context, s *sender) error {
	from, err := listed(ctx, c.from.Journal)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	to, err := listed(ctx, c.to.Journal)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	all, done := newDigester(""), uint64(0)
	settled := func(ctx context.Context, id string) (digests, error) { return c.settled(ctx, s, id) }
	err = inOrder(ctx, c.opts.Parallel, merged(from, to), settled, func(id string, d digests) error {
		done++
		c.progress(Checking, done, max(done, c.ids))
		if d.later > 0 {
			c.report.Grown++
			c.report.Later += d.later
		}
		if d.new {
			return nil
		}
		c.report.IDs++
		c.report.Records += d.to.records
		c.report.Snapshots += d.to.snapshots
		all.add(d.to.digest)
		if d.from != d.to {
			c.report.Problems = append(c.report.Problems, Problem{ID: id, Err: fmt.Errorf("the copy differs: the source has %v, the target %v", d.from, d.to)})
		}
		return nil
	})
	c.report.Digest = all.sum()
	return err
}

// firstRecord returns the number of the first record of an ID up to a bound, 0
// if there is none.
func firstRecord(ctx context.Context, j journal.Journal, id string, to uint64) (uint64, error) {
	for _, bound := range []uint64{min(1, to), to} { // few have lost their first one, and a page is read otherwise
		for e, err := range j.Replay(ctx, id, 1, bound) {
			return e.SequenceNr, err
		}
	}
	return 0, nil
}
