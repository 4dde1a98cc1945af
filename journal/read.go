// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"time"
)

// Current yields the events that match c after the given offset ("" is the beginning), in the order
// of their offsets. It ends at the position that is the end of the journal when the loop begins. A
// reader that resumes after the last received offset, with Current or Live, gets each event exactly
// once.
//
// An error is yielded once and last: it matches ErrNoQueries if j does not support queries,
// ErrInvalid for invalid criteria and ErrOffset for an invalid offset. Current reads ahead at most
// one page (1,000 events or 1 MiB) and holds no resource while the loop body runs.
func Current(ctx context.Context, j Journal, c Criteria, after Offset) iter.Seq2[Envelope, error] {
	return sequence("current events", func(yield func(Envelope) bool) error {
		querier, err := implemented[Querier](j)
		if err != nil {
			return err
		}
		if err = c.Check(); err != nil {
			return err
		}
		end, err := querier.End(ctx)
		if err != nil {
			return err
		}
		r := reader{Querier: querier, criteria: c, next: after}
		if after.Compare(end) > 0 {
			_, err = r.read(ctx) // a foreign offset may compare as greater: the query validates it
			return err
		}
		for r.next.Compare(end) < 0 {
			page, err := r.read(ctx)
			if err != nil {
				return err
			}
			for _, e := range page.Events {
				if e.Offset.Compare(end) > 0 || !yield(e) {
					return nil
				}
			}
		}
		return nil
	})
}

// sequence returns the values that read yields. If read returns an error, the sequence yields it
// last, wrapped with name. read returns nil when yield returns false.
func sequence[T any](name string, read func(yield func(T) bool) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := read(func(value T) bool { return yield(value, nil) }); err != nil {
			var none T
			yield(none, fmt.Errorf("journal: %s: %w", name, err))
		}
	}
}

// CurrentByID yields the events of a persistence ID with from <= SequenceNr <= to in ascending
// order, up to the highest sequence number at the time when the loop begins. Fences and deleted
// events are left out, so sequence numbers may be missing. CurrentByID works with every journal. An
// error is yielded once and last.
func CurrentByID(ctx context.Context, j Journal, id string, from, to uint64) iter.Seq2[Event, error] {
	return sequence(fmt.Sprintf("current events of %q", id), func(yield func(Event) bool) error {
		highest, err := j.HighestSequenceNr(ctx, id)
		if err != nil {
			return err
		}
		for e, err := range j.Replay(ctx, id, from, min(to, highest)) {
			if err != nil {
				return err
			}
			if !e.IsFence() && !yield(e) {
				return nil
			}
		}
		return nil
	})
}

// CurrentIDs yields the persistence IDs after the given one ("" for all) in bytewise order, except
// those that begin with ReservedPrefix; IDLister lists these too. An interrupted listing resumes after the last received ID. An ID whose first event is stored during
// the loop may be missing. An error is yielded once and last: it matches ErrNoQueries if j cannot
// list IDs. No resource is held while the loop body runs.
func CurrentIDs(ctx context.Context, j Journal, after string) iter.Seq2[string, error] {
	return sequence("current persistence IDs", func(yield func(string) bool) error {
		lister, err := implemented[IDLister](j)
		if err != nil {
			return err
		}
		for id, err := range lister.PersistenceIDs(ctx, after) {
			switch {
			case err != nil:
				return err
			case IsReserved(id):
			case !yield(id):
				return nil
			}
		}
		return nil
	})
}

// implemented returns an optional interface of a journal, or ErrNoQueries.
func implemented[T any](j Journal) (T, error) {
	t, ok := As[T](j)
	if !ok {
		return t, fmt.Errorf("%w: %T does not implement %v", ErrNoQueries, j, reflect.TypeFor[T]())
	}
	return t, nil
}

type reader struct {
	Querier
	criteria Criteria
	next     Offset // where the next page begins
	idle     bool   // whether the last page reached the end
}

// read returns the next page. If the previous page reached the end, it waits for events first.
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

