// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"sync"

	"github.com/refold-io/refold/internal/node/shards"
)

// What may wait for the loop: bytes of frames and how many, and commands of this node. The handler of a frame more waits, and so
// does what its sender sends on that lane; a command more is refused.
const (
	maxWaitingBytes  = 16 << 20
	maxWaitingFrames = 8192
)

// item is something for the loop: one of these.
type item struct {
	command *waiting
	frame   *shards.Received // that is no command
	in      shards.Input     // anything else for the machine
	gone    string           // an entity that has left memory
	asked   bool             // it was asked to, or has asked
	do      func()
}

// inbox is what waits for the loop.
type inbox struct {
	news chan struct{}
	most int

	mu       sync.Mutex
	items    []item
	members  bool // have changed
	commands int
	frames   int
	bytes    int
	room     chan struct{} // closed when there is room, if somebody waits
	closed   bool
}

func newInbox(most int) *inbox { return &inbox{news: make(chan struct{}, 1), most: most} }

// add adds something that there is not much of, unless the loop has ended.
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

// send adds a command of this node, for a shard behind a gate.
func (b *inbox) send(g *gate, w *waiting) error {
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return ErrStopped
	case b.commands >= b.most:
		b.mu.Unlock()
		return fmt.Errorf("%w: %d for this node", ErrBuffersFull, b.most)
	}
	b.commands++
	b.items = append(b.items, item{command: w})
	g.lines[own] = append(g.lines[own], w)
	b.mu.Unlock()
	b.wake()
	return nil
}

// receive adds a frame, which may be a command for a shard behind a gate. It waits while there is no room, and is false if the loop has ended, or ctx.
func (b *inbox) receive(ctx context.Context, it item, g *gate) bool {
	frame := it.frame
	if g != nil {
		frame = it.command.frame
	}
	size := len(frame.Data)
	for {
		b.mu.Lock()
		switch {
		case b.closed:
			b.mu.Unlock()
			return false
		case b.frames == 0, b.bytes+size <= maxWaitingBytes && b.frames < maxWaitingFrames:
			b.frames++
			b.bytes += size
			b.items = append(b.items, it)
			if g != nil {
				g.lines[others] = append(g.lines[others], it.command)
			}
			b.mu.Unlock()
			b.wake()
			return true
		}
		if b.room == nil {
			b.room = make(chan struct{})
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// see notes that the members have changed.
func (b *inbox) see() {
	b.mu.Lock()
	b.members = true
	b.mu.Unlock()
	b.wake()
}

// take returns all that waits. The slice that it was given before is used again.
func (b *inbox) take(spare []item) (items []item, members bool) {
	if cap(spare) > maxWaitingFrames {
		spare = nil
	}
	clear(spare)
	b.mu.Lock()
	defer b.mu.Unlock()
	items, members = b.items, b.members
	b.items, b.members = spare[:0], false
	b.makeRoom()
	return items, members
}

func (b *inbox) makeRoom() {
	b.commands, b.frames, b.bytes = 0, 0, 0
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// close ends it, and returns what the loop has not taken.
func (b *inbox) close() []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.makeRoom()
	items := b.items
	b.items = nil
	return items
}

func (b *inbox) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}
