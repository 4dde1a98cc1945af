// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// outgoing is the sender's end of a link.
type outgoing struct {
	to   identity.Node
	lane Lane
	peer *peer // nil if it is a bare name

	queue  []Message
	head   int  // of the queue
	gone   int  // bytes of the first message that were sent already
	queued int  // cost of the queue
	total  *int // of all links on the lane

	epoch, number uint64
	offset, limit uint64 // in bytes of credit: used, and granted

	asked   bool // for credit, in the first frame
	ready   bool // stands in Machine.ready
	waits   bool // stands in Machine.waiting
	probe   bool // has to ask
	probeAt time.Duration
	backoff time.Duration
}

func (o *outgoing) push(msg Message) {
	o.queue = append(o.queue, msg)
	o.queued += cost(len(msg.Payload))
	*o.total += cost(len(msg.Payload))
}

func (o *outgoing) count() int { return len(o.queue) - o.head }

// pop removes the first message.
func (o *outgoing) pop() {
	price := cost(len(o.queue[o.head].Payload))
	o.queued -= price
	*o.total -= price
	o.queue[o.head] = Message{} // not kept alive
	o.gone = 0
	if o.head++; o.head == len(o.queue) {
		if cap(o.queue) > 1024 {
			o.queue = nil // the burst is over
		}
		o.queue, o.head = o.queue[:0], 0
	} else if o.head >= 256 && o.head*2 >= len(o.queue) {
		n := copy(o.queue, o.queue[o.head:])
		clear(o.queue[n:])
		o.queue, o.head = o.queue[:n], 0
	}
}

func (o *outgoing) clear() {
	*o.total -= o.queued
	*o = outgoing{to: o.to, lane: o.lane, ready: o.ready, total: o.total}
}

// affords reports whether there is credit for so many bytes.
func (o *outgoing) affords(n int) bool {
	return !o.lane.Credited() || o.offset+uint64(n) <= o.limit //nolint:gosec // a size
}

// next returns what goes into the frame next: a message, or as much of it as
// there is room for. It takes it off the queue.
func (o *outgoing) next(room int) entry {
	msg := o.queue[o.head]
	payload := msg.Payload[o.gone:]
	part := min(len(payload), room)
	e := entry{Message: msg, rest: uint64(len(payload) - part)} //nolint:gosec // a size
	e.Payload = payload[:part]
	if o.gone > 0 {
		e.Type, e.Kind, e.Correlation, e.Compressed = continuation, 0, 0, false
	}
	if e.rest > 0 {
		o.gone += part
	} else {
		o.pop()
	}
	return e
}
