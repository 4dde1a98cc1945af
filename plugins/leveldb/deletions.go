// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"errors"
	"fmt"

	"github.com/syndtr/goleveldb/leveldb"
)

// deletions remembers how far persistence IDs were deleted.
type deletions struct {
	known map[uint64]uint64
	// number and to are those of the last answer.
	number, to uint64
}

// get returns the last deleted sequence number of a persistence ID.
func (d *deletions) get(from leveldb.Reader, number uint64) (to uint64, err error) {
	if number == d.number {
		return d.to, nil
	}
	to, ok := d.known[number]
	if !ok {
		if to, err = readDeleted(from, number); err != nil {
			return 0, err
		}
		if d.known == nil {
			d.known = make(map[uint64]uint64)
		}
		d.known[number] = to
	}
	d.number, d.to = number, to
	return to, nil
}

func readDeleted(from leveldb.Reader, number uint64) (to uint64, err error) {
	value, err := from.Get(appendDeletedKey(nil, number), nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, translate(err)
	}
	d, err := decodeDeletion(value)
	if err != nil {
		return 0, corruptIndex(fmt.Sprintf("the deletions of persistence ID %d", number), err)
	}
	return d.to, nil
}
