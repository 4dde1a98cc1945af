// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit

import (
	"container/list"
	"fmt"

	"github.com/refold-io/refold/journal"
)

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
	retrying, newcomers list.List // of waitingOwner
	// granted counts the owners whose Room was called and that have not submitted since. Their
	// places are reserved until the queue is empty. Owners that have not submitted by this time
	// lose their places.
	granted int
}

type waitingOwner struct {
	owner  Owner
	stream *Stream
	size   int
}

func (l *waitingOwners) any() bool { return l.retrying.Len()+l.newcomers.Len() > 0 }

func (l *waitingOwners) add(p waitingOwner, again bool) {
	if again {
		l.retrying.PushBack(p)
		return
	}
	l.newcomers.PushBack(p)
}

// take removes and returns the first owner if fits accepts it.
func (l *waitingOwners) take(fits func(waitingOwner) bool) (p waitingOwner, ok bool) {
	from := &l.newcomers
	if l.retrying.Len() > 0 {
		from = &l.retrying
	}
	first := from.Front()
	if first == nil {
		return p, false
	}
	p = first.Value.(waitingOwner) //nolint:errcheck // the lists hold nothing else
	if !fits(p) {
		return p, false
	}
	from.Remove(first)
	return p, true
}

// Owner receives the outcome of a request. Its methods are called without a lock and must not block:
// on goroutines of the Writer, or by Submit with a journal.Immediate. They may call Submit and Reset,
// but not Close, which would deadlock.
type Owner interface {
	// Written is called exactly once for each accepted request, in order of submission for one
	// Stream. A nil error means stored. A non-nil err is the slot of Append or the reason why the
	// request was not sent. When Written is called, the request belongs to its owner again.
	Written(r *Request, err error)
	// Room is called once for each Submit that returned false, when the Writer has room again. The
	// owner may submit now, later or never.
	Room()
}

// Stream orders the writes of one persistence ID in a Writer and records a failed write. The zero
// value is ready to use. A Stream belongs to one Writer, whose mutex protects it, and must not be
// copied.
type Stream struct {
	// epoch counts the calls of Reset that resumed the stream. A request of an older epoch was
	// submitted after the failure and before the Reset.
	epoch uint32
	state streamState
	// granted is set from a call of Room until the next Submit.
	granted bool
}

type streamState uint8

const (
	flowing streamState = iota
	// willFail: a request in the queue cannot be sent.
	willFail
	// skipping: the request that cannot be sent has left the queue, and later requests are skipped.
	skipping
	// failed: a request was answered with an error, and all requests are skipped until Reset.
	failed
)

// Request is one write that is handed to a Writer. After a Submit that returned true, the request
// belongs to the Writer until Written is called.
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

// measure returns the size of a write in bytes: its names, payloads, tags and metadata.
func measure(write *journal.Write, limit int) (int, error) {
	if _, err := journal.CheckWrite(write); err != nil {
		return 0, err
	}
	tooLarge := func(seqNr uint64, n int) (int, error) {
		return 0, &journal.RejectedError{ID: write.ID, SequenceNr: seqNr, Reason: fmt.Errorf("%d bytes exceed the maximum of %d bytes for an append", n, limit)}
	}
	size := len(write.ID) + len(write.Writer)
	for i := range write.Events {
		e := &write.Events[i]
		n := len(e.Manifest) + len(e.Payload) + len(e.Metadata)
		for _, tag := range e.Tags {
			n += len(tag)
		}
		if n > limit {
			return tooLarge(e.SequenceNr, n)
		}
		size += n
	}
	if size > limit {
		return tooLarge(0, size)
	}
	return size, nil
}
