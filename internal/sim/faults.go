// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"
)

// fault is something that may go wrong.
type fault struct {
	name   string
	weight int
	// do lets it happen, and reports whether it did: not everything is possible at any
	// time.
	do func(c *cluster) bool
}

func faults() []fault {
	return []fault{
		{"crash", 4, crash},
		{"crash and restart", 3, crashAndRestart},
		{"leave", 4, leave},
		{"forged hand-over", 2, forgedHandOver},
		{"down", 2, down},
		{"short pause", 2, func(c *cluster) bool { return pause(c, time.Second, 6*time.Second) }},
		{"long pause", 3, func(c *cluster) bool { return pause(c, 10*time.Second, 75*time.Second) }},
		{"link lost", 5, linkLost},
		{"partition", 4, func(c *cluster) bool { return partition(c, false) }},
		{"one-way partition", 3, func(c *cluster) bool { return partition(c, true) }},
		{"pair lost", 2, pairLost},
		{"loss", 2, loss},
		{"slow network", 2, slowNetwork},
		{"slow node", 2, slowNode},
		{"busy node", 1, busyNode},
		{"broker away", 2, brokerAway},
		{"wall clock", 1, wallClock},
		{"join", 2, joinNew},
		{"twin", 2, twin},
		{"hopeless", 1, hopeless},
		{"lease store", 3, leaseStoreTrouble},
		{"stray", 1, stray},
		{"garbage", 1, garbage},
	}
}

// misfortune lets something go wrong, if it can now.
func (c *cluster) misfortune() bool {
	// While the first seed looks for the others nothing may keep it from them.
	if first := c.latest(c.plan.Seeds[0]); first != nil && first.alive() && !first.m.Member() {
		return false
	}
	c.coverage.hit("clean cut", namedSideLeft, 0) // a run without any is missing something
	all, sum := faults(), 0
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

// any returns a living member.
func (c *cluster) any() *host {
	all := c.members()
	if len(all) == 0 {
		return nil
	}
	return all[c.w.Rand.IntN(len(all))]
}

// trouble notes that something begins for which members may be given up, and ends after a
// while.
func (c *cluster) trouble(d time.Duration, over func()) {
	c.troubled++
	c.weather()
	c.w.After(d, func() {
		over()
		c.troubled--
		c.troubleAt = c.w.Now()
		c.weather()
	})
}

// weather notes who can't hear itself.
func (c *cluster) weather() {
	for _, h := range c.hosts {
		name := h.p.Node().Name
		if place := h.p.Place(); c.w.Passes(place, place) {
			delete(c.deaf, name)
		} else if _, known := c.deaf[name]; !known {
			c.deaf[name] = c.w.Now()
		}
	}
}
