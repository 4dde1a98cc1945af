// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
)

// ViewOptions configure a View. The zero value holds the defaults.
type ViewOptions struct {
	// After is the sequence number of the last event that was already applied. The view begins with
	// the next one. Defaults to 0: it begins with the first event.
	After uint64
	// Interval is the interval at which Run reads new events. Defaults to 5 s.
	Interval time.Duration
}

// Viewed is an event for a View.
type Viewed[E any] struct {
	Event      E
	SequenceNr uint64
	Time       time.Time
}

// View follows the events of one entity. It neither writes nor starts the entity. It is safe for
// concurrent use.
type View[E any] struct {
	rt       *Runtime
	typeName string
	events   *codec.Registry
	pid      string
	opts     ViewOptions
	apply    func(Viewed[E]) error

	mu   sync.Mutex // held during an update
	last uint64
}

// NewView returns a view of the entity of a type with this ID. apply is called for each event, in
// order and on one goroutine at a time. If apply fails, the update ends, and the next update begins
// with the same event.
func NewView[S, E any](rt *Runtime, typ Type[S, E], id string, opts ViewOptions, apply func(Viewed[E]) error) (*View[E], error) {
	pid, err := typ.PersistenceIDOf(id)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	switch {
	case rt.storageOf(typ.Name).journal == nil:
		return nil, fmt.Errorf("view of %q: %w", pid, ErrNoJournal)
	case typ.Events == nil:
		return nil, fmt.Errorf("%w: view of %q: Type.Events is missing", ErrInvalid, pid)
	case typ.Events.Err() != nil:
		return nil, fmt.Errorf("%w: view of %q: %w", ErrInvalid, pid, typ.Events.Err())
	case apply == nil:
		return nil, fmt.Errorf("%w: view of %q: apply is missing", ErrInvalid, pid)
	case opts.Interval < 0:
		return nil, fmt.Errorf("%w: view of %q: ViewOptions.Interval is negative", ErrInvalid, pid)
	case opts.Interval == 0:
		opts.Interval = 5 * time.Second
	}
	return &View[E]{rt: rt, typeName: typ.Name, events: typ.Events, pid: pid, opts: opts, apply: apply, last: opts.After}, nil
}

// SequenceNr returns the sequence number of the last event that was applied.
func (v *View[E]) SequenceNr() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// Update applies the stored events that were not applied yet.
func (v *View[E]) Update(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var decoded []any
	for ev, err := range v.rt.storageOf(v.typeName).journal.Replay(ctx, v.pid, v.last+1, journal.MaxSequenceNr) {
		if err != nil {
			return fmt.Errorf("view of %q: %w", v.pid, err)
		}
		if ev.SequenceNr != v.last+1 {
			return fmt.Errorf("view of %q: %w", v.pid, &journal.GapError{ID: v.pid, Want: v.last + 1, Got: ev.SequenceNr})
		}
		decoded = decoded[:0]
		if !ev.IsFence() {
			if decoded, err = v.events.DecodeAppend(decoded, ev.Manifest, ev.Payload); err != nil {
				return fmt.Errorf("view of %q: event %d: %w", v.pid, ev.SequenceNr, err)
			}
		}
		for _, d := range decoded {
			event, ok := d.(E)
			if !ok {
				return fmt.Errorf("view of %q: event %d: %w: %T is not an event of this type", v.pid, ev.SequenceNr, codec.ErrUnknown, d)
			}
			if err := v.apply(Viewed[E]{Event: event, SequenceNr: ev.SequenceNr, Time: ev.Time}); err != nil {
				return fmt.Errorf("view of %q: apply event %d: %w", v.pid, ev.SequenceNr, err)
			}
		}
		v.last = ev.SequenceNr
	}
	return nil
}

// Run calls Update at each interval until ctx ends or an update fails, and returns the cause.
func (v *View[E]) Run(ctx context.Context) error {
	tick := time.NewTicker(v.opts.Interval)
	defer tick.Stop()
	for {
		if err := v.Update(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
