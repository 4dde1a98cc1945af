// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// viewPrefix begins the IDs of the snapshots of views. No entity has an ID with this prefix.
const viewPrefix = journal.ReservedPrefix + "view"

// ViewOptions configure a View. The zero value holds the defaults.
//
// Name, SnapshotEvery, Save and Load switch the snapshots of the view on; set all four or none. The
// snapshots are in the snapshot store of the type, apart from those of the entity. Only the newest
// one is kept.
type ViewOptions struct {
	// After is the sequence number of the last event that was already applied. The view begins with
	// the next one, or with a snapshot of the view above After. Defaults to 0: it begins with the
	// first event.
	After uint64
	// Interval is the interval at which Run reads new events. Defaults to 5 s.
	Interval time.Duration
	// MaxEvents is the number of stored events after which an Update ends, so that a long history
	// does not occupy the view. View.Pending then reports whether there are more. Run continues at
	// once. Defaults to 0: no limit.
	MaxEvents int
	// Name tells the snapshots of this view from those of other views of the entity. It must be
	// stable and must not contain "|". The name and the persistence ID have at most
	// journal.MaxIDLength-13 bytes together.
	Name string
	// SnapshotEvery is the number of stored events after which the view saves its next snapshot.
	SnapshotEvery int
	// Save returns the encoded state of the view. It runs between two events, and the snapshot store
	// keeps the bytes: they must not change. If Save or the store fails, the view logs the error and
	// tries again SnapshotEvery events later.
	Save func() ([]byte, error)
	// Load replaces the state of the view with one that Save has encoded. It must not change the
	// bytes. If it returns an error, such as for the form of another release, it must leave the state
	// as it was. The view then tries an older snapshot or applies all events.
	Load func(state []byte) error
}

func (o *ViewOptions) snapshots() bool {
	return o.Name != "" || o.SnapshotEvery != 0 || o.Save != nil || o.Load != nil
}

func (o *ViewOptions) check(pid string) error {
	var errs fielderror.Errors
	fielderror.NotNegative(&errs, "ViewOptions.Interval", o.Interval)
	fielderror.NotNegative(&errs, "ViewOptions.MaxEvents", o.MaxEvents)
	if !o.snapshots() {
		return errs.Err(ErrInvalid)
	}
	if strings.TrimSpace(o.Name) == "" || strings.Contains(o.Name, "|") {
		errs.Addf("ViewOptions.Name", "%.64q is blank or contains a \"|\"", o.Name)
	} else {
		errs.Add("ViewOptions.Name", journal.CheckID(viewID(o.Name, pid)))
	}
	if o.SnapshotEvery < 1 {
		errs.Addf("ViewOptions.SnapshotEvery", "is %d, it must be at least 1 for a view with snapshots", o.SnapshotEvery)
	}
	if o.Save == nil {
		errs.Addf("ViewOptions.Save", "is missing: a view with snapshots needs it")
	}
	if o.Load == nil {
		errs.Addf("ViewOptions.Load", "is missing: a view with snapshots needs it")
	}
	return errs.Err(ErrInvalid)
}

// viewID returns the ID of the snapshots of a view. A name contains no "|", so two views have the
// same ID only if they have the same name and the same entity.
func viewID(name, pid string) string { return journal.JoinID(viewPrefix, journal.JoinID(name, pid)) }

// Viewed is an event for a View.
type Viewed[E any] struct {
	Event      E
	SequenceNr uint64
	Time       time.Time
}

// View follows the events of one entity. It neither writes events nor starts the entity. It is safe
// for concurrent use.
type View[E any] struct {
	rt       *Runtime
	typeName string
	events   *codec.Registry
	pid      string
	opts     ViewOptions
	apply    func(Viewed[E]) error

	mu      sync.Mutex // held during an update
	last    uint64
	partial int    // how many of the events to which event last+1 decodes are applied
	begun   bool   // a snapshot is loaded, or an event was passed to apply
	saved   uint64 // the number at which the view last tried to save a snapshot, or of the loaded one
	pending bool
}

