// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/ddata/durable"
)

var errReplaced = errors.New("the disk has failed meanwhile")

// Load implements durable.Store. It reads some records at a time and holds nothing that
// a call of Write in the body of the loop would wait for.
func (s *durableStore) Load(ctx context.Context) iter.Seq2[durable.Record, error] {
	return func(yield func(durable.Record, error) bool) {
		l := loader{store: s}
		defer l.close()
		for {
			records, err := l.next(ctx)
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(durable.Record{}, fmt.Errorf("leveldb: load the durable data %v: %w", s.id, durableError(err)))
				return
			}
			if len(records) == 0 {
				return
			}
		}
	}
}

// loader goes through the records as they are when it begins.
type loader struct {
	store *durableStore
	from  *engine
	view  *leveldb.Snapshot
	start []byte // nil at the beginning: there is nothing but records
	live  int64  // bytes that were read
	began int64
}

// next returns the records that come next, none at the end. Those in front of one that is
// damaged come together with the error.
func (l *loader) next(ctx context.Context) (records []durable.Record, err error) {
	s := l.store
	e, err := s.use(ctx, false)
	if err != nil {
		return nil, err
	}
	defer s.release()
	if l.view == nil {
		if l.view, err = e.db.GetSnapshot(); err != nil {
			return nil, translate(err)
		}
		l.from, l.began = e, s.space.begin()
	}
	if l.from != e {
		return nil, errReplaced
	}
	it := l.view.NewIterator(&util.Range{Start: l.start}, nil)
	defer it.Release()
	for size := 0; size < portionBytes && len(records) < e.records && it.Next(); {
		r, err := decodeRecord(it.Key(), it.Value())
		if err != nil {
			return records, err
		}
		r.Data = bytes.Clone(r.Data)
		records = append(records, r)
		size += len(it.Key()) + len(it.Value())
		l.live += int64(len(it.Key()) + len(it.Value()))
		l.start = append(append(l.start[:0], it.Key()...), 0)
	}
	if err := it.Error(); err != nil {
		return records, translate(err)
	}
	if len(records) == 0 {
		s.space.counted(l.live, l.began)
		s.tidy(e)
	}
	return records, nil
}

func (l *loader) close() {
	if l.view != nil {
		l.view.Release()
	}
}
