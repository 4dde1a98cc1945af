// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"log/slog"

	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/transport"
)

// perform does what the machine wants done, in its order. Gates are narrowed before: nobody may go on after others have been told.
func (s *site) perform(e *shards.Effects) {
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
func (s *site) refused(r *shards.Refusal) {
	err := refusal(r.Reason)
	if r.Reason == shards.GivenUp {
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
func (s *site) act(a *shards.Action) {
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
func (s *site) sendFrame(o *shards.Outgoing) {
	p, ok := o.Message.Local.(*parcel)
	if !ok {
		if err := s.node.Transport().Send(o.To, transport.Data, transport.Kind(o.Kind), o.Encoded(nil)); err != nil {
			s.lines.write(s, lineUnsent, slog.LevelWarn, "messages can't be sent", slog.String("to", o.To.String()), slog.Any("error", err))
			if o.Message.Body != nil {
				s.drop(o.Message.Entity, s.refuse(o.Message.Body, shards.NotHome), err)
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
