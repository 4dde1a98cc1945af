// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
)

// Journal is the journal of a DB. It implements journal.Journal,
// journal.IDLister and journal.Querier.
//
// An event holds at most 16 MiB of payload and metadata and a write 64 MiB;
// what is larger is rejected.
type Journal struct {
	handle

	db *DB
	// writing serialises what changes the journal. It is locked before DB.mu.
	writing sync.Mutex
	batch   batcher
	pages   sync.Pool // of *page
	// news is sent after each append, whatever became of it.
	news signal
}

var (
	_ journal.Journal  = (*Journal)(nil)
	_ journal.IDLister = (*Journal)(nil)
	_ journal.Querier  = (*Journal)(nil)
)

// Close implements journal.Journal. See DB.Journal.
func (j *Journal) Close() error { return j.db.drop(&j.handle) }

// HighestSequenceNr implements journal.Journal.
func (j *Journal) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	highest, err := j.highest(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("leveldb: highest sequence number of %q: %w", id, err)
	}
	return highest, nil
}

func (j *Journal) highest(ctx context.Context, id string) (uint64, error) {
	if err := journal.CheckID(id); err != nil {
		return 0, err
	}
	e, err := j.use(ctx, false)
	if err != nil {
		return 0, err
	}
	defer j.release()
	s, ok := e.streams.look(id)
	if !ok {
		s, err = e.load(id)
	}
	return s.highest, err
}

// use returns the engine for one call, or one page. release must be called.
func (j *Journal) use(ctx context.Context, writing bool) (*engine, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !j.enter() {
		return nil, journal.ErrClosed
	}
	e, err := j.db.acquire(writing)
	if err != nil {
		j.leave()
	}
	return e, err
}

func (j *Journal) release() {
	j.db.release()
	j.leave()
}

// idPage is how many persistence IDs are read at once.
const idPage = 1000

// PersistenceIDs implements journal.IDLister. An ID that is written for the
// first time while the loop runs may be listed or not.
func (j *Journal) PersistenceIDs(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		after := after // each loop over the sequence begins anew
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
	start := append(appendIDKey(nil, after), 0) // no ID holds a NUL
	it := e.db.NewIterator(&util.Range{Start: start, Limit: []byte{tagID + 1}}, nil)
	defer it.Release()
	var ids []string
	for len(ids) < idPage && it.Next() {
		ids = append(ids, string(it.Key()[1:]))
	}
	return ids, translate(it.Error())
}
