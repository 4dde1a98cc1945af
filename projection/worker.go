// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

// worker handles the events of one range of slices, one batch after the other. A second goroutine
// reads the next page at the same time.
type worker[E any] struct {
	p       *Projection[E]
	slices  journal.Slices
	once    bool // end at the end of the journal
	figures figures

	// State of the current stream.
	stored  Position       // position in the store
	sure    bool           // whether stored certainly is the position in the store
	reached journal.Offset // position after the handled events
	dirty   time.Time      // since when reached differs from stored, zero if it does not
	unsaved int            // events between stored and reached
	pending []item[E]      // read and not handled, from head on
	head    int
	count   int       // events in pending
	since   time.Time // since when a batch is being filled
	atEnd   bool      // the journal has no events after pending
	row     streak    // of failures
	events  []Envelope[E]
}

// finishPatience is how long a worker that ends waits for its last save.
const finishPatience = 5 * time.Second

// run handles events until ctx ends, the ranges change, or no restart is left. With once, run
// returns nil at the end of the journal. After a failure it restarts at its stored position.
func (w *worker[E]) run(ctx context.Context) error {
	for {
		err := panics.Catch(func() error { return w.stream(ctx) }) // the journal or the store may panic
		switch {
		case err == nil:
			w.figures.stop(nil, 0)
			return nil
		case ctx.Err() != nil:
			w.figures.stop(nil, 0)
			return context.Cause(ctx)
		case errors.Is(err, errRangesChanged):
			return err
		case errors.Is(err, ErrFenced) && w.p.lookForRebuild(ctx) != nil:
			return errRangesChanged // a rebuild was requested between two checks; this is not a failure
		}
		if w.row.add(err, w.p.cfg.MaxRestarts, w.once) || isPermanent(err) {
			w.figures.stop(err, w.row.length())
			return err
		}
		n := w.row.length()
		pause := w.p.cfg.pause(n, rand.Float64()) //nolint:gosec // jitter is not a secret
		w.figures.fail(err, n, pause)
		w.p.notifyRestart(ctx, RestartInfo{Slices: w.slices, Attempt: n, Pause: pause, Err: err})
		if err := wait(ctx, pause); err != nil {
			w.figures.stop(nil, 0)
			return err
		}
	}
}

// advance records progress, which resets the count of consecutive failures.
func (w *worker[E]) advance(ctx context.Context) {
	if w.row == (streak{}) {
		return
	}
	w.p.cfg.Logger.InfoContext(ctx, "projection: worker recovered", slog.String("projection", w.p.cfg.Name),
		slog.String("slices", w.slices.String()), slog.Int("failures", w.row.length()))
	w.row = streak{}
	w.figures.recover()
}

// stream handles events from the stored position on.
func (w *worker[E]) stream(ctx context.Context) error {
	if err := w.load(ctx); err != nil {
		return err
	}
	w.figures.begin(w.stored.Offset)
	reading, cancel := context.WithCancel(ctx)
	var (
		reader  sync.WaitGroup
		pages   = make(chan page[E])
		readErr error
	)
	after := w.stored.Offset
	reader.Go(func() {
		defer close(pages)
		readErr = panics.Catch(func() error { return w.read(reading, after, pages) })
	})
	stop := func() {
		cancel()
		reader.Wait()
	}
	defer stop() // a handler may end this goroutine
	err := w.consume(ctx, pages)
	stop()
	w.finish(ctx)
	if err != nil {
		return err
	}
	return readErr
}

func (w *worker[E]) load(ctx context.Context) error {
	positions, err := w.p.d.store.Load(ctx, w.p.cfg.Name)
	if err != nil {
		return fmt.Errorf("projection %q: %w", w.p.cfg.Name, err)
	}
	i := slices.IndexFunc(positions, func(p Position) bool { return p.Slices == w.slices })
	if i < 0 || mustClear(positions) {
		return errRangesChanged
	}
	w.stored, w.reached, w.sure = positions[i], positions[i].Offset, true
	w.dirty, w.unsaved = time.Time{}, 0
	w.pending, w.head, w.count, w.atEnd = w.pending[:0], 0, 0, false
	return nil
}

