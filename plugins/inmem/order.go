// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import "github.com/refold-io/refold/journal"

// blockLen is how many events share a block of the order.
const blockLen = 256

// order is the one order of the events of all streams: where each of them
// stands. It takes 12 bytes an event and holds no pointer for the garbage
// collector to follow. The journal's lock guards it.
type order struct {
	streams []member
	blocks  []*block // nil where all events were deleted
	end     uint64   // how many events there were ever
	held    int      // the blocks that are not nil
	dead    int      // the events that were deleted since the last sweep
}

// block is a part of the order.
type block struct {
	stream [blockLen]uint32 // its place in order.streams
	seqNr  [blockLen]uint64
}

// member is a stream with what queries ask about it. That does not stand in the
// stream, which appends want to be small.
type member struct {
	*stream
	id    string
	slice int
}

// join gives the new stream of an ID its place.
func (o *order) join(id string, s *stream) {
	s.place = uint32(len(o.streams)) //nolint:gosec // memory ends long before
	o.streams = append(o.streams, member{s, id, journal.SliceOf(id)})
}

// append puts n events of a stream at the end, first and those behind it.
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

// deleted takes note of n deleted events. It frees blocks without others once
// half of what is held may be such, so that a deletion costs a few steps on
// average.
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
		if b.seqNr[at] > o.streams[place].deleted() {
			return false
		}
	}
	return true
}

// hit is an event that a query found.
type hit struct {
	id     string
	seqNr  uint64
	record *record // not changed any more, also without the lock
	at     uint64  // the position behind it
}

// scan returns the events of a page behind a position, and the position behind
// all that was looked at.
func (o *order) scan(q journal.Criteria, next uint64) ([]hit, uint64) {
	slices := q.Slices
	q.Slices = journal.Slices{} // a stream knows its own
	var hits []hit
	size := 0
	for looked := 0; next < o.end && looked < pageRecords && size < pageBytes; looked++ {
		b, at := o.blocks[next/blockLen], next%blockLen
		if b == nil {
			next += blockLen - at
			continue
		}
		s, seqNr := &o.streams[b.stream[at]], b.seqNr[at]
		next++
		r := s.record(seqNr)
		if r == nil || r.manifest == "" || !slices.Contains(s.slice) || !q.Matches(s.id, r.common.tags) {
			continue // it is deleted, a fence, or not asked for
		}
		hits = append(hits, hit{s.id, seqNr, r, next})
		size += r.size()
	}
	return hits, next
}
