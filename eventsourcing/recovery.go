// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// maxSnapshotAttempts is the number of snapshots that a recovery tries to decode.
const maxSnapshotAttempts = 3

// folding computes the state of one entity from its snapshot and its events.
type folding struct {
	model    *model
	rt       *Runtime
	store    *storage
	id, pid  string
	opts     Recovery
	of       func(id string) Recovery            // HostOptions.RecoveryOf, which replaces opts; may be nil
	optional bool                                // treat a failing snapshot store as empty
	replace  func(seqNr uint64, event any) []any // nil without FoldOptions.Replace
	progress *atomic.Uint64                      // increases while the folding makes progress

	// The result of the folding.
	into     instance
	seqNr    uint64
	time     time.Time
	writer   string // of the last event, empty if the state is that of a snapshot
	snapshot uint64 // sequence number of the snapshot, 0 for none
	unread   uint64 // an event that an unreadable snapshot covers, 0 for none
	replayed uint64
	prepared bool // it began with the state of a standby
}

func newFolding(h *host, id, pid string) folding {
	return folding{
		model: h.model, rt: h.rt, store: h.storage, id: id, pid: pid, opts: h.opts.Recovery, of: h.opts.RecoveryOf,
		optional: h.model.snapshots.optional, progress: new(atomic.Uint64),
	}
}

// run computes the state. If an attempt finds a gap, run repeats the attempt once. The reason is
// that another instance may have saved a snapshot and deleted the events that this snapshot covers,
// between the load and the replay of the attempt.
func (f *folding) run(ctx context.Context) error {
	if f.of != nil {
		if err := catchPanic(f.pid, func() error { f.opts = f.of(f.id); return nil }); err != nil {
			return fmt.Errorf("HostOptions.RecoveryOf: %w", err)
		}
	}
	first := *f
	attempt := func() error { return f.once(ctx) }
	err := catchPanic(f.pid, attempt)
	if errors.Is(err, journal.ErrHistoryGap) {
		*f = first
		err = catchPanic(f.pid, attempt)
	}
	return err
}

func (f *folding) once(ctx context.Context) error {
	if f.store.journal == nil {
		return f.start()
	}
	if err := f.load(ctx); err != nil && !f.opts.Disabled {
		return err
	}
	// This call follows the load, so that the journal has all events that the snapshot covers.
	highest, err := f.store.journal.HighestSequenceNr(ctx, f.pid)
	if err != nil {
		return fmt.Errorf("read the highest sequence number of %q: %w", f.pid, err)
	}
	f.progress.Add(1)
	if f.opts.Disabled {
		// The next event must not precede the last one, or the snapshot if that one is deleted.
		for ev, err := range f.store.journal.Replay(ctx, f.pid, max(highest, 1), highest) {
			if err != nil {
				return fmt.Errorf("replay %q: %w", f.pid, err)
			}
			f.time = ev.Time
		}
		f.seqNr, f.snapshot = highest, 0
		return f.start()
	}
	if covered := max(f.seqNr, f.unread); covered > highest {
		return fmt.Errorf("a snapshot of %q covers event %d, above the journal: %w", f.pid, covered,
			&journal.GapError{ID: f.pid, Want: highest + 1})
	}
	to := highest
	if f.opts.UpTo > 0 {
		to = min(to, f.opts.UpTo)
	}
	if f.seqNr >= to {
		return nil
	}
	return f.replay(ctx, to)
}

// continues applies the events that the journal has stored after f.seqNr. An error may leave a part
// of them applied.
func (f *folding) continues(ctx context.Context) error {
	highest, err := f.store.journal.HighestSequenceNr(ctx, f.pid)
	switch {
	case err != nil:
		return fmt.Errorf("read the highest sequence number of %q: %w", f.pid, err)
	case highest < f.seqNr:
		return &journal.GapError{ID: f.pid, Want: highest + 1}
	case highest == f.seqNr:
		return nil
	}
	return f.replay(ctx, highest)
}

// start makes an empty instance.
func (f *folding) start() (err error) {
	f.into, err = f.model.newInstance(f.id, f.pid)
	return err
}

