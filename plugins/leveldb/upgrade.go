// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
)

// Format 1 had no order of all events. A database of that format is upgraded when
// it is opened for writing, in steps that can be cut short at any point:
//
//	announced   says that there is no order yet, still in format 1. Then the format
//	            becomes 2 with the next manifest, so that no older version writes any more.
//	collected   each persistence ID has a name, and each event a key that sorts
//	            it by its time: the engine sorts better than memory could.
//	upgraded    groups were made from these keys in their order, each in one batch
//	            that deletes the keys it was made from. So what is missing is what
//	            there are keys for. Nothing says that any more.
const (
	upgraded = iota
	announced
	collected
)

const unsortedKeySize = 25

// announceUpgrade says in a database of format 1 that it has no order.
func announceUpgrade(g *guard, cfg Config) error {
	e, err := openChecked(g, cfg)
	if err != nil {
		return err
	}
	var b leveldb.Batch
	b.Put([]byte{tagUpgrade}, appendNumber(nil, announced))
	if err := e.write(&b); err != nil {
		_ = e.close() // it fails for the same reason
		return err
	}
	return e.close()
}

// upgradeStep returns the last step that was done.
func (e *engine) upgradeStep() (uint64, error) {
	value, err := e.get([]byte{tagUpgrade})
	if err != nil || value == nil {
		return upgraded, err
	}
	step, err := decodeNumber(value)
	if err == nil && step > collected {
		err = errMalformed
	}
	if err != nil {
		return upgraded, corruptIndex("the step of the upgrade", err)
	}
	return step, nil
}

// upgrade does what is left to be done.
func (e *engine) upgrade() error {
	step, err := e.upgradeStep()
	if err == nil && step == announced {
		if err = e.collect(); err == nil {
			err = e.nameAll()
		}
		if err == nil {
			var b leveldb.Batch
			b.Put([]byte{tagUpgrade}, appendNumber(nil, collected))
			err = e.write(&b)
		}
	}
	if err == nil {
		err = e.sort()
	}
	if err == nil {
		var b leveldb.Batch
		b.Delete([]byte{tagUpgrade})
		err = e.write(&b)
	}
	if err != nil {
		return fmt.Errorf("upgrading the format: %w", err)
	}
	e.ordered = true
	return nil
}

// each calls f with the records of a kind, in portions, and stores what it has
// put into the batch behind each portion.
func (e *engine) each(kind byte, f func(key, value []byte, b *leveldb.Batch) error, flush func(b *leveldb.Batch)) error {
	r := util.Range{Start: []byte{kind}, Limit: []byte{kind + 1}}
	for {
		var b leveldb.Batch
		last, err := e.portion(&r, func(key, value []byte) error { return f(key, value, &b) })
		if err != nil || last == nil {
			return err
		}
		flush(&b)
		if b.Len() > 0 {
			if err := e.write(&b); err != nil {
				return err
			}
		}
		r.Start = append(last, 0)
	}
}

// nameAll gives each number its name.
func (e *engine) nameAll() error {
	return e.each(tagID, func(key, value []byte, b *leveldb.Batch) error {
		// Without a name, a query that meets an event of it says what is wrong.
		if number, err := decodeNumber(value); err == nil {
			b.Put(appendNameKey(nil, number), appendName(nil, string(key[1:])))
		}
		return nil
	}, func(*leveldb.Batch) {})
}

// collect writes a key for each event.
func (e *engine) collect() error {
	var (
		number uint64 // of the last event
		time   int64
		names  interner
	)
	return e.each(tagEvent, func(key, value []byte, b *leveldb.Batch) error {
		seqNr, ok := eventNumber(key)
		if !ok {
			return malformedKey(key)
		}
		if n, _ := keyNumber(key); n != number {
			number, time = n, math.MinInt64
		}
		event, err := decodeEvent(value, &names)
		if err == nil {
			if event.IsFence() {
				return nil
			}
			time = max(time, event.Time.UnixMicro()) // an imported one may be out of order
		} // else it stays where it is, so that a query that meets it says what is wrong
		b.Put(appendUnsortedKey(nil, time, number, seqNr), appendTags(nil, event.Tags))
		return nil
	}, func(*leveldb.Batch) {})
}

// sort makes groups from the keys.
func (e *engine) sort() error {
	var (
		group indexer
		names interner
	)
	return e.each(tagUnsorted, func(key, value []byte, b *leveldb.Batch) error {
		number, seqNr, ok := cutUnsortedKey(key)
		if !ok {
			return malformedKey(key)
		}
		tags, rest, err := cutTags(value, &names)
		if err == nil && len(rest) > 0 {
			err = errMalformed
		}
		if err != nil {
			return corruptIndex("an event that is to be put in order", err)
		}
		group.add(number, seqNr, false, tags)
		b.Delete(key)
		return nil
	}, func(b *leveldb.Batch) { group.put(b, &e.nextGroup) })
}

// appendUnsortedKey appends the key of an event that is to be put in order: by
// its time, then by its persistence ID in the order in which they were first written.
func appendUnsortedKey(b []byte, time int64, number, seqNr uint64) []byte {
	b = append(b, tagUnsorted)
	b = binary.BigEndian.AppendUint64(b, uint64(time)^1<<63) //nolint:gosec // negative ones come first
	b = binary.BigEndian.AppendUint64(b, number)
	return binary.BigEndian.AppendUint64(b, seqNr)
}

func cutUnsortedKey(key []byte) (number, seqNr uint64, ok bool) {
	if len(key) != unsortedKeySize {
		return 0, 0, false
	}
	number, seqNr = binary.BigEndian.Uint64(key[9:]), binary.BigEndian.Uint64(key[17:])
	ok = number > 0 && number <= maxNumber && seqNr > 0 && seqNr <= journal.MaxSequenceNr
	return number, seqNr, ok
}
