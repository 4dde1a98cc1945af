// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/journal"
)

// reach notes that everything up to a position was handled, with a number of
// events.
func (w *worker[E]) reach(to journal.Offset, events int) {
	if to == "" { // an empty journal
		to = w.stored.Offset
	}
	w.reached = to
	w.unsaved += events
	if w.dirty.IsZero() && to != w.stored.Offset {
		w.dirty = time.Now()
	}
}

// saveDue reports whether the position has waited for long enough.
func (w *worker[E]) saveDue(now time.Time) bool {
	return !w.dirty.IsZero() && now.Sub(w.dirty) >= w.p.d.saveInterval
}

// save stores how far events were handled, if that is not stored yet.
func (w *worker[E]) save(ctx context.Context) error {
	to := w.reached
	if to == w.stored.Offset {
		w.settled(to)
		return nil
	}
	if err := w.p.d.store.Save(ctx, w.move(to)); err != nil {
		w.sure = false
		if errors.Is(err, ErrFenced) && w.unsaved > 0 {
			err = errors.Join(err, w.overtaken(ctx))
		}
		return fmt.Errorf("projection %q: %w", w.p.cfg.Name, err)
	}
	w.settled(to)
	if !w.p.d.before { // there the handler has yet to succeed
		w.advance(ctx)
	}
	return nil
}

// overtaken is called when events were handled whose position can't be saved, without
// transactions. If another process has begun to clear the read model for a
// rebuild, or has built some of it already, these events were handled
// somewhere in between, in no order with the others: the rebuild has to be done
// again.
func (w *worker[E]) overtaken(ctx context.Context) error {
	stored, err := w.p.d.store.Load(ctx, w.p.cfg.Name)
	if err != nil {
		return err
	}
	rebuilt := claimed(stored)
	for _, p := range stored {
		rebuilt = rebuilt || !p.Clear && p.Slices.Contains(w.slices.First) && start(p.Offset).Compare(start(w.stored.Offset)) < 0
	}
	if !rebuilt {
		return nil
	}
	w.p.cfg.Logger.WarnContext(ctx, "events were handled here while another process rebuilt the projection, which is asked for again", slog.String("projection", w.p.cfg.Name))
	return w.p.d.store.Reset(ctx, w.p.cfg.Name)
}

// finish saves what was handled when a stream ends, unless it is not known what
// the store holds. It is worth a try and no more: what is not saved is handled
// again, or looked at again.
func (w *worker[E]) finish(ctx context.Context) {
	if !w.sure {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishPatience)
	defer cancel()
	if err := w.save(ctx); err != nil && !errors.Is(err, ErrFenced) {
		w.p.cfg.Logger.WarnContext(ctx, "the last position was not saved", slog.String("projection", w.p.cfg.Name), slog.Any("error", err))
	}
}

// move is the change of the stored position to another.
func (w *worker[E]) move(to journal.Offset) Move {
	after := w.stored
	after.Offset = to
	return Move{Projection: w.p.cfg.Name, From: []Position{w.stored}, To: []Position{after}}
}

// settled notes what the store holds now.
func (w *worker[E]) settled(to journal.Offset) {
	w.stored.Offset, w.reached = to, to
	w.dirty, w.unsaved = time.Time{}, 0
	w.figures.stored(to)
}
