// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"fmt"
	"strings"
	"sync"

	"github.com/refold-io/refold/journal"
)

// stream is the cached state of one persistence ID.
type stream struct {
	number uint64 // 0 if the ID has no events
	// highest is the highest sequence number, deleted the sequence number of the last deleted
	// event.
	highest, deleted uint64
	// pending is set while an append to this ID is in progress.
	pending bool

	// next is the value of highest after the current batch, and removal the deletion record. Only the
	// call that has the turn uses them.
	next    uint64
	removal deletion
}

// cache holds the streams of some persistence IDs. Only the call that has the turn adds streams, so
// the cache always matches the stored state.
type cache struct {
	capacity int

	mu      sync.Mutex
	streams map[string]*stream
}

func (c *cache) get(id string) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// lookup returns a copy of the stream of an ID for a reader. It finds nothing while an append is in
// progress, because only the database decides when the append becomes visible.
func (c *cache) lookup(id string) (stream, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[id]
	if s == nil || s.pending {
		return stream{}, false
	}
	return stream{number: s.number, highest: s.highest, deleted: s.deleted}, true
}

// add adds a stream. It does not evict streams; trim does.
func (c *cache) add(id string, s stream) *stream {
	s.next = s.highest
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[strings.Clone(id)] = &s
	return &s
}

func (c *cache) stored(streams []*stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range streams {
		s.highest, s.pending = s.next, false
	}
}

func (c *cache) markPending(s *stream, number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.number, s.pending = number, true
}

func (c *cache) setDeleted(s *stream, to uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.deleted = to
}

// clear drops all streams, because the stored state is unknown.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.streams)
}

// trim evicts streams at random until at most capacity are left.
func (c *cache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.streams { // begins at a random stream
		if len(c.streams) <= c.capacity {
			return
		}
		delete(c.streams, id)
	}
}

// number returns the number of a persistence ID, 0 if it has no events.
func (e *engine) number(id string) (uint64, error) {
	value, err := get(e.db, appendIDKey(nil, id))
	if err != nil || value == nil {
		return 0, err
	}
	number, err := decodeNumber(value)
	if err != nil {
		return 0, corrupt(fmt.Sprintf("the number of %q", id), err)
	}
	return number, nil
}

// find reads the stored state of a persistence ID except for its highest sequence number.
func (e *engine) find(id string) (s stream, err error) {
	if s.number, err = e.number(id); err != nil || s.number == 0 {
		return s, err
	}
	s.removal, err = readDeletion(e.db, s.number)
	s.deleted = s.removal.to
	return s, err
}

// load reads the stored state of a persistence ID. It reads the last event before the deletions: if a
// deletion removes this event in between, its record has the sequence number.
func (e *engine) load(id string) (stream, error) {
	number, err := e.number(id)
	if err != nil || number == 0 {
		return stream{}, err
	}
	key, err := e.last(appendEventKey(nil, number, 0), afterEvents(nil, number, journal.MaxSequenceNr))
	if err != nil {
		return stream{}, err
	}
	s := stream{number: number}
	if key != nil {
		s.highest, _ = eventNumber(key)
	}
	s.removal, err = readDeletion(e.db, number)
	s.deleted = s.removal.to
	s.highest = max(s.highest, s.deleted)
	return s, err
}

// stream returns the cached state of a persistence ID. If the cache has none, it adds the stored
// state, and store evicts others. The caller has the turn.
func (e *engine) stream(id string) (*stream, error) {
	if s := e.streams.get(id); s != nil {
		return s, nil
	}
	s, err := e.load(id)
	if err != nil {
		return nil, err
	}
	return e.streams.add(id, s), nil
}

// maxNames bounds the number of strings that a stringPool keeps.
const maxNames = 256

// stringPool returns the same string for equal bytes, so that repeated values are allocated once.
// It drops all strings when it holds maxNames of them. It is not safe for concurrent use.
type stringPool struct {
	names map[string]string
	// writer and manifest are those of the last event. The next event usually has the same ones.
	writer, manifest string
}

// getLast is get for a value that usually equals the previous one in *last.
func (in *stringPool) getLast(last *string, b []byte) string {
	if string(b) != *last { // does not allocate
		*last = in.get(b)
	}
	return *last
}

func (in *stringPool) get(b []byte) string {
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
