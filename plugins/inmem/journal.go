// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/refold-io/refold/journal"
)

// Limits of one page of Replay. A larger record forms a page of its own.
const (
	pageRecords = 1000
	pageBytes   = 1 << 20
)

// Journal is an in-memory journal. The zero value is empty and ready; it must not be copied. It
// implements journal.Journal, journal.IDLister, journal.Querier and journal.Immediate.
//
// An event may hold up to 16 MiB and a write up to 64 MiB of payload and metadata together. Larger
// events and writes are rejected.
type Journal struct {
	mu      sync.Mutex
	streams map[string]*stream
	order   order
	news    chan struct{} // closed at the next change, nil if no Await waits
	closed  bool
}

var (
	_ journal.Journal   = (*Journal)(nil)
	_ journal.IDLister  = (*Journal)(nil)
	_ journal.Querier   = (*Journal)(nil)
	_ journal.Immediate = (*Journal)(nil)
)

// NewJournal returns an empty journal, like new(Journal).
func NewJournal() *Journal { return new(Journal) }

// Immediate implements journal.Immediate.
func (j *Journal) Immediate() journal.Journal { return j }

// Append implements journal.Journal. Its outcome is never unknown. A call is one critical section,
// so other calls see all or none of it.
func (j *Journal) Append(ctx context.Context, writes []journal.Write) []error {
	if len(writes) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return slices.Repeat([]error{fmt.Errorf("inmem: append: %w: %w", journal.ErrNotSent, context.Cause(ctx))}, len(writes))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return slices.Repeat([]error{fmt.Errorf("inmem: append: %w: %w", journal.ErrNotSent, journal.ErrClosed)}, len(writes))
	}
	var (
		errs   []error             // one slot per write after the first failure
		failed map[string]struct{} // the IDs of those writes
	)
	for i := range writes {
		w := &writes[i]
		var err error
		if _, behind := failed[w.ID]; behind {
			err = journal.ErrSkipped
		} else if err = j.store(w); err == nil {
			continue
		}
		if errs == nil {
			errs, failed = make([]error, len(writes)), make(map[string]struct{})
		}
		errs[i] = err
		failed[w.ID] = struct{}{}
	}
	return errs
}

// store stores one write or returns an error. The caller holds the lock.
func (j *Journal) store(w *journal.Write) error {
	s := j.streams[w.ID]
	if s == nil {
		if err := journal.CheckID(w.ID); err != nil {
			return &journal.RejectedError{ID: w.ID, Reason: err}
		}
	}
	if _, err := journal.CheckWrite(w); err != nil {
		return err
	}
	var highest uint64
	if s != nil {
		highest = s.highest
	}
	if w.Expect != highest {
		return &journal.ConflictError{ID: w.ID, Expected: w.Expect, Highest: highest}
	}
	if s == nil {
		if j.streams == nil {
			j.streams = make(map[string]*stream)
		}
		s = &stream{place: uint32(len(j.order.streams))} //nolint:gosec // there is no memory for so many streams
		j.streams[w.ID] = s
		j.order.streams = append(j.order.streams, member{s, w.ID, journal.SliceOf(w.ID)})
	}
	s.append(w)
	j.order.append(s, w.Expect+1, len(w.Events))
	j.tell()
	return nil
}

// Replay implements journal.Journal. It checks ctx once per page.
func (j *Journal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		if err := journal.CheckID(id); err != nil {
			yield(journal.Event{}, fmt.Errorf("inmem: replay: %w", err))
			return
		}
		for p := (page{first: from, more: true}); p.more; {
			var err error
			if p, err = j.page(ctx, id, p.first+uint64(len(p.records)), to); err != nil {
				yield(journal.Event{}, fmt.Errorf("inmem: replay %q: %w", id, err))
				return
			}
			for i := range p.records {
				if !yield(p.records[i].event(p.first+uint64(i)), nil) {
					return
				}
			}
		}
	}
}

func (j *Journal) page(ctx context.Context, id string, from, to uint64) (page, error) {
	if _, err := j.lockAt(ctx, ""); err != nil {
		return page{}, err
	}
	var p page
	if s := j.streams[id]; s != nil {
		p = s.cut(from, to)
	}
	j.mu.Unlock()
	p.trim()
	return p, nil
}

// HighestSequenceNr implements journal.Journal.
func (j *Journal) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	s, err := j.lock(ctx, "highest sequence number", id)
	if err != nil {
		return 0, err
	}
	defer j.mu.Unlock()
	if s == nil {
		return 0, nil
	}
	return s.highest, nil
}

// DeleteTo implements journal.Journal. The memory of deleted events is freed once their number
// reaches the number of the remaining events.
func (j *Journal) DeleteTo(ctx context.Context, id string, to uint64) error {
	s, err := j.lock(ctx, "delete events", id)
	if err != nil {
		return err
	}
	defer j.mu.Unlock()
	if s == nil {
		return nil
	}
	if n := s.deleteTo(to); n > 0 {
		j.order.deleted(n)
	}
	return nil
}