// NewView returns a view of the entity of a type with this ID. apply is called for each event, in
// order and on one goroutine at a time. If apply fails, the update ends, and the next update begins
// with the same event, also if a stored event decodes to several. The functions of the view must not
// call its methods. The events are read from the store of the type if rt hosts it, otherwise from
// Config.Store.
func NewView[S, E any](rt *Runtime, typ Type[S, E], id string, opts ViewOptions, apply func(Viewed[E]) error) (*View[E], error) {
	pid, err := typ.PersistenceIDOf(id)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	from := rt.storageOf(typ.Name)
	switch {
	case from.journal == nil:
		return nil, fmt.Errorf("view of %q: %w", pid, ErrNoJournal)
	case typ.Events == nil:
		return nil, fmt.Errorf("%w: view of %q: Type.Events is missing", ErrInvalid, pid)
	case typ.Events.Err() != nil:
		return nil, fmt.Errorf("%w: view of %q: %w", ErrInvalid, pid, typ.Events.Err())
	case apply == nil:
		return nil, fmt.Errorf("%w: view of %q: apply is missing", ErrInvalid, pid)
	}
	if err = opts.check(pid); err != nil {
		return nil, fmt.Errorf("view of %q: %w", pid, err)
	}
	if opts.snapshots() && from.snapshots == nil {
		return nil, fmt.Errorf("view of %q: ViewOptions.SnapshotEvery is set: %w", pid, ErrNoSnapshots)
	}
	if opts.Interval == 0 {
		opts.Interval = 5 * time.Second
	}
	return &View[E]{rt: rt, typeName: typ.Name, events: typ.Events, pid: pid, opts: opts, apply: apply, last: opts.After, saved: opts.After}, nil
}

// SequenceNr returns the sequence number of the last event that was applied. The first Update loads
// the snapshot.
func (v *View[E]) SequenceNr() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// Pending reports whether the last Update ended at ViewOptions.MaxEvents although the journal had
// more events.
func (v *View[E]) Pending() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pending
}

// Update applies the stored events that were not applied yet, at most ViewOptions.MaxEvents. It fails
// with a *journal.GapError if an event is missing, also if the entity has deleted all events that the
// view lacks, or if the journal has fewer events than the snapshot of the view covers.
//
// An Update that finds no event also reads the highest sequence number of the entity. So a view that
// has nothing to apply costs two short reads of the journal per Update.
func (v *View[E]) Update(ctx context.Context) error {
	_, err := v.update(ctx)
	return err
}

func (v *View[E]) update(ctx context.Context) (pending bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending = false
	from := v.rt.storageOf(v.typeName)
	if !v.begun && v.opts.snapshots() && from.snapshots != nil {
		if err = v.restore(ctx, from); err != nil {
			return false, fmt.Errorf("view of %q: %w", v.pid, err)
		}
	}
	if err = v.catchUp(ctx, from); err != nil {
		return false, fmt.Errorf("view of %q: %w", v.pid, err)
	}
	return v.pending, nil
}

// catchUp applies the events after the last one. If there is none, the highest sequence number shows
// whether they are deleted or not yet stored. An event may have been stored between the two reads, so
// the second replay decides.
func (v *View[E]) catchUp(ctx context.Context, from *storage) error {
	start := v.last
	for highest := start; ; {
		if err := v.replay(ctx, from); err != nil || v.last > start {
			return err
		}
		if highest > start { // the journal had these events before the replay
			return &journal.GapError{ID: v.pid, Want: start + 1}
		}
		var err error
		if highest, err = from.journal.HighestSequenceNr(ctx, v.pid); err != nil {
			return fmt.Errorf("read the highest sequence number: %w", err)
		}
		if highest <= start {
			return nil
		}
	}
}

// replay applies the stored events after the last one, at most ViewOptions.MaxEvents.
func (v *View[E]) replay(ctx context.Context, from *storage) error {
	start, to := v.last, journal.MaxSequenceNr
	if limit := uint64(v.opts.MaxEvents); limit > 0 && start < to-limit { //nolint:gosec // it is not negative
		to = start + limit + 1 // the event after the limit shows that there are more
	}
	var decoded []any
	for ev, err := range from.journal.Replay(ctx, v.pid, start+1, to) {
		if err != nil {
			return err
		}
		if ev.SequenceNr != v.last+1 {
			return &journal.GapError{ID: v.pid, Want: v.last + 1, Got: ev.SequenceNr}
		}
		if v.opts.MaxEvents > 0 && v.last-start == uint64(v.opts.MaxEvents) {
			v.pending = true
			break
		}
		if decoded, err = v.applyStored(decoded, ev); err != nil {
			return err
		}
		v.last, v.partial = ev.SequenceNr, 0
		if every := v.opts.SnapshotEvery; every > 0 && v.last-v.saved >= uint64(every) {
			v.save(ctx, from, ev.Time)
		}
	}
	return nil
}

