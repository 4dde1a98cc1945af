// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/singleton"
)

type fault struct {
	name   string
	weight int
	// planned is true for an operator action, and for an event that harms no node.
	planned bool
	// do injects the fault. It returns false if the fault is not possible now.
	do func(c *cluster) bool
}

func faults() []fault {
	return []fault{
		{name: "crash", weight: 4, do: crash},
		{name: "crash and restart", weight: 3, do: crashAndRestart},
		{name: "leave", weight: 4, planned: true, do: leave},
		{name: "forged hand-over", weight: 2, planned: true, do: forgedHandOver},
		{name: "down", weight: 2, do: down},
		{name: "short pause", weight: 2, do: func(c *cluster) bool { return pause(c, time.Second, 6*time.Second) }},
		{name: "long pause", weight: 3, do: func(c *cluster) bool { return pause(c, 10*time.Second, 75*time.Second) }},
		{name: "link lost", weight: 5, do: linkLost},
		{name: "partition", weight: 4, do: func(c *cluster) bool { return partition(c, false) }},
		{name: "one-way partition", weight: 3, do: func(c *cluster) bool { return partition(c, true) }},
		{name: "pair lost", weight: 2, do: pairLost},
		{name: "loss", weight: 2, do: loss},
		{name: "slow network", weight: 2, do: slowNetwork},
		{name: "slow node", weight: 2, do: slowNode},
		{name: "busy node", weight: 1, do: busyNode},
		{name: "broker away", weight: 2, do: brokerAway},
		{name: "wall clock", weight: 1, planned: true, do: wallClock},
		{name: "join", weight: 2, planned: true, do: joinNew},
		{name: "twin", weight: 2, planned: true, do: twin},
		{name: "hopeless", weight: 1, planned: true, do: hopeless},
		{name: "lease store", weight: 3, do: leaseStoreTrouble},
		{name: "stray", weight: 1, planned: true, do: stray},
		{name: "garbage", weight: 1, planned: true, do: garbage},
	}
}

// injectFault injects a random fault, if that is possible now.
func (c *cluster) injectFault() bool {
	// The first seed must reach the other seeds while it joins.
	if first := c.latest(c.plan.Seeds[0]); first != nil && first.alive() && !first.m.Member() {
		return false
	}
	c.coverage.hit("clean cut", sideSurvives, 0) // the row must exist to be reported as missing
	all, sum := faults(), 0
	if c.shard.plan.Calm {
		all = slices.DeleteFunc(all, func(f fault) bool { return !f.planned })
	}
	for _, f := range all {
		sum += f.weight
	}
	k := c.w.Rand.IntN(sum)
	for _, f := range all {
		if k -= f.weight; k < 0 {
			if !f.do(c) {
				return false
			}
			c.faults++
			c.hit("fault", f.name)
			return true
		}
	}
	return false
}

func (c *cluster) any() *host {
	all := c.members()
	if len(all) == 0 {
		return nil
	}
	return all[c.w.Rand.IntN(len(all))]
}

// runFault records a fault for which members may be downed, and ends it after a while. It returns
// true, as the result of the fault.
func (c *cluster) runFault(d time.Duration, over func()) bool {
	c.runningFaults++
	c.updateDeaf()
	c.w.After(d, func() {
		over()
		c.runningFaults--
		c.faultEnded = c.w.Now()
		c.updateDeaf()
	})
	return true
}

// updateDeaf updates the set of nodes that do not receive their own messages.
func (c *cluster) updateDeaf() {
	for _, h := range c.hosts {
		name := h.p.Node().Name
		if place := h.p.Place(); c.w.Passes(place, place) {
			delete(c.deaf, name)
		} else if _, known := c.deaf[name]; !known {
			c.deaf[name] = c.w.Now()
		}
	}
}

func forgedHandOver(c *cluster) bool {
	var oldest *identity.Member
	by := c.any()
	if by == nil {
		return false
	}
	for _, m := range by.m.Gossip().Members() {
		if m.Status == identity.Up && (oldest == nil || m.OlderThan(oldest)) {
			oldest = m
		}
	}
	if oldest == nil {
		return false
	}
	c.w.Logf("FAULT: %v is asked to let %v leave, and others answer in its name", by.p.Node(), oldest.Node)
	c.leaving[oldest.Node] = true
	by.submit(node.Membership{Input: membership.Leave{Node: oldest.Node}})
	for i := range 200 {
		c.w.After(time.Duration(i)*50*time.Millisecond, c.forge)
	}
	return true
}

func (c *cluster) forge() {
	for _, h := range c.living() {
		me := h.m.Gossip().Member(h.p.Node())
		for _, s := range h.m.Singletons() {
			if s.State != singleton.BecomingOldest || me == nil {
				continue
			}
			for _, m := range h.m.Gossip().Members() {
				if m.Status != identity.Up || !me.OlderThan(m) {
					continue
				}
				done := singleton.Message{Kind: singleton.HandOverDone, Singleton: s.Name, Hosted: true, Round: 1 + c.w.Rand.Uint64N(3)}
				msg := env.Message{From: m.Node, To: h.p.Node(), Kind: link.Kind(node.KindSingleton), Data: singleton.AppendMessage(nil, done)}
				c.hit("node", "forged hand-over")
				h.p.Do(func() { h.received(msg) })
				break
			}
		}
	}
}

func stray(c *cluster) bool {
	c.w.Network.Stray = 1
	c.w.Logf("FAULT: messages for earlier incarnations come to the next")
	return true
}

func garbage(c *cluster) bool {
	from, to := c.any(), c.any()
	if from == nil || from == to {
		return false
	}
	c.w.Logf("FAULT: %v sends garbage to %v", from.p.Node(), to.p.Node())
	for range 20 {
		data := make([]byte, c.w.Rand.IntN(200))
		for i := range data {
			data[i] = byte(c.w.Rand.Uint32()) //nolint:gosec // any byte
		}
		kind := link.Kind(c.w.Rand.IntN(int(node.KindForwarded))) //nolint:gosec // a few
		// A random message may be valid: it would be accepted, and a node that reads that it is
		// quarantined ends. Two bytes are enough, because a higher minor version may append any
		// bytes.
		if msg, err := membership.DecodeMessage(data); err == nil {
			c.w.Logf("it would be a message: %v", membership.KindOf(msg))
			continue
		}
		m := env.Message{From: from.p.Node(), To: to.p.Node(), Kind: kind, Data: data}
		to.p.Do(func() { to.received(m) })
	}
	return true
}

func leaseStoreTrouble(c *cluster) bool {
	s := c.store
	if s.Away || s.Loss > 0 || s.Late > 0 {
		return false
	}
	switch c.w.Rand.IntN(3) {
	case 0:
		s.Away = true
	case 1:
		s.Loss = 0.5 * c.w.Rand.Float64()
	default:
		s.Late = c.w.Rand.Float64()
	}
	d := c.between(5*time.Second, 60*time.Second)
	c.w.Logf("FAULT: the lease store is away %t, loses %.2f, is late with %.2f, for %v", s.Away, s.Loss, s.Late, d)
	return c.runFault(d, func() {
		s.Heal()
		c.w.Logf("the lease store is well")
	})
}
