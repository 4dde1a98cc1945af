// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

// Caller waits for the reply to a message.
type Caller interface {
	// Take claims the caller before its command is decided. If the caller has stopped waiting, Take
	// returns false, and the command is not decided.
	Take() bool
	// Untake reverts Take: the command will be decided again.
	Untake()
}

// Envelope is a message to an entity.
type Envelope struct {
	// Message is the command or the signal.
	Message any
	// Signal reports whether the message is a signal of the runtime.
	Signal bool
	// Caller waits for the reply; nil if none is expected.
	Caller Caller

	conflicts uint8 // how often its write has conflicted, with Config.Shared
	next      *Envelope
}

// Queue is a first-in, first-out list of envelopes. An envelope is in at most one queue. The zero
// value is empty.
type Queue struct {
	head, tail *Envelope
	n          int
}

// Len returns the number of envelopes.
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

// Pop removes and returns the first envelope; nil if the queue is empty.
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

// Prepend moves all envelopes of front to the front of q, in order.
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
