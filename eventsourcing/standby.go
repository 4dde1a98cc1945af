// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/journal"
)

// standby holds the states of entities that run on other nodes, and applies their events as the
// journal stores them. When such an entity starts on this node, its recovery reads only the events
// that the standby has not applied. A standby has no way to write: it is no entity.
//
// The journal remains the judge: a held state is only the beginning of a recovery. If the journal
// contradicts it, the recovery begins from nothing.
type standby struct {
	host   *host
	follow hosting.Follow
	log    *slog.Logger
	loads  pool // apart from the recoveries of this node, so that these do not wait

	mu      sync.Mutex
	held    map[string]*held // by ID of the entity
	order   *list.List       // of *held, the entity with the newest event last
	offset  journal.Offset   // all events up to here are applied
	current time.Time        // when offset was the end of the journal, zero for never
}

// held is the state of an entity.
type held struct {
	folding

	id      string
	place   *list.Element
	newest  uint64 // the highest event that the standby has seen
	loading bool   // a job reads the state
}

const (
	// standbyCheck is the longest time between two looks at the end of the journal.
	standbyCheck = 500 * time.Millisecond
	// standbyLoads is how many states are read at a time.
	standbyLoads = 4
	// standbyPause is the pause after a failed read of the journal.
	standbyPause = time.Second
)

// newStandby returns the standby of a host. The error matches ErrInvalid if the type or the journal does
// not permit it.
func newStandby(h *host, f hosting.Follow) (*standby, error) {
	_, ok := journal.As[journal.Querier](h.journal)
	switch {
	case !ok || h.model.events == nil:
		return nil, fmt.Errorf("%w: a standby needs Type.Events and a journal with queries", ErrInvalid)
	case h.opts.Recovery != (Recovery{}) || h.opts.RecoveryOf != nil:
		return nil, fmt.Errorf("%w: HostOptions.Recovery or RecoveryOf limits the events, but a standby needs all", ErrInvalid)
	case h.rt.cfg.ReplayFilter.Mode != journal.FilterFail:
		return nil, fmt.Errorf("%w: Config.ReplayFilter permits several writers, but a standby needs histories with one", ErrInvalid)
	}
	s := &standby{
		host: h, follow: f, held: map[string]*held{}, order: list.New(),
		log: h.rt.log.With(slog.String("type", h.model.name)),
	}
	s.loads.limit = standbyLoads
	return s, nil
}

// Follow implements hosting.Host.
func (h shardedHost) Follow(ctx context.Context) {
	if s := h.standby; s != nil {
		querier, _ := journal.As[journal.Querier](h.journal) // newStandby has checked it
		s.run(ctx, querier)
		s.loads.wait()
	}
}