// Live yields the events that match c after the given offset ("" is the beginning) in the order of
// their offsets, and continues with new events. Live never completes: it ends with an error, at the
// latest with the cause of ctx. In all other respects it behaves like Current.
func Live(ctx context.Context, j Journal, c Criteria, after Offset) iter.Seq2[Envelope, error] {
	return sequence("live events", func(yield func(Envelope) bool) error {
		querier, err := implemented[Querier](j)
		if err != nil {
			return err
		}
		for r := (reader{Querier: querier, criteria: c, next: after}); ; {
			page, err := r.read(ctx)
			if err != nil {
				return err
			}
			for _, e := range page.Events {
				if !yield(e) {
					return nil
				}
			}
		}
	})
}

// LiveByID yields the events of a persistence ID with from <= SequenceNr <= to in ascending order,
// including new ones, and completes when it reaches to. LiveByID never completes if to is
// MaxSequenceNr. The ID need not exist yet. A reader that resumes after the last received sequence
// number gets each event exactly once.
//
// Fences and deleted events are left out, so sequence numbers may be missing; a fence at to also
// completes the loop, within about a second. To find such a fence, a waiting loop with a to below
// MaxSequenceNr reads the end of the journal and the highest sequence number once a second. An error is
// yielded once and last: it matches ErrNoQueries if j does not support queries. LiveByID reads ahead at
// most one page of Replay and holds no resource while the loop body runs.
func LiveByID(ctx context.Context, j Journal, id string, from, to uint64) iter.Seq2[Event, error] {
	return sequence(fmt.Sprintf("live events of %q", id), func(yield func(Event) bool) error {
		querier, err := implemented[Querier](j)
		if err != nil {
			return err
		}
		for next := max(from, 1); next <= to; {
			// Await returns for every event that is stored after this call of End.
			end, err := querier.End(ctx)
			if err != nil {
				return err
			}
			highest, err := j.HighestSequenceNr(ctx, id)
			if err != nil {
				return err
			}
			if last := min(to, highest); next <= last {
				for e, err := range j.Replay(ctx, id, next, last) {
					if err != nil {
						return err
					}
					if !e.IsFence() && !yield(e) {
						return nil
					}
				}
				if next = last + 1; next > to {
					return nil
				}
			}
			if err := awaitRecord(ctx, querier, end, to); err != nil {
				return err
			}
		}
		return nil
	})
}

// fenceCheck is how long LiveByID waits for an event before it looks for a fence.
const fenceCheck = time.Second

// awaitRecord returns nil when there may be records after a position. Await returns for events only: the
// order of a journal need not contain fences, and a reader cannot detect a fence by its offset. A fence
// matters only to a loop that completes.
func awaitRecord(ctx context.Context, q Querier, after Offset, to uint64) error {
	if to >= MaxSequenceNr {
		return q.Await(ctx, after)
	}
	limited, cancel := context.WithTimeout(ctx, fenceCheck)
	defer cancel()
	err := q.Await(limited, after)
	if limited.Err() != nil {
		return context.Cause(ctx) // nil at the limit
	}
	return err
}

// LiveIDs yields the existing persistence IDs and then new ones, each once, in no particular order,
// except those that begin with ReservedPrefix. It never completes: it ends with an error, at the
// latest with the cause of ctx. CurrentIDs yields the existing IDs only.
//
// A new ID is yielded with its first event other than a fence. After the existing IDs, LiveIDs
// reads every event of the journal, and it keeps every ID in memory. An error is yielded once and
// last: it matches ErrNoQueries if j does not support queries or cannot list IDs. No resource is
// held while the loop body runs.
func LiveIDs(ctx context.Context, j Journal) iter.Seq2[string, error] {
	return sequence("live persistence IDs", func(yield func(string) bool) error {
		querier, err := implemented[Querier](j)
		if err != nil {
			return err
		}
		lister, err := implemented[IDLister](j)
		if err != nil {
			return err
		}
		start, err := querier.End(ctx) // IDs that the list misses have events after this position
		if err != nil {
			return err
		}
		seen := make(map[string]struct{})
		for id, err := range lister.PersistenceIDs(ctx, "") {
			if err != nil {
				return err
			}
			if IsReserved(id) {
				continue
			}
			seen[id] = struct{}{}
			if !yield(id) {
				return nil
			}
		}
		for e, err := range Live(ctx, j, Criteria{}, start) {
			if err != nil {
				return err
			}
			if _, known := seen[e.ID]; known {
				continue
			}
			seen[e.ID] = struct{}{}
			if !yield(e.ID) {
				return nil
			}
		}
		return nil
	})
}
