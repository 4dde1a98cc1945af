// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"strings"
	"sync"
)

// stream is what is known of one persistence ID without reading the database.
type stream struct {
	id     string
	number uint64 // 0 if it was never written
	// highest is the highest sequence number, deleted that of the last deleted
	// event.
	highest, deleted uint64
	used             bool
	// touched says that something of this ID is being stored.
	touched bool

	// next is highest once the batch that is being built is stored. It belongs to
	// Append.
	next uint64
}

// cache holds the streams that were written or read last. Only Append and
// DeleteTo add to it, one at a time, so that what it says is what is stored.
type cache struct {
	capacity int

	mu      sync.Mutex
	streams map[string]*stream
	ring    []*stream // the same, in the order in which they are looked at to drop some
	hand    int
}

func newCache(capacity int) *cache {
	return &cache{capacity: capacity, streams: make(map[string]*stream)}
}

// get returns the stream of an ID for Append, nil if it is not here.
func (c *cache) get(id string) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[id]
	if s != nil {
		s.used = true
	}
	return s
}

// look returns what is known of an ID for a reader. That is nothing while an
// append to it is under way: only the database knows when it becomes visible.
func (c *cache) look(id string) (stream, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[id]
	if s == nil || s.touched {
		return stream{}, false
	}
	s.used = true
	return stream{number: s.number, highest: s.highest, deleted: s.deleted}, true
}

// add keeps a stream that is not here yet. It drops none: see trim.
func (c *cache) add(id string, s stream) *stream {
	s.id, s.used, s.next = strings.Clone(id), true, s.highest
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[s.id] = &s
	c.ring = append(c.ring, &s)
	return &s
}

// stored records that the batch with these streams is stored.
func (c *cache) stored(streams []*stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range streams {
		s.highest, s.touched = s.next, false
	}
}

// touch says that an append to a stream is under way.
func (c *cache) touch(s *stream, number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.number, s.touched = number, true
}

// setDeleted records a deletion.
func (c *cache) setDeleted(s *stream, to uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.deleted = to
}

// clear drops all: what is stored is not known any more.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.streams)
	c.ring, c.hand = nil, 0
}

// trim drops streams until there are at most capacity of them: those that were
// not used since it last passed them.
func (c *cache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ring) > c.capacity {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		s := c.ring[c.hand]
		if s.used {
			s.used = false
			c.hand++
			continue
		}
		delete(c.streams, s.id)
		last := len(c.ring) - 1
		c.ring[c.hand], c.ring[last] = c.ring[last], nil
		c.ring = c.ring[:last]
	}
}

// maxNames bounds what an interner keeps.
const maxNames = 256

// interner gives equal bytes the same string, as long as there are few
// different ones. It is not safe for concurrent use.
type interner struct {
	names map[string]string
	// writer and manifest are those of the last event, which are most often
	// those of the next.
	writer, manifest string
}

// again is get for what was in *last the last time.
func (in *interner) again(last *string, b []byte) string {
	if string(b) != *last { // does not allocate
		*last = in.get(b)
	}
	return *last
}

func (in *interner) get(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := in.names[string(b)]; ok { // does not allocate
		return s
	}
	s := string(b)
	switch {
	case in.names == nil:
		in.names = make(map[string]string)
	case len(in.names) >= maxNames:
		clear(in.names)
	}
	in.names[s] = s
	return s
}
