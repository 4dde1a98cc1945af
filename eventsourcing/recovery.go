// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// maxSnapshotAttempts is how many snapshots a recovery tries to decode.
const maxSnapshotAttempts = 3

// refolding folds one entity from its snapshot and its events.
type refolding[S, E any] struct {
	model    *model[S, E]
	rt       *Runtime
	pid      string
	opts     Recovery
	optional bool // a snapshot store that fails is like one that is empty
	replace  func(seqNr uint64, event E) []E
	progress *atomic.Uint64
	into     instance[S, E]
	seqNr    uint64
	snapshot uint64
	replayed uint64
	time     time.Time
}

// run folds. On success into, seqNr and time say what came out.
//
// A gap is looked at twice: while one instance is folded another may save a snapshot and delete the
// events that it covers.
func (f *refolding[S, E]) run(ctx context.Context) error {
	first := *f
	err := f.once(ctx)
	if errors.Is(err, journal.ErrHistoryGap) {
		*f = first
		err = f.once(ctx)
	}
	return err
}

func (f *refolding[S, E]) once(ctx context.Context) error {
	if f.rt.journal == nil {
		return f.start()
	}
	var err error
	if f.opts.Disabled {
		err = f.start()
	} else {
		err = f.load(ctx)
	}
	if err != nil {
		return err
	}
	// After the snapshot, so that the events that it covers exist.
	highest, err := f.rt.journal.HighestSequenceNr(ctx, f.pid)
	if err != nil {
		return fmt.Errorf("read the highest sequence number of %q: %w", f.pid, err)
	}
	f.progress.Add(1)
	if f.opts.Disabled {
		f.seqNr = highest
		return nil
	}
	if f.seqNr > highest {
		return fmt.Errorf("the snapshot of %q is at %d, above the journal: %w", f.pid, f.seqNr,
			&journal.GapError{ID: f.pid, Want: highest + 1})
	}
	to := highest
	if f.opts.UpTo > 0 {
		to = min(to, f.opts.UpTo)
	}
	if f.seqNr >= to {
		return nil
	}
	var panicked error
	err = contain(f.pid, func() { panicked = f.replay(ctx, to) })
	return errors.Join(err, panicked)
}

// start makes the empty instance.
func (f *refolding[S, E]) start() error {
	var inner error
	err := contain(f.pid, func() {
		f.into, inner = f.model.newInstance(cutID(f.pid, f.model.typ.Name), f.pid)
	})
	return errors.Join(err, inner)
}

// load starts from the newest snapshot that matches and can be decoded.
func (f *refolding[S, E]) load(ctx context.Context) error {
	if f.rt.snapshots == nil || f.opts.DisableSnapshots {
		return f.start()
	}
	criteria := f.criteria()
	for range maxSnapshotAttempts {
		s, err := f.rt.snapshots.Load(ctx, f.pid, criteria)
		f.progress.Add(1)
		switch {
		case errors.Is(err, snapshot.ErrNotFound):
			return f.start()
		case errors.Is(err, snapshot.ErrCorrupt) || err != nil && f.optional:
			f.rt.log.WarnContext(ctx, "snapshot unreadable, replaying more", slog.String("persistence_id", f.pid), slog.Any("error", err))
			return f.start()
		case err != nil:
			return fmt.Errorf("load the snapshot of %q: %w", f.pid, err)
		}
		if err = f.start(); err != nil {
			return err
		}
		var inner error
		err = errors.Join(contain(f.pid, func() { inner = f.model.decode(s.Manifest, s.Payload, f.into.state) }), inner)
		if err == nil {
			f.seqNr, f.snapshot, f.time = s.SequenceNr, s.SequenceNr, s.Time
			return nil
		}
		f.rt.log.WarnContext(ctx, "snapshot does not decode, trying an older one", slog.String("persistence_id", f.pid),
			slog.Uint64("sequence_nr", s.SequenceNr), slog.Any("error", err))
		if s.SequenceNr <= 1 {
			break
		}
		criteria.MaxSequenceNr = s.SequenceNr - 1
	}
	return f.start()
}

func (f *refolding[S, E]) criteria() snapshot.Criteria {
	c := f.opts.Snapshots.Bounded()
	if f.opts.UpTo > 0 {
		c.MaxSequenceNr = min(c.MaxSequenceNr, f.opts.UpTo)
	}
	if !f.opts.AsOf.IsZero() && f.opts.AsOf.Before(c.MaxTime) {
		c.MaxTime = f.opts.AsOf
	}
	return c
}

