// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/refold-io/refold/internal/panics"
)

// Handler updates the read model: an ExactlyOnce, an AtLeastOnce or an AtMostOnce.
//
// A worker calls it for one batch after the other, in the order of the events. The workers of a
// projection call it concurrently. Its context ends with Run. Config.OnFailure defines the
// treatment of errors and panics. If a batch of several events fails, the handler first receives
// the events again in smaller batches, until the failing event is isolated.
type Handler[E any] interface {
	delivery(errs *problems) delivery[E]
}

// ExactlyOnce changes the read model and the position in one transaction, so each event takes
// effect once, despite any failure.
type ExactlyOnce[E, Tx any] struct {
	// Store keeps the positions and begins the transactions. Required.
	Store TxStore[Tx]
	// Handle changes the read model in a transaction, which it must not end. Handle must have no
	// other effects, because it is called again for the same events if the transaction was not
	// committed. The slice is valid until Handle returns. Required.
	Handle func(ctx context.Context, tx Tx, events []Envelope[E]) error
	// Clear empties the read model. Rebuild requires it.
	Clear func(ctx context.Context, tx Tx) error
	// Batch is the maximum number of events in a call of Handle (more if an upcaster splits a
	// stored event). Handle receives the available events and never waits for more. Defaults to
	// 1,000.
	Batch int
}

// AtLeastOnce saves the position after events were handled. After a crash some events are handled
// again. The handler must therefore be idempotent: Envelope.ID, SequenceNr and Part identify an
// event.
type AtLeastOnce[E any] struct {
	// Store keeps the positions. Required.
	Store Store
	// Handle receives one event per call, HandleBatch several; the slice is valid until HandleBatch
	// returns. Set exactly one of the two.
	Handle      func(ctx context.Context, event Envelope[E]) error
	HandleBatch func(ctx context.Context, events []Envelope[E]) error
	// Clear empties the read model and may be called repeatedly. Its context ends when another
	// process takes over the rebuild. Rebuild requires it.
	Clear func(ctx context.Context) error
	// Batch is the maximum number of events in a call of HandleBatch (more if an upcaster splits a
	// stored event). Defaults to 20.
	Batch int
	// BatchWait is the time for which the first event of a batch waits for further ones. Defaults
	// to 500 ms; a negative value disables the wait.
	BatchWait time.Duration
	// SaveEvery is the number of events after which the position is saved. Defaults to 100.
	SaveEvery int
	// SaveInterval is the time after which the position is saved with fewer events. Defaults to 500
	// ms.
	SaveInterval time.Duration
}

// AtMostOnce saves the position before each event is handled. An event is lost if the process ends
// between the save and the end of the handler, or if the handler fails. Config.OnFailure must have
// no Retries. After a failure the worker continues with the next event. The position is saved once
// per event.
type AtMostOnce[E any] struct {
	// Store keeps the positions. Required.
	Store Store
	// Handle receives one event per call. Required.
	Handle func(ctx context.Context, event Envelope[E]) error
	// Clear empties the read model and may be called repeatedly. Its context ends when another
	// process takes over the rebuild. Rebuild requires it.
	Clear func(ctx context.Context) error
}

// idleInterval is the time after which a position is saved that moved past records without events.
// The next start then does not examine these records again.
const idleInterval = 5 * time.Second

// delivery is the common form of the three handlers.
type delivery[E any] struct {
	store        Store
	batch        int           // maximum number of events in a call
	wait         time.Duration // how long a batch waits to be filled
	saveEvery    int           // 0 if the position of a handled event is already saved
	saveInterval time.Duration
	before       bool // the position is saved before the events are handled
	clears       bool

	// Either apply or handle is set. An error of apply that is the handler's own is a *failure.
	apply  func(ctx context.Context, m Move, events []Envelope[E]) error
	handle func(ctx context.Context, events []Envelope[E]) error
	// clear empties the read model while the gate admits handlers, and then executes the move. If
	// the store has transactions, both happen in one transaction.
	clear func(ctx context.Context, g *pauseGate, m Move) error
	// checkOutcome, if not nil, is called at the start of a session, because the outcome of an
	// earlier clear may be unknown.
	checkOutcome func(ctx context.Context, name string) error
}

