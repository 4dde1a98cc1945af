// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
)

// maxScanned is the number of steps of a page: events, and runs of events that are skipped without
// reading them.
const maxScanned = 10_000

// scan reads one page of a query.
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

// read scans from a position and returns the page.
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
		key := it.Key()
		group, ok := groupNumber(key)
		if tag {
			_, group, ok = cutTagKey(key)
		}
		if !ok {
			return false, malformedKey(key)
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

// group scans a group from the given index on.
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

// addRun adds the matching events of a run to the page.
func (s *scan) addRun(group uint64, r run) (full bool, err error) {
	n, err := s.engine.names.get(s.view, r.number)
	if err != nil {
		return false, err
	}
	q := s.query
	q.Slices = journal.Slices{} // checked below with the cached slice
	if !s.query.Slices.Contains(n.slice) || !q.MatchesID(n.id) {
		return false, nil
	}
	deleted, err := s.deletions.get(s.view, r.number)
	if err != nil {
		return false, err
	}
	if deleted >= r.first {
		r = r.without(deleted - r.first + 1)
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

// addEvent adds an event to the page.
func (s *scan) addEvent(at position, id string, number, seqNr uint64) (full bool, err error) {
	s.key = appendEventKey(s.key[:0], number, seqNr)
	value, err := s.view.Get(s.key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return false, corruptf(groupName(at.group), "event %d of %q is missing", seqNr, id)
	}
	if err != nil {
		return false, translate(err)
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
