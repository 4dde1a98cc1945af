// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package inbox holds the messages for an instance of a singleton or of a group.
package inbox

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/transport"
)

// The first byte of a reply. The numbers never change.
const (
	Answered  byte = 0 // the payload follows
	Refused   byte = 1 // a text follows
	NotHosted byte = 2
	Busy      byte = 3
)

const (
	maxBytes = 16 << 20
	// Cost is the charge for a message in addition to its payload.
	Cost = 256
)

// Inbox holds the messages for an instance. Messages of one sender arrive in
// order. Its methods are safe for concurrent use.
type Inbox struct {
	limit   int
	reports bool
	account *loop.Account
	ready   loop.Signal

	mu      sync.Mutex
	queue   []*Delivery
	bytes   int                        // of the queue
	taken   map[*transport.Request]int // requests that were received and not Answered, with their bytes
	open    int                        // bytes of the taken requests
	charged int                        // bytes of the account
	closed  bool
}

// New returns an inbox for at most limit messages. With reports, an answer has the number of pending
// messages after the status.
func New(account *loop.Account, limit int, reports bool) *Inbox {
	return &Inbox{account: account, limit: limit, reports: reports, ready: loop.NewSignal(), taken: map[*transport.Request]int{}}
}

// charge charges the account for the queue and the requests that were not Answered. The caller
// holds the lock.
func (b *Inbox) charge() {
	held := b.bytes + b.open + (len(b.queue)+len(b.taken))*Cost
	b.account.Hold(held - b.charged)
	b.charged = held
}

// Delivery is a message for an instance. An unanswered request counts towards the limit of the inbox.
type Delivery struct {
	// From is the node of the sender.
	From    identity.Node
	Payload []byte

	request *transport.Request
	inbox   *Inbox
}

// Asked reports whether the sender waits for a reply.
func (d *Delivery) Asked() bool { return d.request != nil }

// Reply answers a request. It does nothing for other messages and for Answered requests. The error
// is one of the transport's Send.
func (d *Delivery) Reply(payload []byte) error { return d.answer(Answered, payload) }

// Refuse answers a request with an error that matches ErrRefused and has this text.
func (d *Delivery) Refuse(text string) error { return d.answer(Refused, []byte(text)) }

func (d *Delivery) answer(status byte, payload []byte) error {
	if d.request == nil {
		return nil
	}
	if d.inbox != nil {
		d.inbox.settle(d.request)
	}
	return d.request.Reply(append(d.head(status), payload...))
}

func (d *Delivery) head(status byte) []byte {
	if d.inbox == nil || !d.inbox.reports || status != Answered {
		return []byte{status}
	}
	return binary.AppendUvarint([]byte{status}, uint64(d.inbox.Pending())) //nolint:gosec // not negative
}

// Answer answers a request that no instance receives with a status.
func (d *Delivery) Answer(status byte) { _ = d.answer(status, nil) } // the sender may be gone

// Pending returns the number of messages that wait and of requests that are not answered.
func (b *Inbox) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) + len(b.taken)
}

// NewDelivery returns a delivery. The request is nil if the sender does not wait for a reply.
func NewDelivery(from identity.Node, payload []byte, request *transport.Request) *Delivery {
	return &Delivery{From: from, Payload: payload, request: request}
}

// Put adds a message to the queue and returns Answered. If it cannot add the message, it returns
// the status for the reply.
func (b *Inbox) Put(d *Delivery) byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, bytes := len(b.queue), b.bytes+len(d.Payload)
	if d.request != nil {
		waiting, bytes = waiting+len(b.taken), bytes+b.open
	}
	switch {
	case b.closed:
		return NotHosted
	case waiting >= b.limit, bytes > maxBytes, !b.account.Take(len(d.Payload) + Cost):
		return Busy
	}
	b.charged += len(d.Payload) + Cost
	d.inbox = b
	b.queue = append(b.queue, d)
	b.bytes += len(d.Payload)
	b.ready.Set()
	return Answered
}

// Receive returns the next message. The error is the cause of ctx, which should be the context of
// the instance or derived from it.
func (b *Inbox) Receive(ctx context.Context) (*Delivery, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b.mu.Lock()
		if len(b.queue) > 0 {
			d := b.queue[0]
			b.queue[0] = nil
			b.queue = b.queue[1:]
			b.bytes -= len(d.Payload)
			if d.request != nil {
				b.taken[d.request] = len(d.Payload)
				b.open += len(d.Payload)
			}
			b.charge()
			if len(b.queue) > 0 {
				b.ready.Set() // for another receiver
			}
			b.mu.Unlock()
			return d, nil
		}
		b.mu.Unlock()
		select {
		case <-b.ready:
		case <-ctx.Done():
		}
	}
}

// Close rejects further messages. It answers the waiting requests with an error: they are not
// handled.
func (b *Inbox) Close() {
	b.mu.Lock()
	queue := b.queue
	b.queue, b.bytes, b.closed = nil, 0, true
	b.charge()
	b.mu.Unlock()
	for _, d := range queue {
		_ = d.answer(NotHosted, nil) // the sender may be gone
	}
}

func (b *Inbox) settle(r *transport.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open -= b.taken[r]
	delete(b.taken, r)
	b.charge()
}

// Forget removes the unanswered requests of a node that is gone. They no longer count towards the
// limits of the inbox.
func (b *Inbox) Forget(asker identity.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, size := range b.taken { // the order does not matter
		if r.From == asker {
			b.open -= size
			delete(b.taken, r)
		}
	}
	b.charge()
}

// End refuses the requests that the ended instance received and did not answer.
func (b *Inbox) End() {
	b.mu.Lock()
	taken := slices.Collect(maps.Keys(b.taken)) // the order does not matter
	b.taken, b.open = nil, 0
	b.charge()
	b.mu.Unlock()
	for _, r := range taken {
		_ = r.Reply(append([]byte{Refused}, "the instance has ended"...)) // the sender may be gone
	}
}
