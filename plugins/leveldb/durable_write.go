// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"fmt"

	"github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/ddata/durable"
)

// maxDurableBatch is how many bytes one batch has, about, before the next one is begun. A
// record may have more.
const maxDurableBatch = 8 << 20

// Write implements durable.Store.
func (s *durableStore) Write(ctx context.Context, records []durable.Record) error {
	if err := s.write(ctx, records); err != nil {
		return fmt.Errorf("leveldb: write %d records of the durable data %v: %w", len(records), s.id, durableError(err))
	}
	return nil
}

func (s *durableStore) write(ctx context.Context, records []durable.Record) error {
	for _, r := range records {
		if err := r.Check(); err != nil {
			return err
		}
	}
	e, err := s.use(ctx, true)
	if err != nil {
		return err
	}
	defer s.release()
	var (
		b          leveldb.Batch
		key, value []byte
		deleted    int64
		written    int64
		size       int
	)
	for i, r := range records {
		key = recordKey(key[:0], r.Key)
		if len(r.Data) == 0 {
			old, err := e.get(key)
			if err != nil {
				return err
			}
			deleted += int64(len(key) + len(old))
			b.Delete(key)
		} else {
			value = appendRecord(value[:0], key, r.Data)
			b.Put(key, value)
			written += int64(len(key) + len(value))
		}
		size += len(key) + len(r.Data)
		if size < maxDurableBatch && i < len(records)-1 {
			continue
		}
		if err := e.write(&b); err != nil {
			return err
		}
		b.Reset()
		size = 0
	}
	if s.space.wrote(written, deleted) {
		s.tidy(e)
	}
	return nil
}