func (x ExactlyOnce[E, Tx]) delivery(errs *problems) delivery[E] {
	errs.require(x.Store != nil, "ExactlyOnce.Store", "is required")
	errs.require(x.Handle != nil, "ExactlyOnce.Handle", "is required")
	errs.require(x.Batch >= 0, "ExactlyOnce.Batch", "is %d, want at least 0", x.Batch)
	return delivery[E]{
		store: x.Store, batch: cmp.Or(x.Batch, 1000), saveInterval: idleInterval, clears: x.Clear != nil,
		apply: func(ctx context.Context, m Move, events []Envelope[E]) error {
			return applied(ctx, x.Store, m, func(ctx context.Context, tx Tx) error { return x.Handle(ctx, tx, events) })
		},
		clear: func(ctx context.Context, g *pauseGate, m Move) error {
			if err := g.enter(ctx); err != nil {
				return err
			}
			defer g.leave()
			return x.Store.Apply(ctx, m, func(ctx context.Context, tx Tx) error {
				return panics.Catch(func() error { return x.Clear(ctx, tx) })
			})
		},
	}
}

// applied calls f in a transaction and distinguishes its errors from errors of the store.
func applied[Tx any](ctx context.Context, store TxStore[Tx], m Move, f func(ctx context.Context, tx Tx) error) error {
	var own *raised
	err := store.Apply(ctx, m, func(ctx context.Context, tx Tx) error {
		own = nil
		if cause := panics.Catch(func() error { return f(ctx, tx) }); cause != nil {
			own = &raised{cause}
			return own
		}
		return nil
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrFenced) || errors.Is(err, ErrUnavailable):
		return err
	case own != nil && errors.Is(err, own) || errors.Is(err, ErrRefused):
		return &failure{err}
	}
	return err
}

// raised marks an error of f. If the store retries and then fails before it calls f again, Apply
// returns an error without this mark.
type raised struct{ error }

func (r *raised) Unwrap() error { return r.error }

func (x AtLeastOnce[E]) delivery(errs *problems) delivery[E] {
	errs.require(x.Store != nil, "AtLeastOnce.Store", "is required")
	errs.require((x.Handle == nil) != (x.HandleBatch == nil), "AtLeastOnce.Handle", "or AtLeastOnce.HandleBatch is required, not both")
	errs.require(x.Batch >= 0, "AtLeastOnce.Batch", "is %d, want at least 0", x.Batch)
	errs.require(x.SaveEvery >= 0, "AtLeastOnce.SaveEvery", "is %d, want at least 0", x.SaveEvery)
	errs.require(x.SaveInterval >= 0, "AtLeastOnce.SaveInterval", "is %v, want at least 0", x.SaveInterval)
	c := newClaimer(x.Store, x.Clear)
	d := delivery[E]{
		store: x.Store, saveEvery: cmp.Or(x.SaveEvery, 100), saveInterval: cmp.Or(x.SaveInterval, 500*time.Millisecond),
		clears: x.Clear != nil, clear: c.clear, checkOutcome: c.checkOutcome,
		batch: 1, handle: each(x.Handle),
	}
	if x.HandleBatch != nil {
		d.batch, d.wait = cmp.Or(x.Batch, 20), max(0, cmp.Or(x.BatchWait, 500*time.Millisecond))
		d.handle = x.HandleBatch
	}
	return d
}

func (x AtMostOnce[E]) delivery(errs *problems) delivery[E] {
	errs.require(x.Store != nil, "AtMostOnce.Store", "is required")
	errs.require(x.Handle != nil, "AtMostOnce.Handle", "is required")
	c := newClaimer(x.Store, x.Clear)
	return delivery[E]{
		store: x.Store, batch: 1, saveInterval: idleInterval, before: true,
		clears: x.Clear != nil, handle: each(x.Handle), clear: c.clear, checkOutcome: c.checkOutcome,
	}
}

// each returns a handler of batches that passes the events to handle one by one.
func each[E any](handle func(ctx context.Context, event Envelope[E]) error) func(ctx context.Context, events []Envelope[E]) error {
	return func(ctx context.Context, events []Envelope[E]) error {
		for i := range events {
			if err := handle(ctx, events[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// call passes events to handle. Its error is a *failure.
func (d *delivery[E]) call(ctx context.Context, events []Envelope[E]) error {
	if err := panics.Catch(func() error { return d.handle(ctx, events) }); err != nil {
		return &failure{err}
	}
	return nil
}
