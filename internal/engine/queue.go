// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

// Caller is who waits for the answer to a message.
type Caller interface {
	// Take claims the caller before its command is decided. It is false when
	// the caller has given up, and then the command is not decided.
	Take() bool
	// Untake takes the claim back: the command will be decided again.
	Untake()
}

// Envelope is a message on its way to an entity.
type Envelope struct {
	// Message is the command, or the signal.
	Message any
	// Signal says that the message is a signal of the runtime.
	Signal bool
	// Caller waits for the answer; nil when nobody does.
	Caller Caller

	next *Envelope
}

// Queue is a first-in, first-out list of envelopes. An envelope is in at most
// one queue. The zero value is empty.
type Queue struct {
	head, tail *Envelope
	n          int
}

// Len returns how many envelopes are in the queue.
func (q *Queue) Len() int { return q.n }

// Push appends an envelope.
func (q *Queue) Push(e *Envelope) {
	e.next = nil
	if q.tail == nil {
		q.head = e
	} else {
		q.tail.next = e
	}
	q.tail = e
	q.n++
}

// Pop removes the first envelope; it returns nil when there is none.
func (q *Queue) Pop() *Envelope {
	e := q.head
	if e == nil {
		return nil
	}
	q.head = e.next
	if q.head == nil {
		q.tail = nil
	}
	e.next = nil
	q.n--
	return e
}

// Prepend moves everything in front to the front of the queue, in order.
func (q *Queue) Prepend(front *Queue) {
	if front.n == 0 {
		return
	}
	if q.n == 0 {
		*q = *front
	} else {
		front.tail.next = q.head
		q.head = front.head
		q.n += front.n
	}
	*front = Queue{}
}

// Append moves everything in back behind what is in the queue, in order.
func (q *Queue) Append(back *Queue) {
	back.Prepend(q)
	*q, *back = *back, Queue{}
}
