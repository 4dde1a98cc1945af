// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
)

// Query implements journal.Querier. The order is the one in which Append stored the events. A query
// returns an event as soon as the append of the event has returned, and until its deletion has
// returned. An offset after the end belongs to another journal and fails with ErrOffset.
//
// A page scans at most 10,000 events. Events of persistence IDs that do not match and deleted
// events are skipped without reading them.
func (j *Journal) Query(ctx context.Context, q journal.Criteria, after journal.Offset) (page journal.Page, err error) {
	defer wrap(&err, "query")
	if err = q.Check(); err != nil {
		return journal.Page{}, err
	}
	from, err := parseOffset(after)
	if err != nil {
		return journal.Page{}, err
	}
	e, err := j.use(ctx, false)
	if err != nil {
		return journal.Page{}, err
	}
	defer j.release()
	view, err := e.db.GetSnapshot() // consistent view of the index and the events
	if err != nil {
		return journal.Page{}, translate(err)
	}
	defer view.Release()
	end, err := endOf(view)
	if err != nil {
		return journal.Page{}, err
	}
	if end.before(from) {
		return journal.Page{}, offsetAfterEnd(after, end)
	}
	s := scan{engine: e, view: view, query: q, end: end}
	return s.read(ctx, from)
}

func offsetAfterEnd(after journal.Offset, end position) error {
	return fmt.Errorf("%w: %q is after the end %q", journal.ErrOffset, after, end.offset())
}

// End implements journal.Querier.
func (j *Journal) End(ctx context.Context) (journal.Offset, error) {
	end, err := j.end(ctx)
	if err != nil {
		return "", fmt.Errorf("leveldb: end: %w", err)
	}
	return end.offset(), nil
}

func (j *Journal) end(ctx context.Context) (position, error) {
	e, err := j.use(ctx, false)
	if err != nil {
		return position{}, err
	}
	defer j.release()
	return endOf(e.db)
}

// Await implements journal.Querier. It returns nil when there is an event after the offset. It also
// returns nil when the database cannot be reopened; the next query of the caller then returns the
// error.
func (j *Journal) Await(ctx context.Context, after journal.Offset) (err error) {
	defer wrap(&err, "await")
	from, err := parseOffset(after)
	if err != nil {
		return err
	}
	for {
		news := j.appended.next() // before reading the end, so that no append is missed
		end, err := j.end(ctx)
		switch {
		case errors.Is(err, journal.ErrUnavailable):
			return nil
		case err != nil:
			return err
		case from.before(end):
			return nil
		case end.before(from):
			return offsetAfterEnd(after, end)
		}
		select {
		case <-news:
		case <-j.open.Done():
		case <-ctx.Done():
		}
	}
}

// endOf returns the position after all events.
func endOf(from leveldb.Reader) (position, error) {
	it := from.NewIterator(&util.Range{Start: []byte{tagGroup}, Limit: []byte{tagGroup + 1}}, nil)
	defer it.Release()
	if !it.Last() {
		return position{}, translate(it.Error())
	}
	group, ok := groupNumber(it.Key())
	if !ok {
		return position{}, malformedKey(it.Key())
	}
	index, err := countRuns(it.Value())
	if err != nil {
		return position{}, corrupt(groupName(group), err)
	}
	return position{group: group, index: index}, nil
}

func groupName(group uint64) string { return fmt.Sprintf("group %d of the order", group) }

func malformedKey(key []byte) error {
	return corruptf("database", "malformed key %x", key)
}

// broadcast wakes all goroutines that wait for the next send.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{} // nil without waiting goroutines
}

// next returns a channel that the next send closes.
func (s *broadcast) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *broadcast) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// position is a place in the order of events: after the first index events of a group. The zero
// value is before all events.
type position struct {
	group uint64 // from 1
	index uint64 // number of events of the group before the position
}

// offsetPrefix identifies the offsets of this journal, version 1.
const offsetPrefix = "ldb1-"

// offset returns the printable form: the group and the index. The index has at least four digits,
// so that a later offset is longer, or has the same length and compares higher.
func (p position) offset() journal.Offset {
	if p == (position{}) {
		return ""
	}
	b := append(make([]byte, 0, 32), offsetPrefix...)
	b = append(strconv.AppendUint(b, p.group, 10), '-')
	for limit := uint64(1000); limit > p.index; limit /= 10 {
		b = append(b, '0')
	}
	return journal.Offset(strconv.AppendUint(b, p.index, 10))
}

func (p position) before(other position) bool {
	return p.group < other.group || p.group == other.group && p.index < other.index
}

