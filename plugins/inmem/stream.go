// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"time"

	"github.com/refold-io/refold/journal"
)

// stream is the history of one persistence ID. The journal's lock guards it.
type stream struct {
	highest uint64
	// records are those that were not deleted, up to highest. They are never
	// changed in place, so that a page cut from them stays valid without the lock.
	records []record
	// hidden counts the deleted records that still stand before them in the
	// same array.
	hidden int
	// plain is what the latest record without tags and metadata shares with the
	// next one.
	plain *common
	place uint32 // in order.streams
}

// record is an event as it is kept: less than half as large, which is what a
// long history costs.
type record struct {
	micros   int64
	manifest string
	payload  []byte
	common   *common
}

// common is what most events of one incarnation have in common.
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

// size is what counts for a page.
func (r *record) size() int { return len(r.payload) + len(r.common.metadata) }

// record returns the record of a number up to highest, nil if it is deleted.
func (s *stream) record(seqNr uint64) *record {
	if deleted := s.deleted(); seqNr > deleted {
		return &s.records[seqNr-deleted-1]
	}
	return nil
}

// deleted returns the highest number that is deleted.
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

// deleteTo deletes up to a number and returns how many records that were. The
// memory is freed once the deleted records are as many as the others.
func (s *stream) deleteTo(to uint64) int {
	to, deleted := min(to, s.highest), s.deleted()
	if to <= deleted {
		return 0
	}
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
	more    bool // whether the replay goes on behind it
}

// cut returns the first page of a range.
func (s *stream) cut(from, to uint64) page {
	deleted := s.deleted()
	from, to = max(from, deleted+1), min(to, s.highest)
	if from > to {
		return page{}
	}
	end := min(to, from+pageRecords-1)
	return page{first: from, records: s.records[from-deleted-1 : end-deleted], more: end < to}
}

// trim shortens a page that holds too many bytes.
func (p *page) trim() {
	size := 0
	for i := range p.records {
		if size += p.records[i].size(); size > pageBytes && i > 0 {
			p.records, p.more = p.records[:i], true
			return
		}
	}
}
