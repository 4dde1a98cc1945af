// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"fmt"

	"github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/journal"
)

// deletePage is how many events are deleted in one batch.
const deletePage = 4096

// DeleteTo implements journal.Journal. The first batch makes the deletion
// durable as a whole; the records of many events follow in further ones. A
// deletion that was cut short there is finished by the next one of that ID. Disk space is freed when the
// engine next compacts that range, or by DB.Compact.
func (j *Journal) DeleteTo(ctx context.Context, id string, to uint64) error {
	if err := j.deleteTo(ctx, id, to); err != nil {
		return fmt.Errorf("leveldb: delete events of %q up to %d: %w", id, to, err)
	}
	return nil
}

func (j *Journal) deleteTo(ctx context.Context, id string, to uint64) error {
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

// deletePage deletes the next records and reports whether there are more.
// Appends may come between two pages.
func (j *Journal) deletePage(ctx context.Context, id string, to uint64) (more bool, err error) {
	j.writing.Lock()
	defer j.writing.Unlock()
	e, err := j.use(ctx, true)
	if err != nil {
		return false, err
	}
	defer j.release()
	s := e.streams.get(id)
	if s == nil {
		loaded, lerr := e.load(id)
		if lerr != nil {
			return false, lerr
		}
		s = e.streams.add(id, loaded)
		defer e.streams.trim()
	}
	if s.number == 0 {
		return false, nil
	}
	key := appendDeletedKey(nil, s.number)
	var d deletion
	value, err := e.get(key)
	if err != nil {
		return false, err
	}
	if value != nil {
		if d, err = decodeDeletion(value); err != nil {
			return false, corruptRecord("the deletions of ", id, err)
		}
	}
	d.to = max(d.to, min(to, s.highest))
	if d.done == d.to {
		return false, nil
	}
	var batch leveldb.Batch
	for n := 0; n < deletePage && d.done < d.to; n++ {
		d.done++
		batch.Delete(appendEventKey(nil, s.number, d.done))
	}
	batch.Put(key, d.append(nil))
	// Every page is synced: the first one makes the deletion durable, and the
	// others are few.
	if err := e.write(&batch); err != nil {
		e.streams.clear()
		return false, err
	}
	e.streams.setDeleted(s, d.to)
	return d.done < d.to, nil
}
