// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

// maxInboxBytes is how many bytes may wait for an instance.
const maxInboxBytes = 16 << 20

// Inbox is what proxies have sent to an instance. Messages of one sender come in order. Its methods are safe for concurrent
// use.
type Inbox struct {
	limit int
	news  chan struct{}

	mu     sync.Mutex
	queue  []*Delivery
	bytes  int                        // of the queue
	taken  map[*transport.Request]int // questions that were not answered yet, and their bytes
	open   int                        // bytes of those
	closed bool
}

// Delivery is a message of a proxy. If it was asked it has to be answered, by Reply or Refuse, at any time while the instance runs:
// until then it takes up room that Singleton.MaxInbox has.
type Delivery struct {
	// From is the node of the proxy.
	From    identity.Node
	Payload []byte

	request *transport.Request
	inbox   *Inbox
}

// Asked reports whether somebody waits for an answer.
func (d *Delivery) Asked() bool { return d.request != nil }

// Reply answers a question. It does nothing if there was none, or it was answered. An error is one of the transport's
// Send.
func (d *Delivery) Reply(payload []byte) error { return d.answer(answered, payload) }

// Refuse answers a question with an error, which matches ErrRefused and has this text.
func (d *Delivery) Refuse(text string) error { return d.answer(refused, []byte(text)) }

func (d *Delivery) answer(status byte, payload []byte) error {
	if d.request == nil {
		return nil
	}
	if d.inbox != nil {
		d.inbox.settle(d.request)
	}
	return d.request.Reply(append([]byte{status}, payload...))
}

func newInbox(limit int) *Inbox {
	return &Inbox{limit: limit, news: make(chan struct{}, 1), taken: map[*transport.Request]int{}}
}

// put takes a message. It returns what became of it.
func (b *Inbox) put(d *Delivery) byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, bytes := len(b.queue), b.bytes+len(d.Payload)
	if d.request != nil {
		waiting, bytes = waiting+len(b.taken), bytes+b.open
	}
	switch {
	case b.closed:
		return notHosted
	case waiting >= b.limit || bytes > maxInboxBytes:
		return busy
	}
	d.inbox = b
	b.queue = append(b.queue, d)
	b.bytes += len(d.Payload)
	wake(b.news)
	return answered
}

// Receive returns the next message. The error is the cause of ctx, which should be that of Singleton.Run or one derived from it.
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
			if len(b.queue) > 0 {
				wake(b.news) // for another who waits
			}
			b.mu.Unlock()
			return d, nil
		}
		b.mu.Unlock()
		select {
		case <-b.news:
		case <-ctx.Done():
		}
	}
}

// All yields the messages until ctx ends.
func (b *Inbox) All(ctx context.Context) iter.Seq[*Delivery] {
	return func(yield func(*Delivery) bool) {
		for {
			d, err := b.Receive(ctx)
			if err != nil || !yield(d) {
				return
			}
		}
	}
}

// close takes no more messages, and answers those that wait: they are not handled.
func (b *Inbox) close() {
	b.mu.Lock()
	queue := b.queue
	b.queue, b.bytes, b.closed = nil, 0, true
	b.mu.Unlock()
	for _, d := range queue {
		_ = d.answer(notHosted, nil) // the asker may be gone
	}
}

// settle gives back the room of a question.
func (b *Inbox) settle(r *transport.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open -= b.taken[r]
	delete(b.taken, r)
}

// forget gives back the room of what a node has asked that is gone.
func (b *Inbox) forget(asker identity.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, size := range b.taken { // the order does not matter
		if r.From == asker {
			b.open -= size
			delete(b.taken, r)
		}
	}
}

// end answers what the instance has taken and not answered, now that it has ended.
func (b *Inbox) end() {
	b.mu.Lock()
	taken := slices.Collect(maps.Keys(b.taken)) // the order does not matter
	b.taken, b.open = nil, 0
	b.mu.Unlock()
	for _, r := range taken {
		_ = r.Reply(append([]byte{refused}, "the instance has ended"...)) // the asker may be gone
	}
}
