// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"

	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/replication"
)

// Limits of the input of the loop.
const (
	MaxWaiting      = maxWaiting
	MaxWaitingCount = maxWaitingCount
	MaxWaitingItems = maxWaitingItems
	ShareAt         = shareAt
)

// Inbox is the input of the loop.
type Inbox struct{ *inbox }

func NewInbox() Inbox { return Inbox{newInbox(nil)} }

// Receive adds a packet.
func (b Inbox) Receive(ctx context.Context, payload []byte, bulk bool) {
	waiting := b.packets
	if bulk {
		waiting = b.bulk
	}
	_ = waiting.Receive(ctx, 0, len(payload), replication.Packet{Payload: payload})
}

// Take returns the number of packets that the loop takes at a time.
func (b Inbox) Take(bulk bool) int {
	if !bulk {
		return len(b.take(waiting{}).packets)
	}
	if _, found, _ := b.takeBulk(); found {
		return 1
	}
	return 0
}

// Ask adds n requests. It reports whether the inbox has refused one of them.
func (b Inbox) Ask(n int) (crowded bool) {
	for range n {
		if b.items.Offer(0, 0, item{call: &call{}}) != nil {
			return true
		}
	}
	return false
}

func (b Inbox) Close() { b.close() }

// Subscriber is the queue of a loop over Subscribe.
type Subscriber struct{ *subscriber }

func NewSubscriber() Subscriber {
	return Subscriber{&subscriber{ready: loop.NewSignal(), latest: map[string]pendingChange{}}}
}

func (s Subscriber) Put(key string, kind ChangeKind, isNew bool) {
	s.put(Change{Key: key, Kind: kind}, isNew)
}

// Waiting returns the number of pending changes and the length of their order.
func (s Subscriber) Waiting() (changes, ordered int) { return len(s.latest), len(s.order) }

func (s Subscriber) Take() (c Change, found, over bool) { return s.take() }

// Break makes the next turn panic.
func (r *Replicator) Break() {
	r.turn <- struct{}{}
	defer r.releaseTurn()
	r.machine = nil
}
