// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// sweep deletes the records of groups, and of tags, all of whose events were
// deleted. Others stay as they are: a position counts the events of its group.
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
	last, err = e.portion(r, func(key, value []byte) error {
		group, ok := groupNumber(key)
		if kind == tagTag {
			_, group, ok = cutTagKey(key)
		}
		if !ok {
			return malformedKey(key)
		}
		if group >= end.group {
			return nil // the last one says which number comes next
		}
		runs := readRuns(value, kind == tagTag)
		for runs.next() {
			to, derr := deleted.get(e.db, runs.run.number)
			if derr != nil {
				return derr
			}
			if to < runs.run.last() {
				return nil
			}
		}
		if runs.err != nil {
			return runsError(group, runs.err)
		}
		b.Delete(key)
		return nil
	})
	if err == nil && b.Len() > 0 {
		err = e.write(&b)
	}
	return last, err
}
