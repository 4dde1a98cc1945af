// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/sharding/allocation"
)

// perform does what the machine wants done, in its order.
func (s *site) perform(e shards.Effects) {
	d := s.d
	for i := range e.Notes {
		s.noted(&e.Notes[i])
	}
	for _, m := range e.Malformed {
		s.violate("sends-what-can-be-read", "a message of %v: %v", m.From, m.Err)
	}
	for _, r := range e.Refused {
		d.refused(s, r)
	}
	for _, r := range e.Remember {
		d.memory.ask(s, r)
	}
	for _, a := range e.Actions {
		s.act(a)
	}
	for _, r := range e.Ended {
		endedRunsNothing(s, r)
	}
	s.consult(&e)
	oneOwner(s)
	misfitsAreRefused(s)
	movingIsNotTold(s, e.Send)
	for i := range e.Send {
		s.send(&e.Send[i])
	}
	if e.Dismissed {
		d.hit("sharding", "dismissed")
		s.holds = false
		if f := s.dismissed; f != nil {
			s.dismissed = nil
			s.after(0, f)
		}
	}
	if e.Stopped {
		s.hasStopped()
	}
	s.wakeUp()
}

func (s *site) hasStopped() {
	s.d.hit("sharding", "region has stopped")
	s.empty = true
	if len(s.entities) > 0 {
		s.violate("stopped-hosts-nothing", "the region has stopped, and %d entities run", len(s.entities))
	}
	if !s.halted || s.leaving {
		s.hasLeft()
	}
	s.after(0, func() {
		s.again()
		s.h.maybeEnd()
	})
}

func (s *site) noted(n *coordinator.Note) {
	s.d.hit("coordinator", n.Kind.String())
	onlyMisfitsAreRefused(s, n)
	if n.Kind == coordinator.Became {
		s.d.hit("coordinator became", n.Phase.String())
		s.d.w.Tell("%v: the coordinator of term %d is %v", s.h.p.Node(), n.Term, n.Phase)
		if s.d.activeAt = 0; n.Phase == coordinator.Active {
			s.d.activeAt = s.d.w.Now()
		}
		if n.Phase == coordinator.Ended {
			s.d.hit("coordinator ended", n.Reason.String())
		}
	}
}

// consult puts the coordinator's questions to the store and to the strategy.
func (s *site) consult(e *shards.Effects) {
	d := s.d
	if e.Load != 0 {
		d.store.load(s, e.Load)
	}
	if e.Save != nil {
		d.store.save(s, *e.Save)
	}
	if e.AddShards != nil {
		d.memory.add(s, *e.AddShards)
	}
	if ask := e.Ask; ask != nil {
		in := coordinator.Placed{ID: ask.ID, Homes: allocation.All(ask.View, ask.Requests, allocation.LeastShards{}.Allocate)}
		if d.odds(20) { // it has failed
			clear(in.Homes)
		}
		s.answerLater(in)
	}
	if ask := e.Rebalance; ask != nil {
		in := coordinator.Rebalanced{ID: ask.ID, Shards: allocation.LeastShards{}.Rebalance(ask.View)}
		if !d.quiet && d.rand.IntN(2) == 0 {
			for n := range shards.Shard(d.plan.Shards) { //nolint:gosec // small
				if d.rand.IntN(5) == 0 {
					in.Shards = append(in.Shards, n)
				}
			}
		}
		s.answerLater(in)
	}
}

// answerLater tells the coordinator something soon.
func (s *site) answerLater(in coordinator.Input) {
	m := s.m
	s.after(s.d.storeDelay(), func() {
		if s.m == m {
			s.step(shards.Answer{Input: in})
		}
	})
}

// send carries a frame to another node.
func (s *site) send(o *shards.Outgoing) {
	if o.To == s.h.p.Node() {
		s.violate("sends-what-can-be-read", "it sends to itself")
	}
	own, command := o.Message.Local.(uint64)
	var body []byte
	if command {
		body = binary.AppendUvarint(nil, own)
	}
	data := o.Encoded(body)
	if o.Kind == shards.KindCoordinator {
		s.says(o.To, data)
	}
	if o.Kind == shards.KindRegion && o.Message.Entity == "" {
		if p, err := region.DecodePacket(data); err == nil && p.Kind == region.Flush {
			s.repeats(said{to: o.To, flush: true, round: p.Instance<<32 | p.ID}, "flush again")
		}
	}
	if o.Message.Entity == "" {
		if !s.h.cut[o.To] {
			s.h.p.Send(o.To, link.Data, link.Kind(o.Kind), data)
		}
		return
	}
	nr := numberOf(o.Message)
	if s.h.cut[o.To] || !s.h.p.Send(o.To, link.Data, link.Kind(o.Kind), data) {
		s.d.refused(s, shards.Refusal{Message: o.Message, Reason: shards.NotHome})
		return
	}
	l := s.d.letter(nr)
	l.at, l.to, l.before = s, s.d.byNode[o.To], s.d.w.Gap(s.h.p.Node(), o.To)
	if command {
		s.open[nr] = o.To
	}
}
