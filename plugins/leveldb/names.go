// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"errors"
	"fmt"
	"sync"

	"github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/journal"
)

// minNames is how many names are kept at least: those of a page.
const minNames = 1000

// name is the persistence ID with a number.
type name struct {
	id    string
	slice int
}

// nameCache holds the names that queries met. They never change.
type nameCache struct {
	capacity int

	mu    sync.Mutex
	names map[uint64]name
}

func newNameCache(capacity int) *nameCache {
	return &nameCache{capacity: max(capacity, minNames), names: make(map[uint64]name)}
}

// get returns the persistence ID with a number.
func (c *nameCache) get(from leveldb.Reader, number uint64) (name, error) {
	c.mu.Lock()
	n, ok := c.names[number]
	c.mu.Unlock()
	if ok {
		return n, nil
	}
	id, err := readName(from, number)
	if err != nil {
		return name{}, err
	}
	n = name{id: id, slice: journal.SliceOf(id)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) >= c.capacity {
		clear(c.names)
	}
	c.names[number] = n
	return n, nil
}

func readName(from leveldb.Reader, number uint64) (string, error) {
	what := fmt.Sprintf("the name of persistence ID %d", number)
	value, err := from.Get(appendNameKey(nil, number), nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return "", &journal.CorruptError{File: what, Offset: -1, Detail: "it is missing"}
	}
	if err != nil {
		return "", translate(err)
	}
	id, err := decodeName(value)
	if err != nil {
		return "", corruptIndex(what, err)
	}
	return id, nil
}

// corruptIndex wraps what is wrong with a record, unless it is only newer.
func corruptIndex(what string, err error) error {
	if errors.Is(err, journal.ErrNewerVersion) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return &journal.CorruptError{File: what, Offset: -1, Detail: err.Error()}
}
