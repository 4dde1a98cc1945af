// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/journal"
)

// stream is the history of one persistence ID.
type stream struct {
	id    string
	place uint32        // in order.streams, from the first append on
	gone  atomic.Uint64 // the number of the last deleted record

	mu      sync.Mutex // guards the rest
	highest uint64
	// records are the records that are not deleted, up to highest. They are never modified in
	// place, so a page of them stays valid without the lock.
	records []record
	// hidden is the number of deleted records before records in the same array.
	hidden int
	// plain is the part that the latest record without tags and metadata shares with the next one.
	plain *common
}

// record is the stored form of an event. It takes less than half of the memory of a journal.Event.
type record struct {
	micros   int64
	manifest string
	payload  []byte
	common   *common
}

// common holds the fields that most events of one incarnation share.
type common struct {
	writer   string
	tags     []string
	metadata []byte
}

func (r *record) event(seqNr uint64) journal.Event {
	return journal.Event{
		SequenceNr: seqNr,
		Time:       time.UnixMicro(r.micros).UTC(),
		Writer:     r.common.writer,
		Manifest:   r.manifest,
		Payload:    r.payload,
		Tags:       r.common.tags,
		Metadata:   r.common.metadata,
	}
}

// size is the size that counts towards a page.
func (r *record) size() int { return len(r.payload) + len(r.common.metadata) }

// record returns the record with a number up to highest, nil if it is deleted.
func (s *stream) record(seqNr uint64) *record {
	if deleted := s.deleted(); seqNr > deleted {
		return &s.records[seqNr-deleted-1]
	}
	return nil
}

// lookUp returns a record, nil if it is deleted. A record is immutable.
func (s *stream) lookUp(seqNr uint64) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record(seqNr)
}

// conflict returns the error of a write that does not follow the last record.
func (s *stream) conflict(w *journal.Write) error {
	if w.Expect != s.highest {
		return &journal.ConflictError{ID: w.ID, Expected: w.Expect, Highest: s.highest}
	}
	return nil
}

func (s *stream) deleted() uint64 { return s.highest - uint64(len(s.records)) }

func (s *stream) append(w *journal.Write) {
	if len(s.records)+len(w.Events) > cap(s.records) {
		s.hidden = 0 // append moves the rest to a new array
	}
	for i := range w.Events {
		e := &w.Events[i]
		s.records = append(s.records, record{
			micros: e.Time.UnixMicro(), manifest: e.Manifest, payload: e.Payload, common: s.common(w.Writer, e),
		})
	}
	s.highest += uint64(len(w.Events))
}

func (s *stream) common(writer string, e *journal.Event) *common {
	if len(e.Tags) > 0 || len(e.Metadata) > 0 {
		return &common{writer: writer, tags: e.Tags, metadata: e.Metadata}
	}
	if s.plain == nil || s.plain.writer != writer {
		s.plain = &common{writer: writer}
	}
	return s.plain
}

// deleteTo deletes records up to a number and returns their count. The memory is freed once the
// number of deleted records reaches the number of remaining ones.
func (s *stream) deleteTo(to uint64) int {
	to, deleted := min(to, s.highest), s.deleted()
	if to <= deleted {
		return 0
	}
	s.gone.Store(to)
	n := int(to - deleted) //nolint:gosec // at most len(s.records)
	s.records, s.hidden = s.records[n:], s.hidden+n
	if s.hidden >= len(s.records) {
		s.records, s.hidden = append([]record(nil), s.records...), 0
	}
	return n
}

// page is a part of a stream that is yielded without the lock.
type page struct {
	first   uint64 // the number of its first record
	records []record
	more    bool // whether the replay continues after it
}

func (s *stream) cut(from, to uint64) page {
	deleted := s.deleted()
	from, to = max(from, deleted+1), min(to, s.highest)
	if from > to {
		return page{}
	}
	end := min(to, from+pageRecords-1)
	return page{first: from, records: s.records[from-deleted-1 : end-deleted], more: end < to}
}

// trim shortens a page with too many bytes.
func (p *page) trim() {
	size := 0
	for i := range p.records {
		if size += p.records[i].size(); size > pageBytes && i > 0 {
			p.records, p.more = p.records[:i], true
			return
		}
	}
}

// blockLen is the number of events per block of the order.
const blockLen = 256

// order is the order of the events of all streams. It takes 12 bytes per event and holds no
// pointers for the garbage collector. The journal's lock guards it.
type order struct {
	streams []member
	blocks  []*block // nil for blocks whose events are all deleted
	end     uint64   // the number of events ever appended
	held    int      // the number of blocks that are not nil
	dead    int      // the number of events deleted since the last sweep
}

type block struct {
	stream [blockLen]uint32 // the index in order.streams
	seqNr  [blockLen]uint64
}

// member is a stream with the properties that queries filter by. They are not fields of stream,
// which stays small to make appends fast.
type member struct {
	*stream
	slice int
}

func (o *order) append(s *stream, first uint64, n int) {
	for seqNr := first; n > 0; seqNr, n = seqNr+1, n-1 {
		at := o.end % blockLen
		if at == 0 {
			o.blocks = append(o.blocks, new(block))
			o.held++
		}
		b := o.blocks[len(o.blocks)-1]
		b.stream[at], b.seqNr[at] = s.place, seqNr
		o.end++
	}
}

// deleted records n deleted events. It frees blocks without live events once half of the held
// blocks may have none, so a deletion costs a constant number of steps on average.
func (o *order) deleted(n int) {
	if o.dead += n; o.dead < o.held*blockLen/2 {
		return
	}
	o.dead = 0
	full := int(o.end / blockLen) //nolint:gosec // a length
	for i, b := range o.blocks[:full] {
		if b != nil && o.allDeleted(b) {
			o.blocks[i] = nil
			o.held--
		}
	}
}

func (o *order) allDeleted(b *block) bool {
	for at, place := range b.stream {
		if b.seqNr[at] > o.streams[place].gone.Load() {
			return false
		}
	}
	return true
}

// found is an event in the order.
type found struct {
	stream *stream
	seqNr  uint64
	next   uint64 // the position after it
}

// scan returns the events of these slices among the next events after a position, and the position
// after the examined events.
func (o *order) scan(slices journal.Slices, next uint64) (all []found, _ uint64) {
	for looked := 0; next < o.end && looked < pageRecords; looked++ {
		b, at := o.blocks[next/blockLen], next%blockLen
		if b == nil {
			next += blockLen - at
			continue
		}
		next++
		if s := &o.streams[b.stream[at]]; slices.Contains(s.slice) {
			all = append(all, found{s.stream, b.seqNr[at], next})
		}
	}
	return all, next
}
