// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// drain lets an operator give the shards of a node away, and some time later start the node anew, or take that back, which may be before all of
// them are away. One node is drained at a time, and others are there that take the shards.
func (d *sharding) drain(s *site) {
	hosts := 0
	for _, other := range d.living() {
		if other.drained {
			return
		}
		if other != s && other.hosts() {
			hosts++
		}
	}
	if !s.hosts() || hosts < 2 || d.c.restarts {
		return
	}
	d.w.Tell("%v is drained", s.h.p.Node())
	s.drained = true
	s.drains++
	nr := s.drains
	d.delayWaysTo(s)
	s.do(shardcore.Leave{KeepRouting: true})
	s.after(maxLeaving, func() {
		if !s.drained || s.drains != nr {
			return
		}
		leavesInTime(s)
		if len(s.m.Hosted()) == 0 {
			d.hit("sharding", "drained")
		}
	})
	if d.rand.IntN(2) == 0 {
		s.after(d.between(time.Millisecond, maxLeaving+5*time.Second), s.undrain)
		return
	}
	s.after(maxLeaving+d.between(time.Second, 20*time.Second), s.startAnew)
}

// undrain takes it back that a node was drained.
func (s *site) undrain() {
	if s.leaving || s.d.c.leaving[s.h.p.Node()] {
		return
	}
	s.d.hit("sharding", "undrained")
	s.d.w.Tell("%v takes shards again, and has %d", s.h.p.Node(), len(s.m.Hosted()))
	s.drained = false
	if !s.halted {
		s.step(shardcore.Undrain{})
		s.cfg.Region.Instance = s.m.Instance()
	}
}

// undrainedHosts: who was drained, and takes shards again, gets some if there are enough for all. It returns who does not.
func (d *sharding) undrainedHosts() string {
	hosts := 0
	for _, s := range d.living() {
		if s.hosts() {
			hosts++
		}
	}
	for _, s := range d.living() {
		if s.drains > 0 && s.hosts() && len(s.m.Hosted()) == 0 && d.plan.Shards > hosts {
			return s.h.p.Node().String() + " was drained, and gets no shards"
		}
	}
	return ""
}

// hosts reports whether a node takes shards, as far as it knows.
func (s *site) hosts() bool {
	return !s.proxy && s.misfit == "" && !s.drained && !s.halted && !s.leaving && s.h.up()
}

// startAnew ends the node. It is started again.
func (s *site) startAnew() {
	switch {
	case !s.h.alive():
	case s.d.c.watched, s.misfit != "" && !s.h.m.Member():
		s.after(5*time.Second, s.startAnew)
	case !s.h.m.Member():
		s.h.kill()
	default:
		s.d.c.leaving[s.h.p.Node()] = true
		s.h.tell(node.Membership{Input: membership.Leave{Node: s.h.p.Node()}})
	}
}

// delayWaysTo lets what others have to say to a node that is going to leave take long, but for who has the coordinator, and returns how long that is
// before it leaves: what is on its way then comes late.
func (d *sharding) delayWaysTo(s *site) time.Duration {
	boss, known := s.m.Coordinator()
	if !d.plan.Calm || !known || s.holds || d.rand.IntN(3) == 0 { // its own coordinator would have to wait for its store
		return 0
	}
	name, by := s.h.p.Node().Name, d.between(100*time.Millisecond, 700*time.Millisecond)
	var from []string
	for _, other := range d.living() {
		if n := other.h.p.Node(); n.Name != name && n != boss && d.rand.IntN(4) > 0 {
			from = append(from, n.Name)
			d.w.Network.Late(n.Name, name, by)
		}
	}
	d.w.Tell("what %v say to %s takes %v more", from, name, by)
	d.hit("sharding", "ways to who leaves are slow")
	d.w.After(maxLeaving, func() {
		for _, n := range from {
			d.w.Network.Late(n, name, 0)
		}
	})
	return d.between(0, time.Second)
}

// asks notes that something is said to a coordinator that is to be answered.
func (s *site) asks(k coordinator.Kind) {
	switch k {
	case coordinator.Register, coordinator.RegisterProxy, coordinator.GetHomes, coordinator.GracefulShutdown:
		if s.askedAt == shardcore.Never {
			s.askedAt = s.h.p.Now()
		}
	default:
	}
}

// gaveUp reports whether a command may be refused where all is planned: its node leaves, does not know where the shard is, and nobody has told it for
// giveUpAfter, nor could have, since no coordinator has been there for long enough to be asked.
func (s *site) gaveUp(r *shardcore.Refusal) bool {
	d := s.d
	_, known := s.m.Home(r.Shard)
	if r.Reason != shardcore.Stopped || !s.leaving || s.empty || known || s.askedAt == shardcore.Never || s.h.p.Now() < s.askedAt+giveUpAfter {
		return false
	}
	return d.activeAt == 0 || d.w.Now() < d.activeAt+retryInterval+enoughToAnswer
}

// enoughToAnswer is how long a question and its answer are under way at most, where all is planned.
const enoughToAnswer = 2 * time.Second

// answeredSoon: who waits for the answer to a command that was refused is told.
func (d *sharding) answeredSoon(nr uint64) {
	d.hit("sharding", "refused as no coordinator answers")
	d.w.After(enoughToAnswer, func() {
		if l := d.letter(nr); l.outcome == waits && !l.from.gone {
			l.from.violate("planned-moves-lose-nothing", "command %d for %s was refused, and is not answered", nr, l.account.id)
		}
	})
}
