// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/sim/env"
)

// coordination is the singleton that has the coordinator.
const coordination = "sharding"

// sharding is an entity type of a cluster, and what is known about it from outside: which entities run where, which commands
// were sent, delivered, stored and answered.
type sharding struct {
	aside

	plan   ShardsPlan
	all    []*site // there ever were
	byNode map[identity.Node]*site

	store    *stateStore
	memory   memory
	accounts []*account // by shard and number
	byID     map[string]*account
	letters  []letter // by number, from 1
	last     map[sender]uint64
	errands  uint64        // what they have asked so far
	activeAt time.Duration // since when a coordinator is, 0: none is
	misfit   string        // name of the node that is going to have other settings when it starts again
	closing  bool          // clients have sent all that they send
}

func newSharding(c *cluster, seed uint64, plan ShardsPlan) *sharding {
	d := &sharding{
		aside: newAside(c, seed, 0x5a4de), plan: plan, byNode: map[identity.Node]*site{}, byID: map[string]*account{}, last: map[sender]uint64{},
	}
	for n := range plan.Shards {
		for k := range plan.Entities {
			a := &account{id: fmt.Sprintf("%d/%d", n, k), shard: shards.Shard(n)}
			d.accounts = append(d.accounts, a)
			d.byID[a.id] = a
		}
	}
	d.store = newStateStore(d)
	d.memory = newMemory(d)
	return d
}

// begin lets clients work.
func (d *sharding) begin() {
	if d.plan.Calm { // ways differ much, and nobody minds
		d.w.Network.Delay = env.Between{Least: time.Millisecond, Most: d.between(5*time.Millisecond, 95*time.Millisecond)}
	}
	d.later(500*time.Millisecond, d.work)
	d.later(4*time.Second, d.disturb)
	d.later(20*time.Second, d.storeTrouble)
}

// odds is true once in n times, unless all is planned or has calmed down.
func (d *sharding) odds(n int) bool { return !d.plan.Calm && !d.quiet && d.rand.IntN(n) == 0 }

// living returns the sites of living members.
func (d *sharding) living() []*site {
	var living []*site
	for _, s := range d.all {
		if s.h.alive() && s.h.m.Member() {
			living = append(living, s)
		}
	}
	return living
}

// disturb lets shards move, and other things happen that operators do, or that go wrong.
func (d *sharding) disturb() {
	living := d.living()
	if len(living) == 0 {
		return
	}
	s := living[d.rand.IntN(len(living))]
	switch n := d.rand.IntN(20); {
	case n < 6:
		s.do(shards.Rebalance{}) // nothing, unless the coordinator is there
	case n < 8 && !d.plan.Calm && !s.proxy && s.misfit == "" && !s.holds && !s.halted && !s.leaving:
		d.usurp(s)
	case n < 9:
		s.stopShards()
	case n < 11:
		d.drain(s)
	case n < 12:
		d.misconfigure(s)
	}
}

// usurp gives a node a coordinator while another one has it.
func (d *sharding) usurp(s *site) {
	d.hit("sharding", "second coordinator")
	d.w.Tell("%v has a coordinator, too, for a while", s.h.p.Node())
	s.h.p.Do(func() {
		s.usurps = true
		s.holds = true
		s.step(shards.Appoint{})
	})
	s.after(d.between(100*time.Millisecond, 12*time.Second), func() {
		if s.usurps {
			s.usurps = false
			if !s.presides {
				s.step(shards.Dismiss{Now: true})
			}
		}
	})
}
