// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"iter"
	"log/slog"
	"sync"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/replication"
)

// Subscribe yields what the keys of a pattern hold when the loop over it begins, and then each change, until ctx or
// the replicator ends. Changes are told each Config.NotifyInterval, the last one of each key; Flush does it at once. A loop that is
// slow gets the last one of each key as well, so nothing but what was replaced is lost, and nothing piles up. What compares equal
// to what was told before is not told again.
//
// A loop ends without a word: if ctx has not ended, Err says whether the replicator has, and why. One over a pattern that no key can match, such as
// Key("visits*").Any(), ends at once, with a line in the log.
func (r *Replicator) Subscribe(ctx context.Context, of Pattern) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if err := of.check(); err != nil {
			r.log.ErrorContext(ctx, "nothing can match what is subscribed to", slog.String("pattern", of.String()), slog.Any("error", err))
			return
		}
		s := &subscriber{news: make(chan struct{}, 1), latest: map[string]Change{}}
		nr, ok := r.subs.add(s)
		if !ok {
			return
		}
		defer r.subs.remove(nr)
		r.inbox.add(item{in: replication.Subscribe{Nr: nr, Key: of.text, Prefix: of.prefix}})
		defer r.inbox.add(item{in: replication.Unsubscribe{Nr: nr}})
		for {
			c, found, over := s.take()
			switch {
			case ctx.Err() != nil:
				return
			case found:
				if !yield(c) {
					return
				}
				continue
			case over:
				return
			}
			select {
			case <-s.news:
			case <-ctx.Done():
				return
			}
		}
	}
}

// subscriber is a loop over Subscribe.
type subscriber struct {
	news chan struct{}

	mu     sync.Mutex
	order  []string // of the keys in latest, as they came first
	latest map[string]Change
	over   bool
}

func (s *subscriber) put(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.latest[c.Key]; !waits {
		s.order = append(s.order, c.Key)
	}
	s.latest[c.Key] = c
	s.wake()
}

// take returns what has waited longest, and whether nothing follows.
func (s *subscriber) take() (c Change, found, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		s.order = nil
		return c, false, s.over
	}
	key := s.order[0]
	s.order = s.order[1:]
	c = s.latest[key]
	delete(s.latest, key)
	return c, true, s.over
}

func (s *subscriber) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.wake()
}

func (s *subscriber) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// subscribers are all loops over Subscribe.
type subscribers struct {
	mu   sync.Mutex
	last uint64
	byNr map[uint64]*subscriber
	over bool
}

func (s *subscribers) add(o *subscriber) (nr uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, false
	}
	if s.byNr == nil {
		s.byNr = map[uint64]*subscriber{}
	}
	s.last++
	s.byNr[s.last] = o
	return s.last, true
}

func (s *subscribers) remove(nr uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byNr, nr)
}

func (s *subscribers) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byNr)
}

// tell passes events on.
func (s *subscribers) tell(events []replication.Event, types *crdt.Types) {
	if len(events) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range events {
		e := &events[i]
		if o := s.byNr[e.Nr]; o != nil {
			o.put(Change{Key: e.Key, Kind: ChangeKind(e.Kind), value: e.Value, types: types})
		}
	}
}

// close ends all loops once they have got what there is.
func (s *subscribers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, o := range s.byNr { // each has a queue of its own
		o.end()
	}
}