// replay applies the events that follow up to a number, none missing. It may panic.
func (f *refolding[S, E]) replay(ctx context.Context, to uint64) error {
	var decoded []any
	for ev, err := range f.events(ctx, to) {
		if err != nil {
			return fmt.Errorf("replay %q: %w", f.pid, err)
		}
		f.progress.Add(1)
		if ev.SequenceNr != f.seqNr+1 {
			return &journal.GapError{ID: f.pid, Want: f.seqNr + 1, Got: ev.SequenceNr}
		}
		if !f.opts.AsOf.IsZero() && ev.Time.After(f.opts.AsOf) {
			return nil
		}
		f.seqNr, f.time = ev.SequenceNr, ev.Time
		f.replayed++
		if ev.IsFence() {
			continue
		}
		if f.model.typ.Events == nil {
			return fmt.Errorf("replay event %d of %q: %w: %q: Type.Events is missing", ev.SequenceNr, f.pid, codec.ErrUnknown, ev.Manifest)
		}
		if decoded, err = f.model.typ.Events.DecodeAppend(decoded[:0], ev.Manifest, ev.Payload); err != nil {
			return fmt.Errorf("replay event %d of %q: %w", ev.SequenceNr, f.pid, err)
		}
		if err = f.applyAll(decoded, Recorded{SequenceNr: ev.SequenceNr, Time: ev.Time, Metadata: ev.Metadata}); err != nil {
			return err
		}
	}
	if f.seqNr < to {
		return &journal.GapError{ID: f.pid, Want: f.seqNr + 1}
	}
	return nil
}

func (f *refolding[S, E]) events(ctx context.Context, to uint64) iter.Seq2[journal.Event, error] {
	return f.rt.filter.Apply(f.pid, f.rt.journal.Replay(ctx, f.pid, f.seqNr+1, to))
}

// applyAll applies what one stored event has become.
func (f *refolding[S, E]) applyAll(decoded []any, record Recorded) error {
	for _, v := range decoded {
		event, ok := v.(E)
		if !ok {
			return fmt.Errorf("replay event %d of %q: %w: %T is no event of this type", record.SequenceNr, f.pid, codec.ErrUnknown, v)
		}
		if f.replace == nil {
			f.apply(event, record)
			continue
		}
		for _, r := range f.replace(record.SequenceNr, event) {
			f.apply(r, record)
		}
	}
	return nil
}

func (f *refolding[S, E]) apply(event E, record Recorded) {
	f.model.apply(&f.into, event, record)
}

// recover has the instance refolded beside the workers.
func (e *entity[S, E]) recover() {
	if w := e.host.rt.writer; w != nil {
		w.Reset(&e.stream)
	}
	asked, info := time.Now(), RecoveryInfo{PersistenceID: e.pid, Context: context.Background()}
	if first := e.machine.First(); first != nil {
		if s, ok := first.Caller.(sender); ok {
			info.Context = s.from().ctx
		}
	}
	e.host.rt.recovery.do(func() { e.refold(asked, info) })
}

// refold recovers the entity and tells it.
func (e *entity[S, E]) refold(asked time.Time, info RecoveryInfo) {
	rt := e.host.rt
	if rt.obs.RecoveryStarted != nil {
		rt.obs.RecoveryStarted(e.pid)
	}
	var progress atomic.Uint64
	ctx, cancel := context.WithCancelCause(rt.ctx)
	stop := watchProgress(&progress, rt.cfg.RecoveryTimeout, cancel)
	f := refolding[S, E]{
		model: e.host.model, rt: rt, pid: e.pid, opts: e.host.opts.Recovery,
		optional: e.host.model.typ.Snapshots.Optional, progress: &progress,
	}
	err := f.run(ctx)
	stop()
	switch cause := context.Cause(ctx); {
	case err == nil:
	case errors.Is(cause, ErrRecoveryTimeout):
		err = cause
	case rt.ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	cancel(nil)
	if rt.obs.Recovery != nil {
		info.SequenceNr, info.SnapshotNr, info.Events = f.seqNr, f.snapshot, f.replayed
		info.Duration, info.Err = time.Since(asked), err
		rt.obs.Recovery(info)
	}
	if err != nil {
		if rt.ctx.Err() == nil {
			err = &recoveryError{err}
		}
		e.input(engine.Input{Kind: engine.Recovered, Err: err})
		return
	}
	e.happen(event[S, E]{fresh: f.into, input: engine.Input{Kind: engine.Recovered, Recovery: engine.Recovery{
		SequenceNr: f.seqNr, Time: f.time, Replayed: f.replayed, Writer: rt.newWriter(),
	}}})
}

// watchProgress cancels when a counter stands still for longer than an interval, and at most twice
// that long.
func watchProgress(progress *atomic.Uint64, interval time.Duration, cancel context.CancelCauseFunc) (stop func()) {
	last := uint64(math.MaxUint64)
	var t *time.Timer
	t = time.AfterFunc(interval, func() {
		now := progress.Load()
		if now == last {
			cancel(fmt.Errorf("%w for %v", ErrRecoveryTimeout, interval))
			return
		}
		last = now
		t.Reset(interval)
	})
	return func() { t.Stop() }
}
