// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"iter"
)

// Current yields the events that match c and lie behind after, which is "" for the
// beginning: in the order of their offsets, up to the end as it is when the loop
// begins. Who resumes after the last offset seen, here or with Live, gets each event
// exactly once.
//
// An error is yielded once and last: it matches ErrNoQueries if j can't be
// queried, ErrInvalid for bad criteria and ErrOffset for a bad offset. At most a
// page (1,000 events or 1 MiB) is read ahead and nothing is held while the body
// of the loop runs.
func Current(ctx context.Context, j Journal, c Criteria, after Offset) iter.Seq2[Envelope, error] {
	return func(yield func(Envelope, error) bool) {
		querier, err := querierOf(j)
		if err != nil {
			yield(Envelope{}, err)
			return
		}
		fail := func(err error) { yield(Envelope{}, fmt.Errorf("journal: current events: %w", err)) }
		if err = c.Check(); err != nil {
			fail(err)
			return
		}
		end, err := querier.End(ctx)
		if err != nil {
			fail(err)
			return
		}
		r := reader{Querier: querier, criteria: c, next: after}
		if after.Compare(end) > 0 {
			// What is no offset of this journal may compare so, and would pass for one.
			if _, err = r.read(ctx); err != nil {
				fail(err)
			}
			return
		}
		for r.next.Compare(end) < 0 {
			page, err := r.read(ctx)
			if err != nil {
				fail(err)
				return
			}
			for _, e := range page.Events {
				if e.Offset.Compare(end) > 0 || !yield(e, nil) {
					return
				}
			}
		}
	}
}

// CurrentByID yields the events of a persistence ID with from <= SequenceNr <=
// to, up to the highest number as it is when the loop begins, in ascending order.
// Fences are left out and so is what was deleted, so numbers may be missing. It
// works with every journal. An error is yielded once and last.
func CurrentByID(ctx context.Context, j Journal, id string, from, to uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		highest, err := j.HighestSequenceNr(ctx, id)
		if err != nil {
			yield(Event{}, fmt.Errorf("journal: current events of %q: %w", id, err))
			return
		}
		for e, err := range j.Replay(ctx, id, from, min(to, highest)) {
			if err != nil {
				yield(Event{}, fmt.Errorf("journal: current events of %q: %w", id, err))
				return
			}
			if !e.IsFence() && !yield(e, nil) {
				return
			}
		}
	}
}

// CurrentIDs yields the persistence IDs that have a record or had one, behind
// after ("" for all), in bytewise order: who was interrupted goes on behind the
// last one seen. What is stored for the first time while the loop runs may be
// among them or not. An error is yielded once and last: it matches ErrNoQueries if
// j can't list IDs. Nothing is held while the body of the loop runs.
func CurrentIDs(ctx context.Context, j Journal, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lister, err := listerOf(j)
		if err != nil {
			yield("", err)
			return
		}
		for id, err := range lister.PersistenceIDs(ctx, after) {
			if err != nil {
				yield("", fmt.Errorf("journal: current persistence IDs: %w", err))
				return
			}
			if !yield(id, nil) {
				return
			}
		}
	}
}

func querierOf(j Journal) (Querier, error) {
	querier, ok := As[Querier](j)
	if !ok {
		return nil, fmt.Errorf("%w: %T", ErrNoQueries, j)
	}
	return querier, nil
}

func listerOf(j Journal) (IDLister, error) {
	lister, ok := As[IDLister](j)
	if !ok {
		return nil, fmt.Errorf("%w: %T does not list persistence IDs", ErrNoQueries, j)
	}
	return lister, nil
}

// reader reads the pages of a query one after the other.
type reader struct {
	Querier
	criteria Criteria
	next     Offset // where the next page begins
	idle     bool   // whether the last page was all there was
}