// applyStored applies the events to which a stored event decodes, without those that an earlier
// update has applied. The slice is reused for the decoded events and returned.
func (v *View[E]) applyStored(decoded []any, ev journal.Event) (_ []any, err error) {
	if ev.IsFence() {
		return decoded, nil
	}
	if decoded, err = v.events.DecodeAppend(decoded[:0], ev.Manifest, ev.Payload); err != nil {
		return nil, fmt.Errorf("event %d: %w", ev.SequenceNr, err)
	}
	for _, d := range decoded[min(v.partial, len(decoded)):] {
		event, ok := d.(E)
		if !ok {
			return nil, fmt.Errorf("event %d: %w: %T is not an event of this type", ev.SequenceNr, codec.ErrUnknown, d)
		}
		v.begun = true
		if err := v.apply(Viewed[E]{Event: event, SequenceNr: ev.SequenceNr, Time: ev.Time}); err != nil {
			return nil, fmt.Errorf("apply event %d: %w", ev.SequenceNr, err)
		}
		v.partial++
	}
	return decoded, nil
}

// restore continues at the newest snapshot of the view that can be loaded. Without one, the view stays
// where it is: the events lead to the same state.
func (v *View[E]) restore(ctx context.Context, from *storage) error {
	id, c := viewID(v.opts.Name, v.pid), snapshot.Latest()
	c.MinSequenceNr = v.last + 1
	for range maxSnapshotAttempts {
		s, err := from.snapshots.Load(ctx, id, c)
		switch {
		case errors.Is(err, snapshot.ErrNotFound):
			return nil
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("load the snapshot %q: %w", id, err)
		case err != nil:
			v.rt.log.WarnContext(ctx, "snapshot of the view can't be loaded, replaying all events", slog.String("snapshot_id", id), slog.Any("error", err))
			return nil
		}
		// This call follows the load, so that the journal has all events that the snapshot covers.
		highest, err := from.journal.HighestSequenceNr(ctx, v.pid)
		if err != nil {
			return fmt.Errorf("read the highest sequence number: %w", err)
		}
		if s.SequenceNr > highest {
			return fmt.Errorf("the snapshot %q covers event %d, above the journal: %w", id, s.SequenceNr,
				&journal.GapError{ID: v.pid, Want: highest + 1})
		}
		if err = v.opts.Load(s.Payload); err == nil {
			v.last, v.saved, v.begun = s.SequenceNr, s.SequenceNr, true
			return nil
		}
		v.rt.log.WarnContext(ctx, "snapshot of the view can't be decoded, trying an older one", slog.String("snapshot_id", id),
			slog.Uint64("sequence_nr", s.SequenceNr), slog.Any("error", err))
		if s.SequenceNr == c.MinSequenceNr {
			return nil
		}
		c.MaxSequenceNr = s.SequenceNr - 1
	}
	return nil
}

// save stores a snapshot at the last event, and then deletes those before it. The view does not depend
// on its snapshots, so a failure is only logged.
func (v *View[E]) save(ctx context.Context, from *storage, at time.Time) {
	v.saved = v.last
	id, err := viewID(v.opts.Name, v.pid), ErrNoSnapshots
	if from.snapshots != nil {
		var state []byte
		if state, err = v.opts.Save(); err == nil {
			md := snapshot.Metadata{ID: id, SequenceNr: v.last, Time: at}
			err = from.snapshots.Save(ctx, snapshot.Snapshot{Metadata: md, Manifest: viewPrefix, Payload: state})
		}
		if err == nil {
			err = from.snapshots.Delete(ctx, id, snapshot.UpTo(v.last-1))
		}
	}
	if err != nil {
		v.rt.log.WarnContext(ctx, "snapshot of the view can't be saved", slog.String("snapshot_id", id),
			slog.Uint64("sequence_nr", v.last), slog.Any("error", err))
	}
}

// Run calls Update at each interval until ctx ends or an update fails, and returns the cause. After an
// update that ends at ViewOptions.MaxEvents, the next one follows at once.
func (v *View[E]) Run(ctx context.Context) error {
	tick := time.NewTicker(v.opts.Interval)
	defer tick.Stop()
	for {
		pending, err := v.update(ctx)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case pending:
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