func parseOffset(o journal.Offset) (position, error) {
	if o == "" {
		return position{}, nil
	}
	numbers, _ := strings.CutPrefix(string(o), offsetPrefix)
	group, index, _ := strings.Cut(numbers, "-")
	var p position
	var err1, err2 error
	p.group, err1 = strconv.ParseUint(group, 10, 56)
	p.index, err2 = strconv.ParseUint(index, 10, 56)
	if err1 != nil || err2 != nil || p.group == 0 || p.index == 0 || p.index > maxGroup || p.offset() != o { // each position has one form
		return position{}, fmt.Errorf("%w: %.64q", journal.ErrOffset, string(o))
	}
	return p, nil
}

// maxScanned is the number of steps of a page: events, and runs that are skipped without reading.
const maxScanned = 10_000

type scan struct {
	engine *engine
	view   *leveldb.Snapshot
	query  journal.Criteria
	end    position // after all events

	page    journal.Page
	size    int
	scanned int
	at      position // after the last scanned event

	deletions deletions
	names     stringPool
	key       []byte
}

func (s *scan) read(ctx context.Context, from position) (journal.Page, error) {
	full, err := s.groups(ctx, from)
	if err != nil {
		return journal.Page{}, err
	}
	if !full {
		s.at = s.end
	}
	s.page.Next, s.page.More = s.at.offset(), s.at.before(s.end)
	return s.page, nil
}

// groups scans the groups from a position on, or those of the tag if the query has one. It reports
// whether the page was full before the end.
func (s *scan) groups(ctx context.Context, from position) (full bool, err error) {
	tag := s.query.Tag != ""
	prefix := []byte{tagGroup}
	start := appendGroupKey(nil, from.group)
	if tag {
		prefix = appendTagPrefix(nil, s.query.Tag)
		start = appendTagKey(nil, s.query.Tag, from.group)
	}
	it := s.view.NewIterator(&util.Range{Start: start, Limit: util.BytesPrefix(prefix).Limit}, nil)
	defer it.Release()
	s.at = from
	for it.Next() {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		_, group, err := cutIndexKey(it.Key())
		if err != nil {
			return false, err
		}
		passed := uint64(0)
		if group == from.group {
			passed = from.index
		}
		if s.scanned++; s.scanned > maxScanned {
			return true, nil
		}
		if full, err = s.group(group, passed, readRuns(it.Value(), tag)); full || err != nil {
			return full, err
		}
	}
	return false, translate(it.Error())
}

func (s *scan) group(group, passed uint64, runs runReader) (full bool, err error) {
	for runs.next() {
		r := runs.run
		if r.end() <= passed {
			continue
		}
		if r.index < passed {
			r = r.without(passed - r.index)
		}
		if s.scanned++; s.scanned > maxScanned {
			return true, nil
		}
		if full, err = s.addRun(group, r); full || err != nil {
			return full, err
		}
		s.at = position{group: group, index: r.end()}
	}
	return false, runsError(group, runs.err)
}

func (s *scan) addRun(group uint64, r run) (full bool, err error) {
	n, err := s.engine.names.get(s.view, r.number)
	if err != nil {
		return false, err
	}
	q := s.query
	q.Slices, q.Tag = journal.Slices{}, "" // the slice is cached, and the run has the tag
	if !s.query.Slices.Contains(n.slice) || !q.Matches(n.id, nil) {
		return false, nil
	}
	if r, err = s.deletions.skip(s.view, r); err != nil {
		return false, err
	}
	for ; r.count > 0; r = r.without(1) {
		if s.scanned++; s.scanned > maxScanned || len(s.page.Events) == pageRecords {
			return true, nil
		}
		if full, err = s.addEvent(position{group: group, index: r.index + 1}, n.id, r.number, r.first); full || err != nil {
			return full, err
		}
	}
	return false, nil
}

func (s *scan) addEvent(at position, id string, number, seqNr uint64) (full bool, err error) {
	s.key = appendEventKey(s.key[:0], number, seqNr)
	value, err := get(s.view, s.key)
	switch {
	case err != nil:
		return false, err
	case value == nil:
		return false, corruptf(groupName(at.group), "event %d of %q is missing", seqNr, id)
	}
	if s.size += len(value); s.size > pageBytes && len(s.page.Events) > 0 {
		return true, nil
	}
	e, err := decodeEvent(value, &s.names)
	if err != nil {
		return false, corrupt(fmt.Sprintf("event %d of %q", seqNr, id), err)
	}
	if e.IsFence() || s.query.Tag != "" && !slices.Contains(e.Tags, s.query.Tag) {
		return false, corruptf(groupName(at.group), "event %d of %q does not match its index record", seqNr, id)
	}
	e.SequenceNr = seqNr
	s.page.Events = append(s.page.Events, journal.Envelope{Event: e, ID: id, Offset: at.offset()})
	s.at = at
	return false, nil
}
