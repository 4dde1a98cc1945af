// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/journal"
)

// FoldOptions say which state Fold computes. The zero value is the latest one, refolded from the
// newest snapshot.
type FoldOptions[E any] struct {
	// UpTo is the last number that counts; 0 means no bound.
	UpTo uint64
	// AsOf is the last timestamp that counts; zero means no bound. The state is that after the
	// longest run of events up to it.
	AsOf time.Time
	// DisableSnapshots folds from the first event.
	DisableSnapshots bool
	// Replace, if it is not nil, returns what is applied in place of an event: the event itself,
	// others, or none. It implies DisableSnapshots.
	Replace func(seqNr uint64, event E) []E
}

// Folded is a state that Fold computed.
type Folded[S any] struct {
	// State is the aggregate, the caller's alone.
	State *S
	// SequenceNr and Time are those of the last record that counted, 0 and zero if there was none.
	SequenceNr uint64
	Time       time.Time
	// SnapshotNr is the number of the snapshot that was used, 0 for none.
	SnapshotNr uint64
	// Records is how many records were replayed on top of it.
	Records uint64
}

// Fold computes a state of an entity from the journal, without starting it and without writing: its
// latest state rebuilt, the state at an earlier number or time, or what it would be had some events
// been others.
//
// A history with a gap is a *journal.GapError, never a partial state. Where events were deleted, a
// snapshot that lies within the bounds is needed.
func Fold[S, E any](ctx context.Context, rt *Runtime, typ Type[S, E], id string, opts FoldOptions[E]) (Folded[S], error) {
	m, err := newModel(typ)
	if err != nil {
		return Folded[S]{}, fmt.Errorf("fold: %w", err)
	}
	pid := journal.JoinID(typ.Name, id)
	if err := checkIDs(id, pid); err != nil {
		return Folded[S]{}, fmt.Errorf("fold: %w", err)
	}
	if rt.journal == nil {
		return Folded[S]{}, fmt.Errorf("fold %q: %w", pid, ErrNoJournal)
	}
	f := refolding[S, E]{
		model: m, rt: rt, pid: pid, replace: opts.Replace, progress: new(atomic.Uint64),
		opts: Recovery{UpTo: opts.UpTo, AsOf: opts.AsOf, DisableSnapshots: opts.DisableSnapshots || opts.Replace != nil},
	}
	if err := f.run(ctx); err != nil {
		return Folded[S]{}, fmt.Errorf("fold %q: %w", pid, err)
	}
	return Folded[S]{State: f.into.state, SequenceNr: f.seqNr, Time: f.time, SnapshotNr: f.snapshot, Records: f.replayed}, nil
}