// run follows the journal until ctx ends. It begins at the present end of the journal.
func (s *standby) run(ctx context.Context, q journal.Querier) {
	failed := false
	retry := func(err error) {
		if ctx.Err() != nil {
			return
		}
		if !failed {
			s.log.WarnContext(ctx, "the standby can't read the journal, it tries again", slog.Any("error", err))
		}
		failed = true
		pause := time.NewTimer(standbyPause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	var criteria journal.Criteria
	if s.host.model.naming.to == nil {
		criteria.Types = []string{s.host.model.name}
	}
	var after journal.Offset
	for started := false; ctx.Err() == nil; {
		if !started {
			end, err := q.End(ctx)
			if err != nil {
				retry(err)
				continue
			}
			after, started = end, true
		}
		asked := time.Now()
		page, err := q.Query(ctx, criteria, after)
		if err != nil {
			retry(err)
			continue
		}
		failed = false
		for i := range page.Events {
			s.apply(ctx, &page.Events[i])
		}
		after = page.Next
		s.mu.Lock()
		s.offset = after
		if !page.More {
			s.current = asked
		}
		s.mu.Unlock()
		if page.More {
			continue
		}
		await, cancel := context.WithTimeout(ctx, standbyCheck)
		err = q.Await(await, after)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			retry(err)
		}
	}
}

// apply applies an event to the state of its entity. If the state is not held or lacks an event, it
// is read in the background.
func (s *standby) apply(ctx context.Context, ev *journal.Envelope) {
	id, ok := s.host.model.naming.entityID(ev.ID)
	if !ok {
		return
	}
	if !s.follow.Covers(id) || s.host.find(id) != nil {
		s.drop(id)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	if h == nil {
		h = &held{folding: newFolding(s.host, id, ev.ID), id: id}
		h.place = s.order.PushBack(h)
		s.held[id] = h
		s.evict()
		if ev.SequenceNr == 1 {
			if err := catchPanic(ev.ID, h.start); err != nil {
				s.remove(h, err)
				return
			}
		}
	}
	s.order.MoveToBack(h.place)
	h.newest = max(h.newest, ev.SequenceNr)
	switch {
	case h.loading || ev.SequenceNr <= h.seqNr:
	case ev.SequenceNr == h.seqNr+1 && h.into.state != nil:
		err := catchPanic(ev.ID, func() error {
			_, err := h.applyStored(nil, ev.Event)
			return err
		})
		if err != nil {
			s.remove(h, err)
		}
	default:
		s.load(ctx, h)
	}
}

// load reads the state of an entity, or the events that it lacks, in the background. mu is locked.
func (s *standby) load(ctx context.Context, h *held) {
	h.loading = true
	f := h.folding
	s.loads.do(func() {
		err := ctx.Err()
		switch {
		case err != nil:
		case f.into.state == nil:
			err = f.run(ctx)
		default: // the journal has a fence, which no query returns
			err = catchPanic(f.pid, func() error { return f.continues(ctx) })
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held[h.id] != h {
			return // it was taken or dropped
		}
		before := h.seqNr
		h.loading, h.folding = false, f
		switch {
		case err != nil:
			s.remove(h, err)
		case h.seqNr >= h.newest:
		case h.seqNr > before: // events came during the read
			s.load(ctx, h)
		default:
			s.remove(h, &journal.GapError{ID: h.pid, Want: h.newest})
		}
	})
}

// evict removes the entities with the oldest events above the limit. mu is locked.
func (s *standby) evict() {
	for s.order.Len() > s.follow.Limit {
		s.remove(s.order.Front().Value.(*held), nil) //nolint:errcheck,forcetypeassert // the list holds nothing else
	}
}

// remove removes the state of an entity after an error, nil for none. mu is locked.
func (s *standby) remove(h *held, err error) {
	delete(s.held, h.id)
	s.order.Remove(h.place)
	if err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("the standby can't compute the state of an entity", slog.String("persistence_id", h.pid), slog.Any("error", err))
	}
}

func (s *standby) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[id]; h != nil {
		s.remove(h, nil)
	}
}

// take removes the state of an entity and returns it, nil if it is not held.
func (s *standby) take(id string) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	if h == nil {
		return nil
	}
	s.remove(h, nil)
	if h.loading || h.into.state == nil {
		return nil
	}
	return h
}

// fromStandby computes the state like run. It begins with the state that the standby holds.
func (f *folding) fromStandby(ctx context.Context, host *host) error {
	s := host.standby
	if s == nil || f.opts != (Recovery{}) {
		return f.run(ctx)
	}
	h := s.take(f.id)
	if h == nil {
		return f.run(ctx)
	}
	warm := *f
	warm.into, warm.seqNr, warm.time, warm.writer, warm.prepared = h.into, h.seqNr, h.time, h.writer, true
	err := catchPanic(f.pid, func() error {
		if err := warm.confirm(ctx); err != nil {
			return err
		}
		return warm.continues(ctx)
	})
	if err != nil {
		return f.run(ctx) // which reports a failure of the journal
	}
	*f = warm
	return nil
}

// confirm returns an error unless the journal has the last event that was applied. A server that lost
// its last commits may have stored another event under the same number.
func (f *folding) confirm(ctx context.Context) error {
	for ev, err := range f.store.journal.Replay(ctx, f.pid, f.seqNr, f.seqNr) {
		if err != nil {
			return err
		}
		if ev.SequenceNr == f.seqNr && ev.Writer == f.writer && ev.Time.Equal(f.time) {
			return nil
		}
	}
	return &journal.GapError{ID: f.pid, Want: f.seqNr}
}

// Followed implements hosting.Host.
func (h shardedHost) Followed() (journal.Offset, int) {
	s := h.standby
	if s == nil {
		return "", 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset, len(s.held)
}

// Unfollow implements hosting.Host.
func (h shardedHost) Unfollow() {
	s := h.standby
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, held := range s.held {
		if !s.follow.Covers(id) {
			s.remove(held, nil)
		}
	}
}

// Peek implements hosting.Host.
func (h shardedHost) Peek(id string, within time.Duration, read func(state any)) bool {
	s := h.standby
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[id]
	if held == nil || held.loading || held.into.state == nil || time.Since(s.current) > within {
		return false
	}
	read(held.into.state)
	return true
}
