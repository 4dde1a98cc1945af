// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"fmt"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
)

// deletePage is the number of events that are deleted in one batch.
const deletePage = 4096

// DeleteTo implements journal.Journal. The first batch makes the whole deletion durable; the
// records of many events are removed in further batches. A batch is shared as described at
// SnapshotStore. If the removal is interrupted, the next deletion of the same ID completes it. Disk
// space is freed when the engine compacts the range, or by DB.Compact.
func (j *Journal) DeleteTo(ctx context.Context, id string, to uint64) (err error) {
	defer wrap(&err, "delete events of %q up to %d", id, to)
	if err := journal.CheckID(id); err != nil {
		return err
	}
	for {
		more, err := j.deletePage(ctx, id, to)
		if err != nil || !more {
			return err
		}
	}
}

// deletePage removes the next records and reports whether there are more. Appends may run between
// two pages.
func (j *Journal) deletePage(ctx context.Context, id string, to uint64) (more bool, err error) {
	e, err := j.use(ctx, true)
	if err != nil {
		return false, err
	}
	defer j.release()
	var (
		s   *stream
		key []byte
		d   deletion
	)
	c := change{
		add: func(b leveldb.BatchReplay) (err error) {
			if s, err = e.stream(id); err != nil || s.number == 0 {
				return err
			}
			d = s.removal
			if d.to = max(d.to, min(to, s.highest)); d.done == d.to {
				return nil
			}
			for n := 0; n < deletePage && d.done < d.to; n++ {
				d.done++
				key = appendEventKey(key[:0], s.number, d.done)
				b.Delete(key)
			}
			// Every page is synced. The first one makes the deletion durable, and further ones are few.
			b.Put(appendDeletedKey(nil, s.number), d.append(nil))
			s.removal = d
			return nil
		},
		stored: func() { e.streams.setDeleted(s, d.to) },
	}
	err = e.share(&c)
	return d.done < d.to, err
}

// sweep removes the index records whose events are all deleted. Other records do not change,
// because offsets count the events of a group.
func (db *DB) sweep(ctx context.Context) error {
	for _, kind := range []byte{tagGroup, tagTag} {
		r := util.Range{Start: []byte{kind}, Limit: []byte{kind + 1}}
		for {
			last, err := db.sweepPortion(ctx, kind, &r)
			if err != nil {
				return err
			}
			if last == nil {
				break
			}
			r.Start = append(last, 0)
		}
	}
	return nil
}

func (db *DB) sweepPortion(ctx context.Context, kind byte, r *util.Range) (last []byte, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	e, err := db.acquire(true)
	if err != nil {
		return nil, err
	}
	defer db.release()
	end, err := endOf(e.db)
	if err != nil {
		return nil, err
	}
	var (
		b       leveldb.Batch
		deleted deletions
	)
	last, err = e.portion(e.db, r, func(key, value []byte) error {
		_, group, damaged := cutIndexKey(key)
		if damaged != nil || group >= end.group { // the last group determines the next group number
			return damaged
		}
		runs := readRuns(value, kind == tagTag)
		for runs.next() {
			left, failed := deleted.skip(e.db, runs.run)
			if failed != nil || left.count > 0 {
				return failed
			}
		}
		if runs.err == nil {
			b.Delete(key)
		}
		return runsError(group, runs.err)
	})
	if err == nil && b.Len() > 0 {
		err = e.write(&b)
	}
	return last, err
}

// deletions caches the last deleted sequence numbers of persistence IDs.
type deletions struct{ known map[uint64]uint64 }

// get returns the last deleted sequence number of a persistence ID.
func (d *deletions) get(from leveldb.Reader, number uint64) (to uint64, err error) {
	if to, ok := d.known[number]; ok {
		return to, nil
	}
	stored, err := readDeletion(from, number)
	if err != nil {
		return 0, err
	}
	if d.known == nil {
		d.known = make(map[uint64]uint64)
	}
	d.known[number] = stored.to
	return stored.to, nil
}

// skip returns a run without its deleted events.
func (d *deletions) skip(from leveldb.Reader, r run) (run, error) {
	to, err := d.get(from, r.number)
	if to >= r.first {
		r = r.without(to - r.first + 1)
	}
	return r, err
}

// readDeletion reads the deletion record of a persistence ID. The zero value means no deletions.
func readDeletion(from leveldb.Reader, number uint64) (d deletion, err error) {
	value, err := get(from, appendDeletedKey(nil, number))
	if err != nil || value == nil {
		return d, err
	}
	if d, err = decodeDeletion(value); err != nil {
		return d, corrupt(fmt.Sprintf("the deletions of persistence ID %d", number), err)
	}
	return d, nil
}
