// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"

	"github.com/refold-io/refold/internal/node"
)

// maxInputBytes is how many bytes of messages may wait to be handled.
const maxInputBytes = 64 << 20

// queue is what waits for the loop: messages, of which there are not too many, and what else happened,
// which is never dropped: there is no more of it than was asked for.
type queue struct {
	limit int
	news  chan struct{}

	mu       sync.Mutex
	inputs   []node.Input
	messages int
	bytes    int
}

func newQueue(limit int) *queue { return &queue{limit: limit, news: make(chan struct{}, 1)} }

// add takes what happened.
func (q *queue) add(in node.Input) {
	q.mu.Lock()
	q.inputs = append(q.inputs, in)
	q.mu.Unlock()
	wake(q.news)
}

// receive takes a message, unless there is no room. It reports whether there was.
func (q *queue) receive(in node.Received) bool {
	q.mu.Lock()
	room := q.messages < q.limit && q.bytes+len(in.Data) <= maxInputBytes
	if room {
		q.inputs = append(q.inputs, in)
		q.messages++
		q.bytes += len(in.Data)
	}
	q.mu.Unlock()
	wake(q.news)
	return room
}

// take returns all that waits.
func (q *queue) take() []node.Input {
	q.mu.Lock()
	defer q.mu.Unlock()
	inputs := q.inputs
	q.inputs, q.messages, q.bytes = nil, 0, 0
	return inputs
}

// wake wakes whoever waits for a channel with a buffer of one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