// consume handles pages until there are no more, or until a failure.
func (w *worker[E]) consume(ctx context.Context, pages <-chan page[E]) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for open := true; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := time.Now()
		if !w.dirty.IsZero() && now.Sub(w.dirty) >= w.p.d.saveInterval {
			if err := w.save(ctx); err != nil {
				return err
			}
		}
		if w.batchDue(now, open) {
			if err := w.next(ctx); err != nil {
				return err
			}
			continue
		}
		if w.atEnd && w.head == len(w.pending) && w.dirty.IsZero() {
			w.advance(ctx)
		}
		if !open {
			return nil
		}
		if w.count > 0 && w.p.d.wait == 0 { // take the available pages without waiting
			select {
			case p, ok := <-pages:
				open = w.take(p, ok)
			default:
				if err := w.next(ctx); err != nil {
					return err
				}
			}
			continue
		}
		timer.Reset(w.idle(now))
		select {
		case p, ok := <-pages:
			open = w.take(p, ok)
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// take appends a page to the pending events. It returns false if there was no page.
func (w *worker[E]) take(p page[E], ok bool) bool {
	if !ok {
		return false
	}
	if w.count == 0 {
		w.since = time.Now()
	}
	n := copy(w.pending, w.pending[w.head:])
	clear(w.pending[n:])
	w.pending, w.head = append(w.pending[:n], p.items...), 0
	for i := range p.items {
		w.count += len(p.items[i].events)
	}
	w.atEnd = p.end
	w.figures.pageTaken(p.number)
	w.updateFigures()
	return true
}

// batchDue reports whether the pending events are to be handled now.
func (w *worker[E]) batchDue(now time.Time, open bool) bool {
	if w.head == len(w.pending) {
		return false
	}
	return w.count == 0 || w.count >= w.p.d.batch || !open || w.p.d.wait > 0 && now.Sub(w.since) >= w.p.d.wait
}

// idle returns how long the worker may wait for a page.
func (w *worker[E]) idle(now time.Time) time.Duration {
	d := time.Hour
	if w.count > 0 {
		d = min(d, w.since.Add(w.p.d.wait).Sub(now))
	}
	if !w.dirty.IsZero() {
		d = min(d, w.dirty.Add(w.p.d.saveInterval).Sub(now))
	}
	return max(0, d)
}

// next handles one batch of the pending events: as many stored events as fit, but at least one. An
// event that cannot be decoded forms a batch of its own.
func (w *worker[E]) next(ctx context.Context) error {
	items, n, events := w.pending[w.head:], 0, 0
	for n < len(items) && (n == 0 || items[n].err == nil && events+len(items[n].events) <= w.p.d.batch) {
		events += len(items[n].events)
		if n++; items[n-1].err != nil {
			break
		}
	}
	var err error
	if items[0].err != nil {
		err = w.skipOrFail(ctx, &items[0], items[0].err, 0)
	} else {
		err = w.process(ctx, items[:n])
	}
	if err != nil {
		return err
	}
	w.head += n
	w.count -= events
	w.since = time.Now()
	w.updateFigures()
	return nil
}

func (w *worker[E]) updateFigures() {
	var oldest time.Time
	for _, it := range w.pending[w.head:] {
		if len(it.events) > 0 {
			oldest = it.events[0].Time
			break
		}
	}
	w.figures.pending(oldest, w.atEnd)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read passes the pages after a position to the worker, one page ahead. It ends when ctx ends, at
// an error of the journal, or, with once, at the last event that the journal had at the start.
func (w *worker[E]) read(ctx context.Context, after journal.Offset, out chan<- page[E]) error {
	query := w.p.cfg.Criteria
	query.Slices = w.slices
	d := decoder[E]{events: w.p.cfg.Events}
	var end journal.Offset
	if w.once {
		var err error
		w.figures.queryStarted()
		end, err = w.p.querier.End(ctx)
		w.figures.queryEnded(err)
		if err != nil {
			return fmt.Errorf("projection %q: find the end of the journal: %w", w.p.cfg.Name, err)
		}
	}
	for number, told := 0, false; ; {
		w.figures.queryStarted()
		found, err := w.p.querier.Query(ctx, query, after)
		w.figures.queryEnded(err)
		if err != nil {
			return fmt.Errorf("projection %q: read events after %q: %w", w.p.cfg.Name, after, err)
		}
		if len(found.Events) > 0 || found.Next != after || !found.More && !told {
			p := d.page(found)
			number++
			p.number = number
			w.figures.ahead(p.number, p.first)
			select {
			case out <- p:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			after, told = found.Next, p.end
		}
		if w.once && (!found.More || after.Compare(end) >= 0) {
			return nil
		}
		if found.More {
			continue
		}
		if err := w.p.querier.Await(ctx, after); err != nil {
			return fmt.Errorf("projection %q: wait for events after %q: %w", w.p.cfg.Name, after, err)
		}
	}
}

// reach records that all events up to a position were handled. events is the number of events since
// the last call.
func (w *worker[E]) reach(to journal.Offset, events int) {
	w.reached = to
	w.unsaved += events
	if w.dirty.IsZero() && to != w.stored.Offset {
		w.dirty = time.Now()
	}
}

// save stores the position after the handled events, if it is not stored yet.
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
	if !w.p.d.before { // with AtMostOnce, the handler has not succeeded yet
		w.advance(ctx)
	}
	return nil
}

// overtaken is called when events were handled without a transaction and their position cannot be
// saved. If another process has started to clear or rebuild the read model, the order in which both
// processes handled the events is undefined: the rebuild must be repeated.
func (w *worker[E]) overtaken(ctx context.Context) error {
	stored, err := w.p.d.store.Load(ctx, w.p.cfg.Name)
	if err != nil {
		return err
	}
	rebuilt := claimed(stored)
	for _, p := range stored {
		rebuilt = rebuilt || !p.Clear && p.Slices.Contains(w.slices.First) && p.Offset.Compare(w.stored.Offset) < 0
	}
	if !rebuilt {
		return nil
	}
	w.p.cfg.Logger.WarnContext(ctx, "projection: events were handled during a rebuild by another process, requesting another rebuild", slog.String("projection", w.p.cfg.Name))
	return w.p.d.store.Reset(ctx, w.p.cfg.Name)
}

// finish saves the handled position at the end of a session, unless the stored position is unknown.
// Errors are ignored: events after the stored position are handled again.
func (w *worker[E]) finish(ctx context.Context) {
	if !w.sure {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishPatience)
	defer cancel()
	if err := w.save(ctx); err != nil && !errors.Is(err, ErrFenced) {
		w.p.cfg.Logger.WarnContext(ctx, "projection: saving the last position failed", slog.String("projection", w.p.cfg.Name), slog.Any("error", err))
	}
}

func (w *worker[E]) move(to journal.Offset) Move {
	after := w.stored
	after.Offset = to
	return Move{Projection: w.p.cfg.Name, From: []Position{w.stored}, To: []Position{after}}
}

func (w *worker[E]) settled(to journal.Offset) {
	w.stored.Offset, w.reached = to, to
	w.dirty, w.unsaved = time.Time{}, 0
	w.figures.set(func(s *WorkerStatus) { s.Offset = to })
}
