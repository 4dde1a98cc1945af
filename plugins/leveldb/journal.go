// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/plugin"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Journal is the journal of a DB. It implements journal.Journal, journal.IDLister and
// journal.Querier.
//
// An event holds at most 16 MiB of payload and metadata, and a write at most 64 MiB. Larger events
// and writes are rejected.
type Journal struct {
	handle

	batch batcher   // of the call of Append that has the turn
	pages sync.Pool // of *page
	// appended wakes waiting queries after each append, successful or not.
	appended broadcast
}

var (
	_ journal.Journal  = (*Journal)(nil)
	_ journal.IDLister = (*Journal)(nil)
	_ journal.Querier  = (*Journal)(nil)
	_ snapshot.Local   = (*Journal)(nil)
)

// Close implements journal.Journal. See DB.Journal.
func (j *Journal) Close() error { return j.db.handles.Close(j.open, j.db.Close) }

// HighestSequenceNr implements journal.Journal.
func (j *Journal) HighestSequenceNr(ctx context.Context, id string) (highest uint64, err error) {
	defer wrap(&err, "highest sequence number of %q", id)
	if err = journal.CheckID(id); err != nil {
		return 0, err
	}
	e, err := j.use(ctx, false)
	if err != nil {
		return 0, err
	}
	defer j.release()
	s, ok := e.streams.lookup(id)
	if !ok {
		s, err = e.load(id)
	}
	return s.highest, err
}

// idPage is the number of persistence IDs that are read at once.
const idPage = 1000

// PersistenceIDs implements journal.IDLister. An ID that is written for the first time during the
// iteration may or may not be listed.
func (j *Journal) PersistenceIDs(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		after := after // each iteration of the sequence starts from the beginning
		for {
			ids, err := j.readIDs(ctx, after)
			if err != nil {
				yield("", fmt.Errorf("leveldb: persistence IDs: %w", err))
				return
			}
			for _, id := range ids {
				if !yield(id, nil) {
					return
				}
			}
			if len(ids) < idPage {
				return
			}
			after = ids[len(ids)-1]
		}
	}
}

func (j *Journal) readIDs(ctx context.Context, after string) ([]string, error) {
	e, err := j.use(ctx, false)
	if err != nil {
		return nil, err
	}
	defer j.release()
	start := append(appendIDKey(nil, after), 0) // an ID contains no NUL
	it := e.db.NewIterator(&util.Range{Start: start, Limit: []byte{tagID + 1}}, nil)
	defer it.Release()
	var ids []string
	for len(ids) < idPage && it.Next() {
		ids = append(ids, string(it.Key()[1:]))
	}
	return ids, translate(it.Error())
}

// Limits of a page of a query. A larger single record forms a page of its own. A page of a replay is
// half as large, because the replay reads the next page early.
const (
	pageRecords = 1000
	pageBytes   = 1 << 20
)

// Replay implements journal.Journal. While the loop body handles a page of events, the next page is
// read on another goroutine. A loop that is left early waits for this goroutine. The payloads of a
// page share memory: a payload that is kept keeps the memory of the whole page. Copy payloads that
// are kept for long.
func (j *Journal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		p := j.takePage()
		p.more, p.err = j.readPage(ctx, p, id, from, to)
		for p != nil {
			p = j.yieldPage(ctx, p, id, to, yield)
		}
	}
}

func (j *Journal) takePage() *page {
	if p, ok := j.pages.Get().(*page); ok {
		p.more = false
		return p
	}
	return new(page)
}

// yieldPage passes the events of a page to yield while it reads the next page. It returns the next
// page, or nil at the end.
func (j *Journal) yieldPage(ctx context.Context, p *page, id string, to uint64, yield func(journal.Event, error) bool) *page {
	defer j.pages.Put(p)
	var next *page
	if p.more {
		next = j.takePage()
		read := make(chan struct{})
		from := p.events[len(p.events)-1].SequenceNr + 1
		go func() {
			defer close(read)
			defer panics.Into(&next.err)
			next.more, next.err = j.readPage(ctx, next, id, from, to)
		}()
		defer func() { <-read }()
	}
	for i := range p.events {
		if !yield(p.events[i], nil) {
			return nil
		}
	}
	if p.err != nil {
		yield(journal.Event{}, fmt.Errorf("leveldb: replay %q: %w", id, p.err))
	}
	return next
}

// page is a part of a replay: events, and then an error or, if more is set, possibly more events.
type page struct {
	events []journal.Event
	more   bool
	err    error
	names  stringPool
	arena  plugin.Arena // of the values
}

// readPage fills p with the next events and reports whether there may be more.
func (j *Journal) readPage(ctx context.Context, p *page, id string, from, to uint64) (more bool, err error) {
	clear(p.events)
	p.events = p.events[:0]
	if err = journal.CheckID(id); err != nil {
		return false, err
	}
	e, err := j.use(ctx, false)
	if err != nil {
		return false, err
	}
	defer j.release()
	s, ok := e.streams.lookup(id)
	if !ok {
		s, err = e.find(id)
	}
	if err != nil || s.number == 0 {
		return false, err
	}
	if from = max(from, s.deleted+1); from > to {
		return false, nil
	}
	it := e.db.NewIterator(&util.Range{
		Start: appendEventKey(nil, s.number, from),
		Limit: afterEvents(nil, s.number, to),
	}, nil)
	defer it.Release()
	for size := 0; it.Next(); {
		seqNr, ok := eventNumber(it.Key())
		if !ok {
			return false, malformedKey(it.Key())
		}
		value := it.Value()
		if size += len(value); len(p.events) == pageRecords/2 || size > pageBytes/2 && len(p.events) > 0 {
			return true, nil
		}
		var event journal.Event
		if event, err = decodeEvent(p.arena.Keep(value), &p.names); err != nil {
			return false, corrupt(fmt.Sprintf("event %d of %q", seqNr, id), err)
		}
		event.SequenceNr = seqNr
		p.events = append(p.events, event)
	}
	return false, translate(it.Error())
}
