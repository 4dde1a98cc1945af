// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"slices"
	"strings"

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