// lock returns the stream of an ID, nil if none exists, with the lock held, or an error without the
// lock.
func (j *Journal) lock(ctx context.Context, op, id string) (*stream, error) {
	if err := journal.CheckID(id); err != nil {
		return nil, fmt.Errorf("inmem: %s: %w", op, err)
	}
	if _, err := j.lockAt(ctx, ""); err != nil {
		return nil, fmt.Errorf("inmem: %s of %q: %w", op, id, err)
	}
	return j.streams[id], nil
}

// PersistenceIDs implements journal.IDLister. It lists the IDs at the start of the loop.
func (j *Journal) PersistenceIDs(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ids, err := j.idsAfter(ctx, after)
		if err != nil {
			yield("", fmt.Errorf("inmem: persistence IDs: %w", err))
			return
		}
		slices.Sort(ids)
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
	}
}

func (j *Journal) idsAfter(ctx context.Context, after string) ([]string, error) {
	if _, err := j.lockAt(ctx, ""); err != nil {
		return nil, err
	}
	defer j.mu.Unlock()
	ids := slices.Collect(maps.Keys(j.streams))
	return slices.DeleteFunc(ids, func(id string) bool { return id <= after }), nil
}

// Close implements journal.Journal. It drops the contents. A running replay ends with ErrClosed
// after its current page, and a waiting Await ends with ErrClosed.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed, j.streams, j.order = true, nil, order{}
	j.tell()
	return nil
}

const offsetPrefix = "mem-"

// offset returns the position after the first n events.
func offset(n uint64) journal.Offset {
	var b [len(offsetPrefix) + 20]byte
	return journal.Offset(strconv.AppendUint(append(b[:0], offsetPrefix...), n, 10))
}

// position returns the number of events before an offset.
func position(o journal.Offset) (uint64, error) {
	if o == "" {
		return 0, nil
	}
	digits, _ := strings.CutPrefix(string(o), offsetPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || offset(n) != o {
		return 0, fmt.Errorf("%w: %.64q", journal.ErrOffset, o)
	}
	return n, nil
}

// Query implements journal.Querier. An event can be read as soon as its append has returned. A page
// examines at most 1,000 events, even if few of them match.
func (j *Journal) Query(ctx context.Context, q journal.Criteria, after journal.Offset) (journal.Page, error) {
	if err := q.Check(); err != nil {
		return journal.Page{}, fmt.Errorf("inmem: query: %w", err)
	}
	from, err := j.lockAt(ctx, after)
	if err != nil {
		return journal.Page{}, fmt.Errorf("inmem: query: %w", err)
	}
	hits, next := j.order.scan(q, from)
	more := next < j.order.end
	j.mu.Unlock()

	p := journal.Page{Next: offset(next), More: more}
	if len(hits) > 0 {
		p.Events = make([]journal.Envelope, len(hits))
	}
	for i := range hits {
		h := &hits[i]
		p.Events[i] = journal.Envelope{Event: h.record.event(h.seqNr), ID: h.id, Offset: offset(h.at)}
	}
	return p, nil
}

// End implements journal.Querier.
func (j *Journal) End(ctx context.Context) (journal.Offset, error) {
	if _, err := j.lockAt(ctx, ""); err != nil {
		return "", fmt.Errorf("inmem: end: %w", err)
	}
	defer j.mu.Unlock()
	return offset(j.order.end), nil
}

// Await implements journal.Querier. It returns nil only if there is an event after the position.
func (j *Journal) Await(ctx context.Context, after journal.Offset) error {
	for {
		from, err := j.lockAt(ctx, after)
		if err != nil {
			return fmt.Errorf("inmem: await: %w", err)
		}
		if from < j.order.end {
			j.mu.Unlock()
			return nil
		}
		if j.news == nil {
			j.news = make(chan struct{})
		}
		news := j.news
		j.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done(): // the next round returns the error
		}
	}
}

// lockAt returns the position of an offset with the lock held, or an error without the lock: a bad
// offset, the cause of ctx, or ErrClosed.
func (j *Journal) lockAt(ctx context.Context, after journal.Offset) (uint64, error) {
	from, err := position(after)
	if err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	j.mu.Lock()
	switch {
	case j.closed:
		err = journal.ErrClosed
	case from > j.order.end: // an offset of another journal: its reader would miss events
		err = fmt.Errorf("%w: %q is after the end %q", journal.ErrOffset, after, offset(j.order.end))
	default:
		return from, nil
	}
	j.mu.Unlock()
	return 0, err
}

// tell wakes waiting calls of Await. The caller holds the lock.
func (j *Journal) tell() {
	if j.news != nil {
		close(j.news)
		j.news = nil
	}
}
