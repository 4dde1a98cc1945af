// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
)

const askStripes = 64

// asks are the commands that were sent to other nodes and whose answers are awaited here.
type asks struct {
	last    atomic.Uint64
	stripes [askStripes]askStripe
}

type askStripe struct {
	mu   sync.Mutex
	open map[uint64]ask
}

// ask is one of them.
type ask struct {
	message eventsourcing.Message
	site    *site
	to      identity.Node
}

// add returns the number under which the answer is to come.
func (a *asks) add(open ask) uint64 {
	id := a.last.Add(1)
	s := &a.stripes[id%askStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[uint64]ask{}
	}
	s.open[id] = open
	return id
}

// take returns the one of a number, which is awaited no more then.
func (a *asks) take(id uint64) (ask, bool) {
	s := &a.stripes[id%askStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	open, ok := s.open[id]
	delete(s.open, id)
	return open, ok
}

// sweep forgets the asks of a site whose callers have left: the command or the answer was lost, or the answer comes too late.
func (a *asks) sweep(s *site) int {
	return len(a.takeAll(func(at *ask) bool { return at.site == s && at.message.Context().Err() != nil }))
}

// takeAll returns all of some kind, which are awaited no more then.
func (a *asks) takeAll(which func(*ask) bool) (taken []ask) {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		for id, open := range s.open { // the order does not matter
			if which(&open) {
				delete(s.open, id)
				taken = append(taken, open)
			}
		}
		s.mu.Unlock()
	}
	return taken
}

// len returns how many answers are awaited.
func (a *asks) len() (n int) {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		n += len(s.open)
		s.mu.Unlock()
	}
	return n
}
