// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync"

	"github.com/refold-io/refold/identity"
)

// Event is one of Gap, QuarantinedBy and Connection.
type Event interface{ isEvent() }

// Gap reports that frames of a link are missing: some messages were lost.
type Gap struct {
	From identity.Node
	Lane Lane
	// Frames is the number of missing frames. Each held at least a part of a message.
	Frames uint64
}

// QuarantinedBy reports that a node has quarantined this incarnation, according to that node.
type QuarantinedBy struct{ From identity.Node }

// Connection reports that the carrier is connected again, with a nil error, or the reason why it is
// not.
type Connection struct{ Err error }

func (Gap) isEvent()           {}
func (QuarantinedBy) isEvent() {}
func (Connection) isEvent()    {}

const maxEvents = 1024

// events is a bounded queue between the carrier and OnEvent.
type events struct {
	handle func(Event)
	wakeUp chan struct{}

	mu    sync.Mutex
	queue []Event
	lost  uint64
}

func newEvents(tell func(Event)) *events {
	return &events{handle: tell, wakeUp: make(chan struct{}, 1)}
}

func (e *events) add(event Event) {
	if e.handle == nil {
		return
	}
	e.mu.Lock()
	if len(e.queue) < maxEvents {
		e.queue = append(e.queue, event)
	} else {
		e.lost++
	}
	e.mu.Unlock()
	signal(e.wakeUp)
}

func (e *events) dropped() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

// run calls the handler until done is closed.
func (e *events) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-e.wakeUp:
		}
		e.mu.Lock()
		queue := e.queue
		e.queue = nil
		e.mu.Unlock()
		for _, event := range queue {
			e.handle(event)
		}
	}
}

// signal wakes the reader of a channel with a buffer of one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
