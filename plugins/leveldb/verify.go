// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
)

// VerifyOrder checks that queries find each stored event exactly once. The order must contain all
// events except fences and deleted events, with the events of a persistence ID in ascending order.
// Each tag must refer to the positions of its events. VerifyOrder reads all events, and needs about
// 50 bytes of memory for each persistence ID. It may run concurrently with all other calls, and
// checks the state at its beginning.
//
// The error matches journal.ErrCorrupt if a check fails. VerifyOrder ends early, with another error, if
// the database is closed, or is reopened after a failed write.
func (db *DB) VerifyOrder(ctx context.Context) (err error) {
	defer wrap(&err, "verify event order in %q", db.name)
	v := verifier{db: db, last: make(map[uint64]uint64)}
	defer func() {
		if v.view != nil {
			v.view.Release()
		}
	}()
	for _, check := range []struct {
		kind byte
		f    func(key, value []byte) error
	}{{tagGroup, v.group}, {tagTag, v.tag}, {tagEvent, v.event}} {
		if err := v.each(ctx, check.kind, check.f); err != nil {
			return err
		}
	}
	// All entries are distinct events, so equal numbers mean that the order is complete.
	if v.ordered != v.events || v.tagged != v.tags {
		return corruptf("order", "has %d events and %d tags, want %d and %d", v.ordered, v.tagged, v.events, v.tags)
	}
	return nil
}

type verifier struct {
	db      *DB
	from    *engine
	view    *leveldb.Snapshot
	deleted deletions
	names   stringPool
	last    map[uint64]uint64 // last event of each persistence ID in the order

	ordered, events uint64 // events in the order, and stored events
	tagged, tags    uint64 // tags in the order, and of stored events

	records, bytes int // read in the present portion
}

// each calls f with the records of a kind. Between two portions, the database may be reopened or closed.
func (v *verifier) each(ctx context.Context, kind byte, f func(key, value []byte) error) error {
	for start := []byte{kind}; start != nil; {
		var err error
		if start, err = v.portion(ctx, &util.Range{Start: start, Limit: []byte{kind + 1}}, f); err != nil {
			return err
		}
	}
	return nil
}

// portion calls f with the first records of a range. It returns the key of the next one, or nil. The
// check of one record of the index can read maxGroup events, which count as records of the portion.
func (v *verifier) portion(ctx context.Context, r *util.Range, f func(key, value []byte) error) (next []byte, err error) {
	e, err := v.db.acquire(false)
	if err != nil {
		return nil, err
	}
	defer v.db.release()
	if v.view == nil {
		if v.view, err = e.db.GetSnapshot(); err != nil {
			return nil, translate(err)
		}
		v.from = e
	}
	if v.from != e {
		return nil, errReplaced
	}
	it := v.view.NewIterator(r, nil)
	defer it.Release()
	for v.records, v.bytes = 0, 0; it.Next(); {
		if v.records >= e.records || v.bytes >= portionBytes {
			return bytes.Clone(it.Key()), nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		v.count(it.Value())
		if err := f(it.Key(), it.Value()); err != nil {
			return nil, err
		}
	}
	return nil, translate(it.Error())
}

// count counts a value that was read in the present portion.
func (v *verifier) count(value []byte) {
	v.records++
	v.bytes += len(value)
}

func (v *verifier) group(key, value []byte) error {
	_, group, err := cutIndexKey(key)
	if err != nil {
		return err
	}
	runs := readRuns(value, false)
	for runs.next() {
		r := runs.run
		if last := v.last[r.number]; last >= r.first {
			return corruptf(groupName(group), "event %d of persistence ID %d follows event %d", r.first, r.number, last)
		} else if last == 0 {
			if err := v.name(r.number); err != nil {
				return err
			}
		}
		v.last[r.number] = r.last()
		err := v.live(group, r, func(_, _ uint64, e *journal.Event) error {
			if e.IsFence() {
				return corruptf(groupName(group), "contains a fence of persistence ID %d", r.number)
			}
			v.ordered++
			return nil
		})
		if err != nil {
			return err
		}
	}
	return runsError(group, runs.err)
}

// name checks that the name and the number of a persistence ID match.
func (v *verifier) name(number uint64) error {
	id, err := readName(v.view, number)
	if err != nil {
		return err
	}
	value, err := get(v.view, appendIDKey(nil, id))
	if err != nil {
		return err
	}
	if n, err := decodeNumber(value); err != nil || n != number {
		return corruptf(fmt.Sprintf("the number of %q", id), "is %d, but %d has that name: %v", n, number, err)
	}
	return nil
}

// live calls f with the events of a run that are not deleted.
func (v *verifier) live(group uint64, r run, f func(index, seqNr uint64, e *journal.Event) error) error {
	v.count(nil) // the records that describe the persistence ID
	r, err := v.deleted.skip(v.view, r)
	if err != nil {
		return err
	}
	for ; r.count > 0; r = r.without(1) {
		value, err := get(v.view, appendEventKey(nil, r.number, r.first))
		switch {
		case err != nil:
			return err
		case value == nil:
			return corruptf(groupName(group), "event %d of persistence ID %d is missing", r.first, r.number)
		}
		v.count(value)
		e, err := decodeEvent(value, &v.names)
		if err != nil {
			return corrupt(fmt.Sprintf("event %d of persistence ID %d", r.first, r.number), err)
		}
		if err := f(r.index, r.first, &e); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) tag(key, value []byte) error {
	tag, group, err := cutIndexKey(key)
	if err != nil {
		return err
	}
	runs := readRuns(value, true)
	for runs.next() {
		err := v.live(group, runs.run, func(index, seqNr uint64, e *journal.Event) error {
			if !slices.Contains(e.Tags, string(tag)) || e.IsFence() {
				return corruptf(groupName(group), "event %d of persistence ID %d does not have the tag %q", seqNr, runs.run.number, tag)
			}
			v.tagged++
			return v.place(group, index, runs.run.number, seqNr)
		})
		if err != nil {
			return err
		}
	}
	return runsError(group, runs.err)
}

// place checks that the group contains the event at the index given by its tag.
func (v *verifier) place(group, index, number, seqNr uint64) error {
	value, err := get(v.view, appendGroupKey(nil, group))
	if err != nil {
		return err
	}
	v.count(value)
	runs := readRuns(value, false)
	for runs.next() {
		if r := runs.run; r.number == number && r.first <= seqNr && seqNr <= r.last() && r.index+seqNr-r.first == index {
			return nil
		}
	}
	return corruptf(groupName(group), "event %d of persistence ID %d is not at %d", seqNr, number, index)
}

func (v *verifier) event(key, value []byte) error {
	seqNr, ok := eventNumber(key)
	if !ok {
		return malformedKey(key)
	}
	number, _ := keyNumber(key)
	deleted, err := v.deleted.get(v.view, number)
	if err != nil || seqNr <= deleted {
		return err
	}
	e, err := decodeEvent(value, &v.names)
	if err != nil {
		return corrupt(fmt.Sprintf("event %d of persistence ID %d", seqNr, number), err)
	}
	if e.IsFence() {
		return nil
	}
	v.events++
	slices.Sort(e.Tags)
	for _, tag := range slices.Compact(e.Tags) {
		if tag != "" {
			v.tags++
		}
	}
	return nil
}

func runsError(group uint64, err error) error {
	if err != nil {
		return corrupt(groupName(group), err)
	}
	return nil
}
