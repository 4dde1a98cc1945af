// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"sync"

	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
)

// maxWaiting is how many bytes of messages may wait for the loop, maxWaitingCount how many packets, each for those that are bulk and for
// all others. The handler of one more waits, and so does what its sender sends on that lane.
const (
	maxWaiting      = 16 << 20
	maxWaitingCount = 8192
	// maxWaitingItems is how many items may wait for the loop before requests are refused: if a function of a user never returns, nobody takes
	// away what waits, though those who have asked give up.
	maxWaitingItems = 65_536
)

// item is something for the loop: a request, another input, or something to be done.
type item struct {
	call *call
	in   replication.Input
	do   func()
}

// inbox is what waits for the loop.
type inbox struct {
	news chan struct{}

	mu      sync.Mutex
	members *replication.Members
	items   []item
	urgent  queue
	bulk    queue
	closed  bool
}

// queue is the packets that wait, in the order in which they came.
type queue struct {
	packets []replica.Packet
	bytes   int
	room    chan struct{} // closed when there is room, if somebody waits
}

// waiting is what the loop handles at once: all that has come since it has looked, but for bulk.
type waiting struct {
	members *replication.Members
	packets []replica.Packet
	items   []item
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

// add adds something, unless the loop has ended.
func (b *inbox) add(it item) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.items = append(b.items, it)
	b.mu.Unlock()
	b.wake()
	return true
}

// ask adds a request, unless the loop has ended. It is crowded if too much waits already.
func (b *inbox) ask(c *call) (ok, crowded bool) {
	b.mu.Lock()
	if ok, crowded = !b.closed, len(b.items) >= maxWaitingItems; !ok || crowded {
		b.mu.Unlock()
		return ok, crowded
	}
	b.items = append(b.items, item{call: c})
	b.mu.Unlock()
	b.wake()
	return true, false
}

// idle reports whether nothing waits but bulk.
func (b *inbox) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed && b.members == nil && len(b.urgent.packets)+len(b.items) == 0
}

// see replaces who is in the cluster.
func (b *inbox) see(m *replication.Members) {
	b.mu.Lock()
	b.members = m
	b.mu.Unlock()
	b.wake()
}

// receive adds a packet. It waits while there is no room.
func (b *inbox) receive(ctx context.Context, p replica.Packet, bulk bool) {
	q := &b.urgent
	if bulk {
		q = &b.bulk
	}
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return
		}
		room := q.add(p)
		b.mu.Unlock()
		if room == nil {
			b.wake()
			return
		}
		select {
		case <-room:
		case <-ctx.Done():
			return
		}
	}
}

// add adds a packet, or returns what tells when there is room for it.
func (q *queue) add(p replica.Packet) (room <-chan struct{}) {
	if q.bytes > 0 && (q.bytes+len(p.Payload) > maxWaiting || len(q.packets) >= maxWaitingCount) {
		if q.room == nil {
			q.room = make(chan struct{})
		}
		return q.room
	}
	q.bytes += len(p.Payload)
	q.packets = append(q.packets, p)
	return nil
}

// makeRoom says that there is room for as many bytes more.
func (q *queue) makeRoom(bytes int) {
	q.bytes -= bytes
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// take returns all that waits, but for bulk. What it was given before is used again.
func (b *inbox) take(spare waiting) waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := waiting{b.members, b.urgent.packets, b.items}
	b.members, b.urgent.packets, b.items = nil, reuse(spare.packets), reuse(spare.items)
	b.urgent.makeRoom(b.urgent.bytes)
	return w
}

// takeBulk returns the packet of bulk that has waited longest, and whether there are more.
func (b *inbox) takeBulk() (p replica.Packet, found, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := &b.bulk
	if len(q.packets) == 0 {
		return p, false, false
	}
	p, q.packets[0] = q.packets[0], replica.Packet{}
	if q.packets = q.packets[1:]; len(q.packets) == 0 {
		q.packets = nil
	}
	q.makeRoom(len(p.Payload))
	return p, true, len(q.packets) > 0
}

// reuse returns a slice without elements that takes the memory of one that is no longer needed.
func reuse[E any](s []E) []E {
	if cap(s) > maxWaitingCount {
		return nil
	}
	clear(s)
	return s[:0]
}

// close ends it, and returns what the loop has not taken.
func (b *inbox) close() waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	w := waiting{items: b.items}
	b.members, b.items = nil, nil
	for _, q := range []*queue{&b.urgent, &b.bulk} {
		q.packets = nil
		q.makeRoom(q.bytes)
	}
	return w
}

func (b *inbox) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}
