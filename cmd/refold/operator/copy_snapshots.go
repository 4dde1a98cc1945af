// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/refold-io/refold/snapshot"
)

// snapshots yields the snapshots of an ID up to a number, highest first. It yields a
// Problem for an unreadable snapshot and continues; any other error is the last element.
func (s *Source) snapshots(ctx context.Context, id string, highest uint64) iter.Seq2[snapshot.Snapshot, error] {
	return func(yield func(snapshot.Snapshot, error) bool) {
		if s.Snapshots == nil {
			return
		}
		for md, err := range s.Snapshots.List(ctx, id, snapshot.UpTo(highest)) {
			if err != nil {
				yield(snapshot.Snapshot{}, fmt.Errorf("snapshots of %q: %w", id, err))
				return
			}
			loaded, err := s.Snapshots.Load(ctx, id, snapshot.At(md.SequenceNr))
			switch {
			case errors.Is(err, snapshot.ErrNotFound): // the source has deleted the snapshot since it was listed
				continue
			case errors.Is(err, snapshot.ErrCorrupt):
				err = Problem{ID: id, SequenceNr: md.SequenceNr, Err: fmt.Errorf("the snapshot is unreadable and was not copied: %w", err)}
			case err != nil:
				yield(loaded, fmt.Errorf("snapshot %d of %q: %w", md.SequenceNr, id, err))
				return
			}
			if !yield(loaded, err) {
				return
			}
		}
	}
}

// snapshotsAtOnce bounds how many IDs have a snapshot in memory at the same time.
const snapshotsAtOnce = 16

// copySnapshots makes the snapshots of the target equal to those of the source, up to a number. It
// returns unreadable snapshots as problems.
func (c *copier) copySnapshots(ctx context.Context, id string, highest uint64) (problems []Problem, err error) {
	if c.to.Snapshots == nil {
		return nil, nil
	}
	select {
	case c.heavy <- struct{}{}:
		defer func() { <-c.heavy }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	present := map[uint64]bool{}
	for md, err := range c.to.Snapshots.List(ctx, id, snapshot.Latest()) {
		if err != nil {
			return nil, fmt.Errorf("target: snapshots of %q: %w", id, err)
		}
		present[md.SequenceNr] = true
	}
	for s, err := range c.from.snapshots(ctx, id, highest) {
		if bad, unreadable := errors.AsType[Problem](err); unreadable {
			problems = append(problems, bad)
			delete(present, bad.SequenceNr) // keep the snapshot of the target
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
		if err := c.copySnapshot(ctx, &s, present[s.SequenceNr]); err != nil {
			return nil, fmt.Errorf("target: snapshot %d of %q: %w", s.SequenceNr, id, err)
		}
		delete(present, s.SequenceNr)
	}
	for _, nr := range slices.Sorted(maps.Keys(present)) {
		if err := c.to.Snapshots.Delete(ctx, id, snapshot.At(nr)); err != nil {
			return nil, fmt.Errorf("target: snapshot %d of %q: %w", nr, id, err)
		}
		c.removedSnapshots.Add(1)
	}
	return problems, nil
}

// copySnapshot saves a snapshot unless the target has it already.
func (c *copier) copySnapshot(ctx context.Context, s *snapshot.Snapshot, listed bool) error {
	if listed {
		old, err := c.to.Snapshots.Load(ctx, s.ID, snapshot.At(s.SequenceNr))
		switch {
		case err == nil && old.Time.Equal(s.Time) && old.Manifest == s.Manifest && bytes.Equal(old.Payload, s.Payload):
			return nil
		case err != nil && !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrNotFound):
			return err
		}
	}
	if err := c.to.Snapshots.Save(ctx, *s); err != nil {
		return err
	}
	c.copiedSnapshots.Add(1)
	return nil
}
