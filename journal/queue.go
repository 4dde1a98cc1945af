// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

// requests is a queue of requests, linked through them.
type requests struct{ first, last *Request }

func (q *requests) push(r *Request) {
	r.next = nil
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
}

func (q *requests) pop() {
	q.first = q.first.next
	if q.first == nil {
		q.last = nil
	}
}

// prepend puts what is in front before q.
func (q *requests) prepend(front requests) {
	if front.first == nil {
		return
	}
	if q.first == nil {
		*q = front
		return
	}
	front.last.next = q.first
	q.first = front.first
}

// parkingLot holds the owners that wait for room, in the order in which they
// came. An owner that was told of room and found none keeps its turn.
type parkingLot struct {
	again, fresh fifo
	// granted is how many owners were told of room and have not submitted
	// since. Their places are kept until the queue has run empty: by then those
	// who have not come do not count.
	granted int
}

type parkedOwner struct {
	owner  Owner
	stream *Stream
	size   int
}

func (l *parkingLot) waiting() bool { return !l.again.empty() || !l.fresh.empty() }

func (l *parkingLot) add(p parkedOwner, again bool) {
	if again {
		l.again.push(p)
		return
	}
	l.fresh.push(p)
}

func (l *parkingLot) line() *fifo {
	if !l.again.empty() {
		return &l.again
	}
	return &l.fresh
}

// peek returns the owner whose turn it is.
func (l *parkingLot) peek() parkedOwner { return l.line().peek() }

func (l *parkingLot) remove() { l.line().pop() }

// fifo is a queue in a slice.
type fifo struct {
	items []parkedOwner
	head  int
}

func (f *fifo) empty() bool { return f.head == len(f.items) }

func (f *fifo) peek() parkedOwner { return f.items[f.head] }

func (f *fifo) push(p parkedOwner) {
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, p)
}

func (f *fifo) pop() {
	f.items[f.head] = parkedOwner{}
	f.head++
	if !f.empty() {
		return
	}
	f.items, f.head = f.items[:0], 0
	if cap(f.items) > 1024 {
		f.items = nil // a crowd came and went
	}
}
