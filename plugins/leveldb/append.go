// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"fmt"
	"slices"

	"github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/journal"
)

const maxKeptBatch = 8 << 20 // larger buffers are not reused

// Append implements journal.Journal. A call is one record of the log and one sync, or several if
// its writes exceed 64 MiB.
func (j *Journal) Append(ctx context.Context, writes []journal.Write) []error {
	if len(writes) == 0 {
		return nil
	}
	defer j.appended.send()
	e, err := j.use(ctx, true)
	if err != nil {
		return slices.Repeat([]error{fmt.Errorf("leveldb: append: %w: %w", journal.ErrNotSent, err)}, len(writes))
	}
	defer j.release()
	e.beginAppend()
	defer e.endAppend()
	return j.batch.run(e, j.db.name, writes)
}

// batcher converts the writes of one call into batches. It is reused for its buffers.
type batcher struct {
	engine *engine
	name   string // directory
	writes []journal.Write
	// errs is nil until a write has failed and then has an element per write. failed holds the
	// persistence IDs of failed writes.
	errs   []error
	failed map[string]struct{}
	// down is set once a batch could not be stored.
	down bool

	batch   leveldb.Batch
	size    int       // bytes in the batch, about
	first   int       // the first write of the batch
	streams []*stream // those with writes in the batch
	index   indexer
	key     []byte
	value   []byte
}

func (b *batcher) run(e *engine, name string, writes []journal.Write) []error {
	b.engine, b.name, b.writes, b.first, b.down = e, name, writes, 0, false
	for i := range writes {
		if err := b.add(i, &writes[i]); err != nil {
			b.fail(i, err)
		}
	}
	b.commit(len(writes))
	errs := b.errs
	b.engine, b.writes, b.errs, b.failed = nil, nil, nil, nil
	if cap(b.value) > maxKeptBatch {
		b.value = nil
	}
	return errs
}

func (b *batcher) fail(i int, err error) {
	if b.errs == nil {
		b.errs, b.failed = make([]error, len(b.writes)), make(map[string]struct{})
	}
	b.errs[i] = err
	b.failed[b.writes[i].ID] = struct{}{}
}

// add adds a write to the batch, or returns the reason why it cannot be stored.
func (b *batcher) add(i int, w *journal.Write) error {
	if _, behind := b.failed[w.ID]; behind {
		return journal.ErrSkipped
	}
	size, err := journal.CheckWrite(w)
	if err != nil {
		return err
	}
	if b.size+size > journal.MaxWriteSize {
		b.commit(i)
	}
	if b.down {
		return fmt.Errorf("leveldb: append: %w: an earlier batch of the call failed", journal.ErrNotSent)
	}
	if err = journal.CheckID(w.ID); err != nil {
		return &journal.RejectedError{ID: w.ID, Reason: err}
	}
	s, err := b.engine.stream(w.ID)
	if err != nil {
		return fmt.Errorf("leveldb: append: %w: read the state of %q: %w", journal.ErrNotSent, w.ID, err)
	}
	if w.Expect != s.next {
		return &journal.ConflictError{ID: w.ID, Expected: w.Expect, Highest: s.next}
	}
	if !s.pending {
		number := s.number
		if number == 0 {
			number = b.engine.nextNumber.Add(1) - 1
			b.key = appendIDKey(b.key[:0], w.ID)
			b.value = appendNumber(b.value[:0], number)
			b.batch.Put(b.key, b.value)
			b.key = appendNameKey(b.key[:0], number)
			b.value = appendName(b.value[:0], w.ID)
			b.batch.Put(b.key, b.value)
		}
		b.engine.streams.markPending(s, number)
		b.streams = append(b.streams, s)
	}
	for k := range w.Events {
		b.key = appendEventKey(b.key[:0], s.number, w.Expect+1+uint64(k))
		b.value = appendEvent(b.value[:0], w.Writer, &w.Events[k])
		b.batch.Put(b.key, b.value)
	}
	b.index.addEvents(s.number, w.Events, &b.batch, &b.engine.nextGroup)
	s.next += uint64(len(w.Events))
	b.size += size
	return nil
}

// commit stores the batch, which holds the writes below end.
func (b *batcher) commit(end int) {
	if b.batch.Len() > 0 {
		b.index.put(&b.batch, &b.engine.nextGroup)
	}
	err := b.engine.store(&b.batch)
	if err == nil {
		b.engine.streams.stored(b.streams)
	} else {
		b.down = true
		err = fmt.Errorf("leveldb: append in %q: %w", b.name, err)
		for i := b.first; i < end; i++ {
			if b.errs == nil || b.errs[i] == nil {
				b.fail(i, err)
			}
		}
	}
	b.first, b.size = end, 0
	clear(b.streams)
	b.streams = b.streams[:0]
	if cap(b.batch.Dump()) > maxKeptBatch {
		b.batch = leveldb.Batch{}
	}
	b.batch.Reset()
}