// read returns the next page, without waiting for one if there should be more.
func (r *reader) read(ctx context.Context) (Page, error) {
	if r.idle {
		if err := r.Await(ctx, r.next); err != nil {
			return Page{}, err
		}
	}
	page, err := r.Query(ctx, r.criteria, r.next)
	if err != nil {
		return Page{}, err
	}
	if c := page.Next.Compare(r.next); c < 0 || c == 0 && (page.More || len(page.Events) > 0) {
		return Page{}, fmt.Errorf("%w: a page with %d events leads from %q to %q", ErrContract, len(page.Events), r.next, page.Next)
	}
	r.next, r.idle = page.Next, !page.More
	return page, nil
}

// Live yields the events that match c and lie behind after, which is "" for the
// beginning, in the order of their offsets, and then those to come. It never
// completes: it ends with an error, at the latest with the cause of ctx. Everything
// else is as with Current.
func Live(ctx context.Context, j Journal, c Criteria, after Offset) iter.Seq2[Envelope, error] {
	return func(yield func(Envelope, error) bool) {
		querier, err := querierOf(j)
		if err != nil {
			yield(Envelope{}, err)
			return
		}
		for r := (reader{Querier: querier, criteria: c, next: after}); ; {
			page, err := r.read(ctx)
			if err != nil {
				yield(Envelope{}, fmt.Errorf("journal: live events: %w", err))
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// LiveByID yields the events of a persistence ID with from <= SequenceNr <= to,
// in ascending order, those to come too, and completes when to was reached:
// MaxSequenceNr never is. The ID need not exist yet. Who resumes with the number
// behind the last one seen gets each event exactly once.
//
// Fences are left out and so is what was deleted, but to is reached by them as
// well, and numbers may be missing. An error is yielded once and last: it
// matches ErrNoQueries if j can't be queried. At most a page of Replay is read
// ahead and nothing is held while the body of the loop runs.
func LiveByID(ctx context.Context, j Journal, id string, from, to uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		querier, err := querierOf(j)
		if err != nil {
			yield(Event{}, err)
			return
		}
		fail := func(err error) { yield(Event{}, fmt.Errorf("journal: live events of %q: %w", id, err)) }
		for next := max(from, 1); next <= to; {
			// What is stored after this lies behind the end, and ends the wait.
			end, err := querier.End(ctx)
			if err != nil {
				fail(err)
				return
			}
			highest, err := j.HighestSequenceNr(ctx, id)
			if err != nil {
				fail(err)
				return
			}
			if last := min(to, highest); next <= last {
				for e, err := range j.Replay(ctx, id, next, last) {
					if err != nil {
						fail(err)
						return
					}
					if !e.IsFence() && !yield(e, nil) {
						return
					}
				}
				if next = last + 1; next > to {
					return
				}
			}
			if err := querier.Await(ctx, end); err != nil {
				fail(err)
				return
			}
		}
	}
}

// LiveIDs yields the persistence IDs that have a record or had one, and then those
// to come, each once and in no order. It never completes: it ends with an error,
// at the latest with the cause of ctx. CurrentIDs yields those there are now.
//
// An ID that is new comes with its first event that is no fence. Behind the list
// of now, every event of the journal is read, and every ID is remembered. An
// error is yielded once and last: it matches ErrNoQueries if j can't be queried
// or can't list IDs. Nothing is held while the body of the loop runs.
func LiveIDs(ctx context.Context, j Journal) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		querier, err := querierOf(j)
		if err != nil {
			yield("", err)
			return
		}
		lister, err := listerOf(j)
		if err != nil {
			yield("", err)
			return
		}
		start, err := querier.End(ctx) // what the list misses comes behind it
		if err != nil {
			yield("", fmt.Errorf("journal: live persistence IDs: %w", err))
			return
		}
		seen := make(map[string]struct{})
		for id, err := range lister.PersistenceIDs(ctx, "") {
			if err != nil {
				yield("", fmt.Errorf("journal: live persistence IDs: %w", err))
				return
			}
			seen[id] = struct{}{}
			if !yield(id, nil) {
				return
			}
		}
		for e, err := range Live(ctx, j, Criteria{}, start) {
			if err != nil {
				yield("", fmt.Errorf("journal: live persistence IDs: %w", err))
				return
			}
			if _, known := seen[e.ID]; known {
				continue
			}
			seen[e.ID] = struct{}{}
			if !yield(e.ID, nil) {
				return
			}
		}
	}
}
