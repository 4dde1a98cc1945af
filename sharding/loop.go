// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// now is the time of the machine.
func (s *site) now() time.Duration { return time.Since(s.start) }

// run handles what comes. When it is over, all else of the site ends.
func (s *site) run() {
	defer s.finish()
	defer s.failed()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare []item
	for !s.over.Load() {
		select {
		case <-s.inbox.news:
		case <-timer.C:
		}
		items, members := s.inbox.take(spare)
		if members {
			s.see()
		}
		for i := range items {
			s.handle(&items[i])
		}
		s.again()
		spare = items
		if now := s.now(); now >= s.machine.Next() {
			s.touchAll()
			if s.machine.Leaving() {
				s.dropGivenUp()
			}
			s.did(s.machine.Tick(s.now()))
		}
		if now := s.now(); now >= s.sweepAt {
			s.sweepAt = now + sweepInterval
			s.dropGivenUp()
			s.unanswered.Add(uint64(s.board.asks.sweep(s))) //nolint:gosec // not negative
		}
		timer.Reset(max(0, min(s.machine.Next(), s.sweepAt)-s.now()))
	}
}

// sweepInterval is how often those are forgotten who have left without an answer.
const sweepInterval = 15 * time.Second

// handle handles one thing.
func (s *site) handle(it *item) {
	switch {
	case it.do != nil:
		it.do()
	case it.gone != "":
		s.hasGone(it.gone, it.asked)
		s.goOn()
	case it.command != nil:
		s.waited(it.command)
	case it.frame != nil:
		s.step(*it.frame)
	case it.in != nil:
		s.step(it.in)
	}
}

// about steps the machine with a command for a shard.
func (s *site) about(n Shard, in shards.Input) {
	e := s.machine.Step(s.now(), in)
	s.narrow(n)
	s.did(e)
	s.widen(n)
}

// step steps the machine.
func (s *site) step(in shards.Input) { s.did(s.machine.Step(s.now(), in)) }

// did does what the machine wants done, and what follows from that.
func (s *site) did(e shards.Effects) {
	s.perform(&e)
	s.goOn()
}

// goOn steps the machine with what follows from what was done.
func (s *site) goOn() {
	for len(s.todo) > 0 {
		in := s.todo[0]
		s.todo = s.todo[1:]
		e := s.machine.Step(s.now(), in)
		s.perform(&e)
	}
	s.seat()
}

// see tells the machine who is in the cluster.
func (s *site) see() {
	state := s.node.State()
	if s.suspended = state.Suspended; s.suspended {
		s.halt()
		return
	}
	s.again()
	var in coordinator.Members
	if !state.Stopped {
		in = coordinator.Members{Members: state.Members, Unreachable: state.Unreachable}
	}
	s.step(shards.Members{Members: in})
	if state.Joined || state.Stopped {
		s.lost(func(n identity.Node) bool { _, member := state.Member(n); return member && !state.Stopped })
	}
}

// lost answers those who wait for what was sent to nodes that are gone.
func (s *site) lost(there func(identity.Node) bool) {
	for _, open := range s.board.asks.takeAll(func(a *ask) bool { return a.site == s && !there(a.to) }) {
		open.message.Answer(nil, fmt.Errorf("%w: %v is gone, and has not answered", eventsourcing.ErrOutcomeUnknown, open.to))
	}
}

// touchAll tells the machine which entities were needed past the loop.
func (s *site) touchAll() {
	for n := range s.opened { // the order does not matter
		var touched []string
		for id, at := range s.gates[n].seats {
			if at.touched.Load() {
				at.touched.Store(false)
				touched = append(touched, id)
			}
		}
		if len(touched) > 0 {
			s.did(s.machine.Touch(s.now(), n, touched))
		}
	}
}

// failed ends the site if the loop was left by a panic: what it knew can't be trusted any more.
func (s *site) failed() {
	if p := recover(); p != nil {
		s.log.ErrorContext(s.base, "the region has failed", slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
		for n := range s.gates {
			g := &s.gates[n]
			g.mu.Lock()
			g.own, g.others = false, false
			g.mu.Unlock()
		}
		for id := range s.residents {
			s.entities.Kill(id)
		}
	}
}

// finish ends all that belongs to the site, and waits for it.
func (s *site) finish() {
	s.board.remove(s)
	for _, it := range s.inbox.close() {
		switch {
		case it.command != nil:
			s.unheard(it.command)
		case it.do != nil:
			it.do()
		}
	}
	s.lost(func(identity.Node) bool { return false })
	s.cancel()
	s.work.Wait()
	if err := s.closeStores(); err != nil {
		s.log.WarnContext(s.base, "a store could not be closed", slog.Any("error", err))
	}
	s.removeHooks()
	close(s.done)
}
