// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit

import (
	"fmt"

	"github.com/refold-io/refold/journal"
)

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

// prepend inserts the requests of front before those of q.
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

// waitingOwners holds the owners that wait for room in order of arrival. An owner that was granted
// room and found none keeps its position.
type waitingOwners struct {
	retrying, newcomers fifo
	// granted counts the owners whose Room was called and that have not submitted since. Their
	// places are reserved until the queue is empty; owners that have not submitted by then lose
	// their place.
	granted int
}

type waitingOwner struct {
	owner  Owner
	stream *Stream
	size   int
}

func (l *waitingOwners) any() bool { return !l.retrying.empty() || !l.newcomers.empty() }

func (l *waitingOwners) add(p waitingOwner, again bool) {
	if again {
		l.retrying.push(p)
		return
	}
	l.newcomers.push(p)
}

func (l *waitingOwners) next() *fifo {
	if !l.retrying.empty() {
		return &l.retrying
	}
	return &l.newcomers
}

// peek returns the first owner.
func (l *waitingOwners) peek() waitingOwner { return l.next().peek() }

func (l *waitingOwners) remove() { l.next().pop() }

// fifo is a queue in a slice.
type fifo struct {
	items []waitingOwner
	head  int
}

func (f *fifo) empty() bool { return f.head == len(f.items) }

func (f *fifo) peek() waitingOwner { return f.items[f.head] }

func (f *fifo) push(p waitingOwner) {
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, p)
}

func (f *fifo) pop() {
	f.items[f.head] = waitingOwner{}
	f.head++
	if !f.empty() {
		return
	}
	f.items, f.head = f.items[:0], 0
	if cap(f.items) > 1024 {
		f.items = nil // release the memory of a burst
	}
}

// Owner receives the outcome of a request. Its methods are called on goroutines of the Writer,
// without a lock, and must not block. They may call Submit and Reset, but not Close, which would
// deadlock.
type Owner interface {
	// Written is called exactly once for each accepted request, in order of submission for one
	// Stream. A nil error means stored; otherwise err is the slot of Append or the reason why the
	// request was not sent. The request belongs to its owner again.
	Written(r *Request, err error)
	// Room is called once for each Submit that returned false, when the Writer has room again. The
	// owner may submit now, later or not at all.
	Room()
}

// Stream orders the writes of one persistence ID in a Writer and records a failed write. The zero
// value is ready to use. A Stream belongs to one Writer, whose mutex protects it, and must not be
// copied.
type Stream struct {
	// epoch counts the calls of Reset that ended a skipping. A request of an older epoch was
	// submitted after the failure and before the Reset.
	epoch uint32
	state streamState
	// roomed is set from a Room until the next Submit.
	granted bool
}

type streamState uint8

const (
	flowing streamState = iota
	// willFail: a request in the queue cannot be sent.
	willFail
	// skipping: that request has left the queue; later ones are skipped.
	skipping
	// failed: a request was answered with an error; all are skipped until Reset.
	failed
)

// Request is one write on its way through a Writer. It belongs to the Writer from a Submit that
// returned true until Written is called.
type Request struct {
	// Write is the write to store. Required.
	Write journal.Write
	// Stream is the stream of Write.ID. Required.
	Stream *Stream
	// Owner receives the outcome. Required.
	Owner Owner

	next  *Request
	err   error // the reason not to send it, later the outcome
	size  int
	epoch uint32
}

// measure returns the size of a write in bytes: that of its names, payloads, tags and metadata.
func measure(write *journal.Write, limit int) (int, error) {
	reject := func(seqNr uint64, format string, args ...any) error {
		return &journal.RejectedError{ID: write.ID, SequenceNr: seqNr, Reason: fmt.Errorf(format, args...)}
	}
	if len(write.Events) == 0 {
		return 0, reject(0, "%w: no events", journal.ErrInvalid)
	}
	size := len(write.ID) + len(write.Writer)
	for i := range write.Events {
		e := &write.Events[i]
		if e.SequenceNr != write.Expect+1+uint64(i) {
			return 0, reject(e.SequenceNr, "%w: event %d of a write that expects %d must have number %d", journal.ErrInvalid, i, write.Expect, write.Expect+1+uint64(i))
		}
		n := len(e.Manifest) + len(e.Payload) + len(e.Metadata)
		for _, tag := range e.Tags {
			n += len(tag)
		}
		if n > limit {
			return 0, reject(e.SequenceNr, "%d bytes exceed the maximum of %d bytes for an append", n, limit)
		}
		size += n
	}
	if size > limit {
		return 0, reject(0, "%d bytes exceed the maximum of %d bytes for an append", size, limit)
	}
	return size, nil
}
