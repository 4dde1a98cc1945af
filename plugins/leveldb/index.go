// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/journal"
)

// indexer builds the records of one group: that of the order and those of its
// tags. It is kept from group to group for the memory that it holds.
type indexer struct {
	events uint64 // in the group so far
	order  runBuilder
	tags   map[string]*runBuilder
	used   []string // the tags of the group
	key    []byte
}

// runBuilder builds the value of a group or of a tag.
type runBuilder struct {
	value  []byte
	last   run    // not in value yet
	behind uint64 // the index behind what is in value
}

// maxKeptTags is how many tags an indexer keeps memory for.
const maxKeptTags = 1024

// full reports whether the group has to be put away before the next event.
func (x *indexer) full() bool { return x.events >= maxGroup }

// add puts an event at the end of the group. Fences are not in the order.
func (x *indexer) add(number, seqNr uint64, fence bool, tags []string) {
	if fence {
		return
	}
	x.order.add(x.events, number, seqNr, false)
	for _, tag := range tags {
		if tag == "" {
			continue // no query asks for it
		}
		t := x.tags[tag]
		if t == nil {
			if x.tags == nil {
				x.tags = make(map[string]*runBuilder)
			}
			t = new(runBuilder)
			x.tags[strings.Clone(tag)] = t
		}
		switch {
		case t.last.count == 0:
			x.used = append(x.used, tag)
		case t.last.end() > x.events:
			continue // the event has it twice
		}
		t.add(x.events, number, seqNr, true)
	}
	x.events++
}

// addEvents puts the events of a write at the end, and full groups into a batch.
func (x *indexer) addEvents(number uint64, events []journal.Event, b *leveldb.Batch, next *uint64) {
	for i := range events {
		if x.full() {
			x.put(b, next)
		}
		e := &events[i]
		x.add(number, e.SequenceNr, e.IsFence(), e.Tags)
	}
}

// put puts the records of the group into a batch, under the next number, and
// begins another one.
func (x *indexer) put(b *leveldb.Batch, next *uint64) {
	if x.events == 0 {
		return
	}
	group := *next
	*next++
	x.key = appendGroupKey(x.key[:0], group)
	b.Put(x.key, x.order.take(false))
	slices.Sort(x.used) // so that equal appends are equal bytes
	for _, tag := range x.used {
		x.key = appendTagKey(x.key[:0], tag, group)
		b.Put(x.key, x.tags[tag].take(true))
	}
	x.reset()
}

// reset forgets the group.
func (x *indexer) reset() {
	x.order.reset()
	if len(x.tags) > maxKeptTags {
		x.tags = nil
	}
	for _, tag := range x.used {
		if t := x.tags[tag]; t != nil {
			t.reset()
		}
	}
	clear(x.used)
	x.events, x.used = 0, x.used[:0]
}

func (t *runBuilder) add(index, number, seqNr uint64, tag bool) {
	if r := &t.last; r.count > 0 {
		if r.number == number && r.first+r.count == seqNr && r.end() == index {
			r.count++
			return
		}
		t.flush(tag)
	}
	t.last = run{index: index, number: number, first: seqNr, count: 1}
}

func (t *runBuilder) flush(tag bool) {
	if len(t.value) == 0 {
		t.value = append(t.value, valueVersion)
	}
	t.value = t.last.append(t.value, tag, t.behind)
	t.behind = t.last.end()
}

// take returns the value, which is valid until reset.
func (t *runBuilder) take(tag bool) []byte {
	t.flush(tag)
	return t.value
}

func (t *runBuilder) reset() { *t = runBuilder{value: t.value[:0]} }

// maxGroup is how many events a group holds at most. It bounds what a page has
// to read again when it begins in the middle of a group.
const maxGroup = 4096

// run is some events of one persistence ID that stand side by side in the order.
type run struct {
	index  uint64 // in the group, of the first of them, from 0
	number uint64 // of the persistence ID
	first  uint64 // the sequence number of the first of them
	count  uint64
}

// end is the index behind the run.
func (r run) end() uint64 { return r.index + r.count }

// last is the sequence number of the last of them.
func (r run) last() uint64 { return r.first + r.count - 1 }

// without returns the run without its first n events.
func (r run) without(n uint64) run {
	n = min(n, r.count)
	return run{index: r.index + n, number: r.number, first: r.first + n, count: r.count - n}
}

// append appends a run. In the record of a tag the events between it and the one
// before are counted too; in that of a group there are none.
func (r run) append(b []byte, tag bool, behind uint64) []byte {
	if tag {
		b = binary.AppendUvarint(b, r.index-behind)
	}
	b = binary.AppendUvarint(b, r.number)
	b = binary.AppendUvarint(b, r.first)
	return binary.AppendUvarint(b, r.count)
}

// runReader reads the value of a group or of a tag, version 1: the version in a
// byte, then runs, at least one. A run is varints:
//
//	skipped   events of the group before it that do not have the tag; only of a tag
//	number    of the persistence ID
//	first     sequence number
//	count     of events
//
// It allocates nothing, whatever it reads.
type runReader struct {
	rest []byte
	tag  bool
	run  run
	err  error
}

func readRuns(b []byte, tag bool) runReader {
	r := runReader{tag: tag}
	if r.rest, r.err = cutVersion(b); r.err == nil && len(r.rest) == 0 {
		r.err = errShort
	}
	return r
}

// next reads the next run. It returns false at the end and when err is set.
func (r *runReader) next() bool {
	if r.err != nil || len(r.rest) == 0 {
		return false
	}
	at := r.run.end()
	if r.tag {
		skipped := r.number()
		if skipped > maxGroup {
			r.err = errMalformed
		}
		at += skipped
	}
	r.run = run{index: at, number: r.number(), first: r.number(), count: r.number()}
	if n := r.run; r.err == nil &&
		(n.number == 0 || n.number > maxNumber || n.count == 0 || n.count > maxGroup || n.end() > maxGroup ||
			n.first == 0 || n.first > journal.MaxSequenceNr-n.count+1) {
		r.err = errMalformed
	}
	return r.err == nil
}

func (r *runReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.err, r.rest = errShort, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// countRuns returns how many events a group has.
func countRuns(value []byte) (uint64, error) {
	r := readRuns(value, false)
	for r.next() {
	}
	return r.run.end(), r.err
}

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