// load starts with the newest matching snapshot that can be decoded, or with an empty instance.
func (f *folding) load(ctx context.Context) error {
	if f.store.snapshots == nil || f.opts.DisableSnapshots {
		return f.start()
	}
	criteria := f.criteria()
	for range maxSnapshotAttempts {
		s, err := f.store.snapshots.Load(ctx, f.pid, criteria)
		f.progress.Add(1)
		switch {
		case errors.Is(err, snapshot.ErrNotFound):
			return f.start()
		case errors.Is(err, snapshot.ErrCorrupt) || err != nil && f.optional:
			if errors.Is(err, snapshot.ErrCorrupt) {
				f.unread = max(f.unread, 1)
			}
			f.rt.log.WarnContext(ctx, "snapshot can't be loaded, replaying all events", slog.String("persistence_id", f.pid), slog.Any("error", err))
			return f.start()
		case err != nil:
			return fmt.Errorf("load the snapshot of %q: %w", f.pid, err)
		}
		if err = f.start(); err != nil {
			return err
		}
		err = catchPanic(f.pid, func() error { return f.model.decode(s.Manifest, s.Payload, f.into.state) })
		if err == nil {
			f.seqNr, f.snapshot, f.time = s.SequenceNr, s.SequenceNr, s.Time
			return nil
		}
		level := slog.LevelWarn
		if errors.Is(err, ErrSnapshotVersion) {
			level = slog.LevelDebug // as Snapshots.Version describes
		}
		f.rt.log.Log(ctx, level, "snapshot can't be decoded, trying an older one", slog.String("persistence_id", f.pid),
			slog.Uint64("sequence_nr", s.SequenceNr), slog.Any("error", err))
		f.unread = max(f.unread, s.SequenceNr)
		if s.SequenceNr <= 1 {
			break
		}
		criteria.MaxSequenceNr = s.SequenceNr - 1
	}
	return f.start()
}

func (f *folding) criteria() snapshot.Criteria {
	c := f.opts.Snapshots.Bounded()
	if f.opts.UpTo > 0 {
		c.MaxSequenceNr = min(c.MaxSequenceNr, f.opts.UpTo)
	}
	if !f.opts.AsOf.IsZero() && f.opts.AsOf.Before(c.MaxTime) {
		c.MaxTime = f.opts.AsOf
	}
	return c
}

// replay applies the events after f.seqNr up to a sequence number. It fails if an event is missing.
func (f *folding) replay(ctx context.Context, to uint64) error {
	var decoded []any
	for ev, err := range f.rt.filter.Apply(f.pid, f.store.journal.Replay(ctx, f.pid, f.seqNr+1, to)) {
		if err != nil {
			return fmt.Errorf("replay %q: %w", f.pid, err)
		}
		f.progress.Add(1)
		if ev.SequenceNr > f.seqNr+1 || ev.SequenceNr <= f.seqNr && f.rt.cfg.ReplayFilter.Mode < journal.FilterWarn {
			return &journal.GapError{ID: f.pid, Want: f.seqNr + 1, Got: ev.SequenceNr}
		}
		if !f.opts.AsOf.IsZero() && ev.Time.After(f.opts.AsOf) {
			return nil
		}
		if decoded, err = f.applyStored(decoded, ev); err != nil {
			return err
		}
	}
	if f.seqNr < to {
		return &journal.GapError{ID: f.pid, Want: f.seqNr + 1}
	}
	return nil
}

// applyStored applies a stored event. The slice is reused for the decoded events and returned.
func (f *folding) applyStored(decoded []any, ev journal.Event) (_ []any, err error) {
	f.seqNr, f.time, f.writer = max(f.seqNr, ev.SequenceNr), ev.Time, ev.Writer
	f.replayed++
	if ev.IsFence() {
		return decoded, nil
	}
	if f.model.events == nil {
		return nil, fmt.Errorf("replay event %d of %q: %w: %q: Type.Events is missing", ev.SequenceNr, f.pid, codec.ErrUnknown, ev.Manifest)
	}
	if decoded, err = f.model.events.DecodeAppend(decoded[:0], ev.Manifest, ev.Payload); err != nil {
		return nil, fmt.Errorf("replay event %d of %q: %w", ev.SequenceNr, f.pid, err)
	}
	if err = f.applyAll(decoded, Recorded{SequenceNr: ev.SequenceNr, Time: ev.Time, Metadata: ev.Metadata, Recovering: true}); err != nil || f.replace != nil {
		return decoded, err // replaced events need not agree
	}
	for _, p := range f.into.parts() {
		if err = p.Replayed(); err != nil {
			return decoded, fmt.Errorf("replay event %d of %q: %w", ev.SequenceNr, f.pid, err)
		}
	}
	return decoded, nil
}

// applyAll applies the events to which one stored event decodes.
func (f *folding) applyAll(decoded []any, record Recorded) error {
	for _, event := range decoded {
		if !f.model.isEvent(event) {
			return fmt.Errorf("replay event %d of %q: %w: %T is not an event of this type", record.SequenceNr, f.pid, codec.ErrUnknown, event)
		}
		if f.replace == nil {
			f.model.apply(&f.into, event, record)
			continue
		}
		for _, r := range f.replace(record.SequenceNr, event) {
			f.model.apply(&f.into, r, record)
		}
	}
	return nil
}

