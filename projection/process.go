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

// process passes items to the handler. If several of them fail together, process halves the batch
// until the failing item is isolated, and applies the strategy to it.
func (w *worker[E]) process(ctx context.Context, items []item[E]) error {
	err := w.attempt(ctx, items)
	f, failed := errors.AsType[*failure](err)
	if !failed {
		return err
	}
	if only := single(items); only != nil {
		if err := w.retry(ctx, only, f.cause); err != nil {
			return err
		}
		w.reach(items[len(items)-1].offset, 0)
		return nil
	}
	half := len(items) / 2
	if err := w.process(ctx, items[:half]); err != nil {
		return err
	}
	return w.process(ctx, items[half:])
}

// single returns the only item with events, or nil if there are several.
func single[E any](items []item[E]) *item[E] {
	var found *item[E]
	for i := range items {
		if len(items[i].events) == 0 {
			continue
		}
		if found != nil {
			return nil
		}
		found = &items[i]
	}
	return found
}

// attempt passes items to the handler once. An error of the handler is a *failure.
func (w *worker[E]) attempt(ctx context.Context, items []item[E]) error {
	to := items[len(items)-1].offset
	w.events = w.events[:0]
	for i := range items {
		w.events = append(w.events, items[i].events...)
	}
	if len(w.events) == 0 {
		w.reach(to, 0)
		return nil
	}
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.p.gate.leave()
	began := time.Now()
	err := w.handle(ctx, to)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	last := w.events[len(w.events)-1].Time
	observe(ctx, w.p, w.p.cfg.Observer.Batch,
		BatchInfo{Projection: w.p.cfg.Name, Slices: w.slices, Events: len(w.events), Last: last, Duration: time.Since(began), Err: err})
	if err != nil {
		return err
	}
	if w.p.d.saveEvery == 0 {
		w.advance(ctx)
	}
	w.p.total.handled.Add(uint64(len(w.events)))
	w.figures.set(func(s *WorkerStatus) {
		s.Handled += uint64(len(w.events))
		s.LastEvent = last
	})
	if w.p.d.saveEvery > 0 && w.unsaved >= w.p.d.saveEvery {
		return w.save(ctx)
	}
	return nil
}

// enter waits while the projection is paused. It saves the handled position before the pause.
func (w *worker[E]) enter(ctx context.Context) error {
	if w.p.gate.isClosed() {
		if err := w.save(ctx); err != nil {
			return err
		}
		w.figures.state(Paused)
		defer w.figures.state(Running)
	}
	return w.p.gate.enter(ctx)
}

// handle passes w.events to the handler and saves the position in the order of the guarantee: in
// the same transaction, before, or after.
func (w *worker[E]) handle(ctx context.Context, to journal.Offset) error {
	switch {
	case w.p.d.apply != nil:
		err := w.p.d.apply(ctx, w.move(to), w.events)
		if _, failed := errors.AsType[*failure](err); err != nil && !failed {
			w.sure = false
			return fmt.Errorf("projection %q: %w", w.p.cfg.Name, err)
		}
		if err != nil {
			return err
		}
		w.settled(to)
		return nil
	case w.p.d.before:
		w.reach(to, 0)
		if err := w.save(ctx); err != nil {
			return err
		}
		return w.p.d.call(ctx, w.events)
	}
	if err := w.p.d.call(ctx, w.events); err != nil {
		return err
	}
	w.reach(to, len(w.events))
	return nil
}

// retry passes a failed item to the handler again, as often as the strategy permits.
func (w *worker[E]) retry(ctx context.Context, it *item[E], cause error) error {
	s, attempts := w.p.cfg.OnFailure, 1
	for ; attempts <= s.Retries; attempts++ {
		if err := w.save(ctx); err != nil {
			return err
		}
		about := w.about(it, cause, attempts)
		w.figures.set(func(now *WorkerStatus) { now.State, now.Err, now.NextTry = Retrying, about, time.Now().Add(s.Delay) })
		w.p.cfg.Logger.WarnContext(ctx, "projection: retrying an event", w.p.attrs(cause, append(names(it), slog.Int("attempt", attempts), slog.Duration("next_try_in", s.Delay))...)...)
		if err := wait(ctx, s.Delay); err != nil {
			return err
		}
		w.p.total.retries.Add(1)
		err := w.attempt(ctx, []item[E]{*it})
		f, failed := errors.AsType[*failure](err)
		if !failed {
			if err == nil {
				w.figures.state(Running)
				w.figures.recover()
			}
			return err
		}
		cause = f.cause
	}
	return w.skipOrFail(ctx, it, cause, attempts)
}

// skipOrFail skips an item, or fails. It saves the position after a skipped item immediately, so
// the item is not skipped twice.
func (w *worker[E]) skipOrFail(ctx context.Context, it *item[E], cause error, attempts int) error {
	about := w.about(it, cause, attempts)
	if !w.p.cfg.OnFailure.Skip {
		return about
	}
	w.reach(it.offset, 0)
	if err := w.save(ctx); err != nil {
		return err
	}
	w.advance(ctx)
	w.figures.state(Running)
	w.figures.recover()
	w.p.total.skipped.Add(1)
	w.figures.set(func(s *WorkerStatus) { s.Skipped++ })
	w.p.cfg.Logger.WarnContext(ctx, "projection: skipping an event", w.p.attrs(cause, append(names(it), slog.Int("attempts", attempts))...)...)
	observe(ctx, w.p, w.p.cfg.Observer.Skipped, about)
	return nil
}

func names[E any](it *item[E]) []any {
	e := &it.events[0]
	return []any{slog.String("persistence_id", e.ID), slog.Uint64("sequence_nr", e.SequenceNr), slog.String("manifest", e.Manifest)}
}

func (w *worker[E]) about(it *item[E], cause error, attempts int) *EventError {
	e := &it.events[0]
	return &EventError{
		Projection: w.p.cfg.Name, ID: e.ID, SequenceNr: e.SequenceNr, Manifest: e.Manifest, Offset: e.Offset,
		Undecodable: it.err != nil, Attempts: attempts, Err: cause,
	}
}

// catchUpRestarts is the default number of consecutive restarts of CatchUp. Restarts and pauses
// take about four minutes in total, which is longer than a server takes to start.
const catchUpRestarts = 10

// pause returns the pause after the nth consecutive failure, counted from 1. random is at least 0
// and below 1.
func (c Config[E]) pause(n int, random float64) time.Duration {
	d := c.MinBackoff
	for i := 1; i < n && d < c.MaxBackoff; i++ {
		d *= 2
	}
	d = min(d, c.MaxBackoff)
	return d + time.Duration(float64(d)*c.BackoffJitter*random)
}

// streak counts consecutive failures.
type streak struct {
	failures int // limited by Config.MaxRestarts
	fences   int // by another process, which handles the events instead; not limited
}

// add counts an error and reports whether no restart is left.
func (s *streak) add(err error, maxRestarts int, once bool) bool {
	if errors.Is(err, ErrFenced) {
		s.fences++
	} else {
		s.failures++
	}
	if maxRestarts == 0 && once {
		maxRestarts = catchUpRestarts
	}
	return maxRestarts < 0 || maxRestarts > 0 && s.failures > maxRestarts
}

func (s *streak) length() int { return s.failures + s.fences }
