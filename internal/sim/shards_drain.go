// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/refold-io/refold/cluster/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/node/shards"
)

// drain lets an operator give the shards of a node away, and start the node anew some time after that: it takes none any more. One node
// is drained at a time, and others are there that take the shards.
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
	s.do(shards.Leave{Stay: true})
	s.after(maxLeaving, func() {
		leavesInTime(s)
		if len(s.m.Hosted()) == 0 {
			d.hit("sharding", "drained")
		}
	})
	s.after(maxLeaving+d.between(time.Second, 20*time.Second), s.startAnew)
}

// hosts reports whether a node takes shards, as far as it knows.
func (s *site) hosts() bool { return !s.proxy && !s.drained && !s.halted && !s.leaving && s.h.up() }

// startAnew ends the node. It is started again.
func (s *site) startAnew() {
	switch {
	case !s.h.alive():
	case s.d.c.watched:
		s.after(5*time.Second, s.startAnew)
	case !s.h.m.Member():
		s.h.kill()
	default:
		s.d.c.leaving[s.h.p.Node()] = true
		s.h.tell(node.Membership{Input: membership.Leave{Node: s.h.p.Node()}})
	}
}