// recover starts the recovery of a new instance in the background.
func (e *entity) recover() {
	if w := e.host.writer; w != nil {
		w.Reset(&e.stream)
	}
	asked, info := time.Now(), RecoveryInfo{PersistenceID: e.pid(), Context: context.Background()}
	if first := e.machine.First(); first != nil {
		if s, ok := first.Caller.(sender); ok {
			info.Context = s.from().ctx
		}
	}
	ctx, cancel := context.WithCancelCause(e.host.rt.ctx)
	e.abandon = cancel
	e.host.rt.recovery.do(func() { e.runRecovery(ctx, cancel, asked, info) })
}

func (e *entity) runRecovery(ctx context.Context, cancel context.CancelCauseFunc, asked time.Time, info RecoveryInfo) {
	rt := e.host.rt
	if ctx.Err() != nil && rt.ctx.Err() == nil {
		return // the entity was killed before its recovery could start
	}
	if rt.obs.RecoveryStarted != nil {
		rt.observe(func() { rt.obs.RecoveryStarted(e.pid()) })
	}
	f := newFolding(e.host, e.id(), e.pid())
	stop := watchProgress(f.progress, rt.cfg.RecoveryTimeout, cancel)
	err := f.fromStandby(ctx, e.host)
	stop()
	switch cause := context.Cause(ctx); {
	case err == nil:
	case errors.Is(cause, ErrRecoveryTimeout):
		err = cause
	case cause != nil: // the entity was killed, or the runtime has ended
		err = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	cancel(nil)
	if rt.obs.Recovery != nil {
		info.SequenceNr, info.SnapshotNr, info.Events, info.Prepared = f.seqNr, f.snapshot, f.replayed, f.prepared
		info.Duration, info.Err = time.Since(asked), err
		rt.observe(func() { rt.obs.Recovery(info) })
	}
	if err != nil {
		e.do(func(out *engine.Effects) { e.recoveryFailed(err, out) }) //nolint:contextcheck // the entity outlives the recovery
		return
	}
	in := engine.Input{Kind: engine.Recovered, Recovery: engine.Recovery{
		SequenceNr: f.seqNr, Time: f.time, SnapshotNr: f.snapshot, Replayed: f.replayed, Writer: rt.newWriter(),
	}}
	e.do(func(out *engine.Effects) { e.recovered(&f, in, out) }) //nolint:contextcheck // the entity outlives the recovery
}

func (e *entity) recovered(f *folding, in engine.Input, out *engine.Effects) {
	e.instance, e.readOnly, e.abandon = f.into, f.opts.readOnly(), nil
	e.partial = f.opts.Disabled && f.seqNr > 0
	if e.machine.Recovering() { // the entity was not stopped in the meantime
		e.startParts()
		e.watchRecovered()
		e.running.Store(true) // before the step, which answers messages: their callers may query the presence
	}
	e.step(in, out)
	e.resetDeadline()
	e.updateDeadline()
}

// recoveryFailed passes the failure to the machine, with the signal for the empty state if the type
// handles it.
func (e *entity) recoveryFailed(cause error, out *engine.Effects) {
	in := engine.Input{Kind: engine.Recovered, Err: cause}
	if e.host.model.signals[reflect.TypeFor[RecoveryFailed]()] == nil || errors.Is(cause, ErrStopped) || !e.machine.Recovering() {
		e.step(in, out)
		return
	}
	before := e.instance
	err := catchPanic(e.pid(), func() (err error) {
		e.instance, err = e.host.model.newInstance(e.id(), e.pid())
		return err
	})
	if err == nil {
		e.emptied = true
		in.Env = &engine.Envelope{Message: RecoveryFailed{Err: cause}, Signal: true}
	}
	defer func() { // also if user code calls runtime.Goexit
		e.emptied = false
		if !e.absent {
			e.instance = before
		}
	}()
	e.step(in, out)
}

// refresh applies the events of other runtimes in the background, for HostOptions.SharedJournal.
func (e *entity) refresh() {
	rt := e.host.rt
	f := newFolding(e.host, e.id(), e.pid())
	f.into, f.seqNr = e.instance, e.machine.SequenceNr()
	ctx, cancel := context.WithCancelCause(rt.ctx)
	e.abandon = cancel
	rt.recovery.do(func() {
		stop := watchProgress(f.progress, rt.cfg.RecoveryTimeout, cancel)
		err := catchPanic(f.pid, func() error { return f.continues(ctx) })
		stop()
		cancel(nil)
		in := engine.Input{Kind: engine.Refreshed, Err: err, Recovery: engine.Recovery{SequenceNr: f.seqNr, Time: f.time}}
		if f.replayed > 0 {
			in.Recovery.Writer = rt.newWriter()
		}
		e.do(func(out *engine.Effects) { //nolint:contextcheck // the entity outlives the refresh
			e.abandon = nil
			e.step(in, out)
			if f.replayed > 0 && !e.absent && !e.machine.Recovering() {
				e.updateDeadline()
			}
		})
	})
}

// watchProgress calls cancel if a counter does not change for one to two intervals.
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
