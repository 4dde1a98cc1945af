// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// FoldOptions select the state that Fold computes. The zero value selects the latest state.
type FoldOptions[E any] struct {
	// UpTo is the sequence number of the last event that is applied; 0 means no limit.
	UpTo uint64
	// AsOf is the time of the last event that is applied; zero means no limit.
	AsOf time.Time
	// DisableSnapshots applies all events from the first one on.
	DisableSnapshots bool
	// Replace, if it is not nil, returns the events that are applied instead of an event: the event
	// itself, others, or none. It implies DisableSnapshots.
	Replace func(seqNr uint64, event E) []E
}

// Folded is a state that Fold computed.
type Folded[S any] struct {
	// State belongs to the caller.
	State *S
	// SequenceNr and Time are those of the last event that was applied, zero for none.
	SequenceNr uint64
	Time       time.Time
	// SnapshotNr is the sequence number of the snapshot that was used, 0 for none.
	SnapshotNr uint64
	// Records is the number of records that were replayed after the snapshot.
	Records uint64
}

// Fold computes a state of an entity from the journal: the latest state, the state at an earlier
// sequence number or time, or the state that would follow from other events. It neither starts the
// entity nor writes.
//
// The events are read from the store of the type if rt hosts it, otherwise from Config.Store. For an ID
// without events, the state is that of Type.New.
//
// It fails with a *journal.GapError if the history has a gap. If events were deleted, it needs a
// snapshot within the limits of the options.
func Fold[S, E any](ctx context.Context, rt *Runtime, typ Type[S, E], id string, opts FoldOptions[E]) (Folded[S], error) {
	m, err := newModel(typ)
	if err != nil {
		return Folded[S]{}, fmt.Errorf("fold: %w", err)
	}
	pid, err := m.naming.persistenceID(id)
	if err != nil {
		return Folded[S]{}, fmt.Errorf("fold: %w", err)
	}
	from := rt.storageOf(typ.Name)
	if from.journal == nil {
		return Folded[S]{}, fmt.Errorf("fold %q: %w", pid, ErrNoJournal)
	}
	f := folding{
		model: m, rt: rt, store: from, id: id, pid: pid, progress: new(atomic.Uint64),
		opts: Recovery{UpTo: opts.UpTo, AsOf: opts.AsOf, DisableSnapshots: opts.DisableSnapshots || opts.Replace != nil},
	}
	if opts.Replace != nil {
		f.replace = func(seqNr uint64, event any) []any { return values(opts.Replace(seqNr, as[E](event))) }
	}
	if err := f.run(ctx); err != nil {
		return Folded[S]{}, fmt.Errorf("fold %q: %w", pid, err)
	}
	return Folded[S]{State: as[*S](f.into.state), SequenceNr: f.seqNr, Time: f.time, SnapshotNr: f.snapshot, Records: f.replayed}, nil
}
