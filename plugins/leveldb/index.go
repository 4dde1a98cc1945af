// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/journal"
)

// indexer builds the index records of one group: the record of the order and one record per tag. It
// is reused.
type indexer struct {
	events uint64 // in the group
	order  runBuilder
	tags   map[string]*runBuilder
	used   []string // the tags of the group
	key    []byte
}

type runBuilder struct {
	value []byte
	last  run    // not yet in value
	end   uint64 // index after the runs in value
}

// maxKeptTags is the number of tags for which an indexer keeps buffers.
const maxKeptTags = 1024

// add appends an event to the group. Fences are not indexed.
func (x *indexer) add(number, seqNr uint64, fence bool, tags []string) {
	if fence {
		return
	}
	x.order.add(x.events, number, seqNr, false)
	for _, tag := range tags {
		if tag == "" {
			continue // no query can select the empty tag
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
			continue // duplicate tag of the event
		}
		t.add(x.events, number, seqNr, true)
	}
	x.events++
}

// addEvents appends the events of a write, and puts full groups into a batch.
func (x *indexer) addEvents(number uint64, events []journal.Event, b *leveldb.Batch, next *uint64) {
	for i := range events {
		if x.events >= maxGroup {
			x.put(b, next)
		}
		e := &events[i]
		x.add(number, e.SequenceNr, e.IsFence(), e.Tags)
	}
}

// put puts the records of the group into a batch under the next number, and begins a new group.
func (x *indexer) put(b *leveldb.Batch, next *uint64) {
	if x.events == 0 {
		return
	}
	group := *next
	*next++
	x.key = appendGroupKey(x.key[:0], group)
	b.Put(x.key, x.order.take(false))
	slices.Sort(x.used) // equal appends produce equal bytes
	for _, tag := range x.used {
		x.key = appendTagKey(x.key[:0], tag, group)
		b.Put(x.key, x.tags[tag].take(true))
	}
	x.order.reset()
	for _, tag := range x.used {
		x.tags[tag].reset()
	}
	if len(x.tags) > maxKeptTags {
		x.tags = nil
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
	t.value = t.last.append(t.value, tag, t.end)
	t.end = t.last.end()
}

// take returns the record, which is valid until reset.
func (t *runBuilder) take(tag bool) []byte {
	t.flush(tag)
	return t.value
}

func (t *runBuilder) reset() { *t = runBuilder{value: t.value[:0]} }

// maxGroup is the largest number of events in a group. It bounds the rescan of a page that begins
// in the middle of a group.
const maxGroup = 4096

// run is a sequence of events of one persistence ID that are adjacent in the order.
type run struct {
	index  uint64 // of the first event in the group, from 0
	number uint64 // of the persistence ID
	first  uint64 // sequence number of the first event
	count  uint64 // number of events
}

// end is the index after the run.
func (r run) end() uint64 { return r.index + r.count }

// last is the sequence number of the last event.
func (r run) last() uint64 { return r.first + r.count - 1 }

func (r run) without(n uint64) run {
	n = min(n, r.count)
	return run{index: r.index + n, number: r.number, first: r.first + n, count: r.count - n}
}

// append appends the encoded run. The record of a tag includes the distance to the previous run; in
// the record of a group there is no distance.
func (r run) append(b []byte, tag bool, behind uint64) []byte {
	if tag {
		b = binary.AppendUvarint(b, r.index-behind)
	}
	b = binary.AppendUvarint(b, r.number)
	b = binary.AppendUvarint(b, r.first)
	return binary.AppendUvarint(b, r.count)
}

// runReader reads the record of a group or of a tag, version 1: a version byte, then at least one
// run. A run is varints:
//
//	skipped   events of the group before the run that do not have the tag; only in the record of a tag
//	number    of the persistence ID
//	first     sequence number
//	count     of events
//
// It does not allocate.
type runReader struct {
	fields

	tag bool
	run run
	err error
}

func readRuns(b []byte, tag bool) runReader {
	r := runReader{tag: tag}
	if r.rest, r.err = cutVersion(b); r.err == nil && len(r.rest) == 0 {
		r.err = errShort
	}
	return r
}

// next reads the next run. It returns false at the end and after an error.
func (r *runReader) next() bool {
	if r.err != nil || len(r.rest) == 0 {
		return false
	}
	at := r.run.end()
	if r.tag {
		skipped := r.number()
		r.malformed = r.malformed || skipped > maxGroup
		at += skipped
	}
	r.run = run{index: at, number: r.number(), first: r.number(), count: r.number()}
	if n := r.run; r.malformed ||
		n.number == 0 || n.number > maxNumber || n.count == 0 || n.count > maxGroup || n.end() > maxGroup ||
		n.first == 0 || n.first > journal.MaxSequenceNr-n.count+1 {
		r.err = errMalformed
	}
	return r.err == nil
}

// countRuns returns the number of events in a group.
func countRuns(value []byte) (uint64, error) {
	r := readRuns(value, false)
	for r.next() {
	}
	return r.run.end(), r.err
}

// minNames is the smallest capacity of a nameCache: the number of names of a page.
const minNames = 1000

// name is a persistence ID and its slice.
type name struct {
	id    string
	slice int
}

// nameCache caches the names that queries read. Names never change.
type nameCache struct {
	capacity int

	mu    sync.Mutex
	names map[uint64]name
}

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
	value, err := get(from, appendNameKey(nil, number))
	if err != nil {
		return "", err
	}
	id, err := decodeName(value)
	if err != nil {
		return "", corrupt(fmt.Sprintf("the name of persistence ID %d", number), err)
	}
	return id, nil
}
