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

// VerifyOrder checks that queries find each event that is stored exactly once:
// that the order names all events but fences and deleted ones, those of a
// persistence ID by their numbers, and that each tag names those that have it,
// where they stand. It reads all events, and takes about 50 bytes of memory for each
// persistence ID. It may run beside anything else and sees what was stored when
// it began.
//
// The error matches journal.ErrCorrupt if it is not so, and ErrNoOrder if there is
// no order.
func (db *DB) VerifyOrder(ctx context.Context) error {
	if err := db.verifyOrder(ctx); err != nil {
		return fmt.Errorf("leveldb: verify the order of events in %q: %w", db.name, err)
	}
	return nil
}

func (db *DB) verifyOrder(ctx context.Context) error {
	e, err := db.acquire(false)
	if err != nil {
		return err
	}
	defer db.release()
	if !e.ordered {
		return ErrNoOrder
	}
	view, err := e.db.GetSnapshot()
	if err != nil {
		return translate(err)
	}
	defer view.Release()
	v := verifier{view: view, last: make(map[uint64]uint64)}
	for _, check := range []struct {
		kind byte
		f    func(key, value []byte) error
	}{{tagGroup, v.group}, {tagTag, v.tag}, {tagEvent, v.event}} {
		if err := v.each(ctx, check.kind, check.f); err != nil {
			return err
		}
	}
	// Each entry is another event. So if there are as many, they are all of them.
	if v.ordered != v.events || v.tagged != v.tags {
		return wrong("order", "it names %d events and %d tags, there are %d and %d", v.ordered, v.tagged, v.events, v.tags)
	}
	return nil
}

// verifier adds up what is in the order and what should be.
type verifier struct {
	view    *leveldb.Snapshot
	deleted deletions
	names   interner
	last    map[uint64]uint64 // of each persistence ID, the last event in the order

	ordered, events uint64 // events in the order, and as stored
	tagged, tags    uint64 // the same of their tags
}

func wrong(what, format string, args ...any) error {
	return &journal.CorruptError{File: what, Offset: -1, Detail: fmt.Sprintf(format, args...)}
}

func (v *verifier) each(ctx context.Context, kind byte, f func(key, value []byte) error) error {
	it := v.view.NewIterator(&util.Range{Start: []byte{kind}, Limit: []byte{kind + 1}}, nil)
	defer it.Release()
	for it.Next() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return translate(it.Error())
}

// group checks the record of a group.
func (v *verifier) group(key, value []byte) error {
	group, ok := groupNumber(key)
	if !ok {
		return malformedKey(key)
	}
	runs := readRuns(value, false)
	for runs.next() {
		r := runs.run
		if last := v.last[r.number]; last >= r.first {
			return wrong(groupName(group), "event %d of persistence ID %d stands behind event %d", r.first, r.number, last)
		} else if last == 0 {
			if err := v.name(r.number); err != nil {
				return err
			}
		}
		v.last[r.number] = r.last()
		err := v.live(group, r, func(_, _ uint64, e *journal.Event) error {
			if e.IsFence() {
				return wrong(groupName(group), "it names a fence of persistence ID %d", r.number)
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

// name checks that the name of a persistence ID is that of its number.
func (v *verifier) name(number uint64) error {
	id, err := readName(v.view, number)
	if err != nil {
		return err
	}
	value, err := v.view.Get(appendIDKey(nil, id), nil)
	if err != nil && !errors.Is(err, leveldb.ErrNotFound) {
		return translate(err)
	}
	if n, err := decodeNumber(value); err != nil || n != number {
		return wrong(fmt.Sprintf("the number of %q", id), "it is %d, and %d has that name: %v", n, number, err)
	}
	return nil
}

// live calls f with the events of a run that were not deleted.
func (v *verifier) live(group uint64, r run, f func(index, seqNr uint64, e *journal.Event) error) error {
	deleted, err := v.deleted.get(v.view, r.number)
	if err != nil {
		return err
	}
	if deleted >= r.first {
		r = r.without(deleted - r.first + 1)
	}
	for ; r.count > 0; r = r.without(1) {
		value, err := v.view.Get(appendEventKey(nil, r.number, r.first), nil)
		if errors.Is(err, leveldb.ErrNotFound) {
			return wrong(groupName(group), "event %d of persistence ID %d is missing", r.first, r.number)
		}
		if err != nil {
			return translate(err)
		}
		e, err := decodeEvent(value, &v.names)
		if err != nil {
			return corruptIndex(fmt.Sprintf("event %d of persistence ID %d", r.first, r.number), err)
		}
		if err := f(r.index, r.first, &e); err != nil {
			return err
		}
	}
	return nil
}

// tag checks the record of a tag.
func (v *verifier) tag(key, value []byte) error {
	tag, group, ok := cutTagKey(key)
	if !ok {
		return malformedKey(key)
	}
	runs := readRuns(value, true)
	for runs.next() {
		err := v.live(group, runs.run, func(index, seqNr uint64, e *journal.Event) error {
			if !slices.Contains(e.Tags, string(tag)) || e.IsFence() {
				return wrong(groupName(group), "event %d of persistence ID %d does not have the tag %q", seqNr, runs.run.number, tag)
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

// place checks that an event stands in a group where its tag says.
func (v *verifier) place(group, index, number, seqNr uint64) error {
	value, err := v.view.Get(appendGroupKey(nil, group), nil)
	if err != nil && !errors.Is(err, leveldb.ErrNotFound) {
		return translate(err)
	}
	runs := readRuns(value, false)
	for runs.next() {
		if r := runs.run; r.number == number && r.first <= seqNr && seqNr <= r.last() && r.index+seqNr-r.first == index {
			return nil
		}
	}
	return wrong(groupName(group), "event %d of persistence ID %d is not at %d", seqNr, number, index)
}

// event counts an event.
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
		return corruptIndex(fmt.Sprintf("event %d of persistence ID %d", seqNr, number), err)
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
		return corruptIndex(groupName(group), err)
	}
	return nil
}
