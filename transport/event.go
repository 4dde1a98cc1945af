// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync"

	"github.com/refold-io/refold/identity"
)

// Event is one of Gap, QuarantinedBy and Connection.
type Event interface{ isEvent() }

// Gap says that frames of a link are missing: some messages were lost.
type Gap struct {
	From identity.Node
	Lane Lane
	// Frames is how many; each one held at least a part of a message.
	Frames uint64
}

// QuarantinedBy says that a node claims to have quarantined this incarnation.
type QuarantinedBy struct{ From identity.Node }

// Connection says that the carrier is connected again, or why it is not.
type Connection struct{ Err error }

func (Gap) isEvent()           {}
func (QuarantinedBy) isEvent() {}
func (Connection) isEvent()    {}

const maxEvents = 1024

// events is a bounded queue between the carrier and whoever listens.
type events struct {
	tell func(Event)
	news chan struct{}

	mu    sync.Mutex
	queue []Event
	lost  uint64
}

func newEvents(tell func(Event)) *events {
	return &events{tell: tell, news: make(chan struct{}, 1)}
}

func (e *events) add(event Event) {
	if e.tell == nil {
		return
	}
	e.mu.Lock()
	if len(e.queue) < maxEvents {
		e.queue = append(e.queue, event)
	} else {
		e.lost++
	}
	e.mu.Unlock()
	signal(e.news)
}

func (e *events) dropped() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

// run tells events until done is closed.
func (e *events) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-e.news:
		}
		e.mu.Lock()
		queue := e.queue
		e.queue = nil
		e.mu.Unlock()
		for _, event := range queue {
			e.tell(event)
		}
	}
}

// signal wakes whoever waits for a channel with a buffer of one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
