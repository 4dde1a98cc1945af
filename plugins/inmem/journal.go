// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

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
	streams sync.Map    // *stream by ID
	closed  atomic.Bool // changes with mu locked

	mu    sync.Mutex // locked after the locks of streams
	order order
	news  chan struct{} // closed at the next change, nil if no Await waits
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
	if len(writes) == 1 {
		if err := j.appendOne(&writes[0]); err != nil {
			return []error{err}
		}
		return nil
	}
	var errs []error // one slot per write after the first failure
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(writes))
		}
		errs[i] = err
	}
	streams := make([]*stream, len(writes))
	for i := range writes {
		var err error
		if streams[i], err = j.streamOf(&writes[i]); err != nil {
			fail(i, err)
		}
	}
	order := slices.DeleteFunc(slices.Clone(streams), func(s *stream) bool { return s == nil })
	slices.SortFunc(order, func(a, b *stream) int { return strings.Compare(a.id, b.id) })
	for _, s := range slices.Compact(order) {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed.Load() {
		return slices.Repeat([]error{errAppendClosed}, len(writes))
	}
	failed := make(map[string]struct{}) // the IDs of failed writes
	for i := range writes {
		w := &writes[i]
		if _, behind := failed[w.ID]; behind {
			fail(i, journal.ErrSkipped)
		} else if s := streams[i]; s != nil {
			err := s.conflict(w)
			if err == nil {
				j.record(s, w)
				s.append(w)
				continue
			}
			fail(i, err)
		}
		failed[w.ID] = struct{}{}
	}
	return errs
}

var errAppendClosed = fmt.Errorf("inmem: append: %w: %w", journal.ErrNotSent, journal.ErrClosed)

// appendOne is Append for one write. It locks mu only for the order, because all callers share mu.
func (j *Journal) appendOne(w *journal.Write) error {
	s, err := j.streamOf(w)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = s.conflict(w); err != nil {
		return err
	}
	j.mu.Lock()
	if j.closed.Load() {
		j.mu.Unlock()
		return errAppendClosed
	}
	j.record(s, w)
	j.mu.Unlock()
	s.append(w) // a reader of the order waits for the stream
	return nil
}

// streamOf returns the stream of a write, or the error of a write that no stream accepts.
func (j *Journal) streamOf(w *journal.Write) (*stream, error) {
	found, ok := j.streams.Load(w.ID)
	if j.closed.Load() { // checked after Load: Close removes the streams
		return nil, errAppendClosed
	}
	if !ok {
		if err := journal.CheckID(w.ID); err != nil {
			return nil, &journal.RejectedError{ID: w.ID, Reason: err}
		}
	}
	if _, err := journal.CheckWrite(w); err != nil {
		return nil, err
	}
	if !ok {
		if w.Expect > 0 {
			return nil, &journal.ConflictError{ID: w.ID, Expected: w.Expect}
		}
		found, _ = j.streams.LoadOrStore(w.ID, &stream{id: w.ID})
	}
	return found.(*stream), nil //nolint:errcheck,forcetypeassert // the map holds nothing else
}

// record adds a write, which the stream then appends, to the order. The stream and mu are locked.
func (j *Journal) record(s *stream, w *journal.Write) {
	if w.Expect == 0 {
		s.place = uint32(len(j.order.streams)) //nolint:gosec // there is no memory for so many streams
		j.order.streams = append(j.order.streams, member{s, journal.SliceOf(w.ID)})
	}
	j.order.append(s, w.Expect+1, len(w.Events))
	j.tell()
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
	s, err := j.find(ctx, id)
	if s == nil || err != nil {
		return page{}, err
	}
	p := s.cut(from, to)
	s.mu.Unlock()
	p.trim()
	return p, nil
}

// HighestSequenceNr implements journal.Journal.
func (j *Journal) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	s, err := j.open(ctx, "highest sequence number", id)
	if s == nil || err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.highest, nil
}

// DeleteTo implements journal.Journal. The memory of deleted events is freed once their number
// reaches the number of the remaining events.
func (j *Journal) DeleteTo(ctx context.Context, id string, to uint64) error {
	s, err := j.open(ctx, "delete events", id)
	if s == nil || err != nil {
		return err
	}
	defer s.mu.Unlock()
	if n := s.deleteTo(to); n > 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.order.deleted(n)
	}
	return nil
}

// open is find for an operation, whose name its error has.
func (j *Journal) open(ctx context.Context, op, id string) (*stream, error) {
	if err := journal.CheckID(id); err != nil {
		return nil, fmt.Errorf("inmem: %s: %w", op, err)
	}
	s, err := j.find(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("inmem: %s of %q: %w", op, id, err)
	}
	return s, nil
}

// find returns the stream of an ID with its lock held, nil if none exists. The error is the cause of ctx
// or ErrClosed.
func (j *Journal) find(ctx context.Context, id string) (*stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found, ok := j.streams.Load(id)
	if j.closed.Load() { // checked after Load: Close removes the streams
		return nil, journal.ErrClosed
	}
	if !ok {
		return nil, nil //nolint:nilnil // the ID has no stream
	}
	s := found.(*stream) //nolint:errcheck,forcetypeassert // the map holds nothing else
	s.mu.Lock()
	return s, nil
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
	var ids []string
	for i := range j.order.streams {
		if id := j.order.streams[i].id; id > after {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Close implements journal.Journal. It drops the contents. A running replay ends with ErrClosed
// after its current page, and a waiting Await ends with ErrClosed.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed.Store(true)
	j.streams.Clear()
	j.order = order{}
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
	found, next := j.order.scan(q.Slices, from)
	end := j.order.end
	j.mu.Unlock()

	q.Slices = journal.Slices{} // the order has filtered by them
	p, size := journal.Page{}, 0
	for _, at := range found {
		if r := at.stream.lookUp(at.seqNr); r != nil && r.manifest != "" && q.Matches(at.stream.id, r.common.tags) {
			p.Events = append(p.Events, journal.Envelope{Event: r.event(at.seqNr), ID: at.stream.id, Offset: offset(at.next)})
			if size += r.size(); size >= pageBytes {
				next = at.next
				break
			}
		}
	}
	p.Next, p.More = offset(next), next < end
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
	case j.closed.Load():
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
