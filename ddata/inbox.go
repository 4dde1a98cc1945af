// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"sync"

	"github.com/refold-io/refold/ddata/replication"
	"github.com/refold-io/refold/internal/node/replica"
)

// maxWaiting is how many bytes of messages may wait for the loop, maxWaitingCount how many packets.
// The handler of one more waits, and so does what its sender sends on that lane.
const (
	maxWaiting      = 16 << 20
	maxWaitingCount = 8192
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
	waiting waiting
	bytes   int
	room    chan struct{} // closed when there is room, if somebody waits
	closed  bool
}

// waiting is what has come since the loop has looked.
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
	b.waiting.items = append(b.waiting.items, it)
	b.mu.Unlock()
	b.wake()
	return true
}

// idle reports whether nothing waits.
func (b *inbox) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed && b.waiting.members == nil && len(b.waiting.packets)+len(b.waiting.items) == 0
}

// see replaces who is in the cluster.
func (b *inbox) see(m *replication.Members) {
	b.mu.Lock()
	b.waiting.members = m
	b.mu.Unlock()
	b.wake()
}

// receive adds a packet. It waits while there is no room.
func (b *inbox) receive(ctx context.Context, p replica.Packet) {
	for {
		b.mu.Lock()
		switch {
		case b.closed:
			b.mu.Unlock()
			return
		case b.bytes == 0, b.bytes+len(p.Payload) <= maxWaiting && len(b.waiting.packets) < maxWaitingCount:
			b.bytes += len(p.Payload)
			b.waiting.packets = append(b.waiting.packets, p)
			b.mu.Unlock()
			b.wake()
			return
		}
		if b.room == nil {
			b.room = make(chan struct{})
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return
		}
	}
}

// take returns all that waits. What it was given before is used again.
func (b *inbox) take(spare waiting) waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiting
	b.waiting = waiting{packets: reuse(spare.packets), items: reuse(spare.items)}
	b.makeRoom()
	return w
}

// reuse returns a slice without elements that takes the memory of one that is no longer needed.
func reuse[E any](s []E) []E {
	if cap(s) > maxWaitingCount {
		return nil
	}
	clear(s)
	return s[:0]
}

func (b *inbox) makeRoom() {
	b.bytes = 0
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// close ends it, and returns what the loop has not taken.
func (b *inbox) close() waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.makeRoom()
	w := b.waiting
	b.waiting = waiting{}
	return w
}

func (b *inbox) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}
