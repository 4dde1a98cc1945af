// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/node/shards"
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
	s.do(shards.Leave{Stay: true})
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
		s.step(shards.Return{})
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
