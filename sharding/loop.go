// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/transport"
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
func (s *site) about(n Shard, in shardcore.Input) {
	e := s.machine.Step(s.now(), in)
	s.narrow(n)
	s.did(e)
	s.widen(n)
}

// step steps the machine.
func (s *site) step(in shardcore.Input) { s.did(s.machine.Step(s.now(), in)) }

// did does what the machine wants done, and what follows from that.
func (s *site) did(e shardcore.Effects) {
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
	s.step(shardcore.Members{Members: in})
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

// What may wait for the loop: bytes of frames and how many, and commands of this node. The handler of a frame more waits, and so
// does what its sender sends on that lane; a command more is refused.
const (
	maxWaitingBytes  = 16 << 20
	maxWaitingFrames = 8192
)

// item is something for the loop: one of these.
type item struct {
	command *waiting
	frame   *shardcore.Received // that is no command
	in      shardcore.Input     // anything else for the machine
	gone    string              // an entity that has left memory
	asked   bool                // it was asked to, or has asked
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

// perform does what the machine wants done, in its order. Gates are narrowed before: nobody may go on after others have been told.
func (s *site) perform(e *shardcore.Effects) {
	if turn := s.machine.Turn(); turn != s.turn {
		s.turn = turn
		s.narrowAll()
	}
	for i := range e.Notes {
		s.note(&e.Notes[i])
	}
	for i := range e.Malformed {
		s.lines.write(s, lineMalformed, slog.LevelWarn, "a message can't be read", slog.String("peer", e.Malformed[i].From.String()), slog.Any("error", e.Malformed[i].Err))
	}
	for i := range e.Refused {
		s.refused(&e.Refused[i])
	}
	for i := range e.Remember {
		s.remember(&e.Remember[i])
	}
	for i := range e.Actions {
		s.act(&e.Actions[i])
	}
	s.consult(e)
	for i := range e.Send {
		s.sendFrame(&e.Send[i])
	}
	if e.Dismissed {
		s.holds = false
		s.tellDismissed()
	}
	if e.Stopped {
		s.hasStopped()
	}
	if s.machine.Registered() {
		s.beReady()
	}
	s.tellRefused()
	s.tellOutage()
	s.tellDrained()
}

// refused tells the sender of a command that it reached nobody.
func (s *site) refused(r *shardcore.Refusal) {
	err := refusal(r.Reason)
	if r.Reason == shardcore.GivenUp {
		s.drop(r.Message.Entity, true, err)
		return
	}
	if p, ok := r.Message.Local.(*parcel); ok {
		s.drop(r.Message.Entity, p.message.Asked(), err)
		p.message.Answer(nil, err)
		return
	}
	s.drop(r.Message.Entity, s.refuse(r.Message.Body, r.Reason), err)
}

// act does something with an entity.
func (s *site) act(a *shardcore.Action) {
	switch a.Kind {
	case shard.Start:
		s.startEntity(a)
	case shard.Pass:
		if p, ok := a.Message.Local.(*parcel); ok {
			s.deliver(p.message)
		} else if m, ok := s.open(a.Entity, a.Message.Body); ok {
			s.deliver(m)
		}
	case shard.Stop:
		if a.Idle {
			s.restEntity(a)
			return
		}
		s.stopEntity(a, s.entities.Drain)
	case shard.Kill:
		s.stopEntity(a, s.entities.Kill)
	}
}

// sendFrame sends a frame to another node. What can't be sent is lost, which the protocol can cope with, and a sender of a command is
// told.
func (s *site) sendFrame(o *shardcore.Outgoing) {
	p, ok := o.Message.Local.(*parcel)
	if !ok {
		if err := s.node.Transport().Send(o.To, transport.Data, transport.Kind(o.Kind), o.Encoded(nil)); err != nil {
			s.lines.write(s, lineUnsent, slog.LevelWarn, "messages can't be sent", slog.String("to", o.To.String()), slog.Any("error", err))
			if o.Message.Body != nil {
				s.drop(o.Message.Entity, s.refuse(o.Message.Body, shardcore.NotHome), err)
			}
		}
		return
	}
	m := p.message
	if p.command.none() {
		var err error
		if p.command, err = s.encode(&m); err != nil {
			s.drop(m.ID(), m.Asked(), err)
			m.Answer(nil, err)
			return
		}
	}
	if !m.Take() {
		return // its caller has left
	}
	number := s.await(o.To, &m)
	if err := s.sent(o.To, o.Encoded(s.appendCommand(&m, &p.command, number)), number, &m); err != nil {
		s.drop(m.ID(), m.Asked(), err)
		m.Answer(nil, err)
	}
}

func (s *site) beReady() {
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
}
