// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/splitbrain"
)

func crash(c *cluster) bool {
	h := c.any()
	if h == nil {
		return false
	}
	c.w.Tell("FAULT: %v is killed", h.p.Node())
	c.troubleAt = c.w.Now() // so many may be dead that the rest gives up
	h.kill()
	return true
}

func crashAndRestart(c *cluster) bool {
	h := c.any()
	if h == nil || h.p.Node().Name == c.plan.Seeds[0] || !c.well(h) {
		return false
	}
	c.w.Tell("FAULT: %v is killed and starts again at once", h.p.Node())
	c.troubleAt = c.w.Now()
	h.kill()
	c.w.After(c.between(0, 2*time.Second), func() {
		if name := h.p.Node().Name; c.latest(name) == nil {
			c.restart(name)
		}
	})
	return true
}

func leave(c *cluster) bool {
	h, by := c.any(), c.any()
	if h == nil {
		return false
	}
	if c.shard.rand.IntN(6) == 0 && c.mayCut() {
		return rollingRestart(c, h)
	}
	c.w.Tell("FAULT: %v is asked to let %v leave", by.p.Node(), h.p.Node())
	c.leaving[h.p.Node()] = true
	by.tell(node.Membership{Input: membership.Leave{Node: h.p.Node()}})
	return true
}

// rollingRestart lets some members leave one after the other, the youngest first or the oldest, each when the one before is back.
func rollingRestart(c *cluster, by *host) bool {
	members := slices.Clone(by.m.Gossip().Members())
	slices.SortFunc(members, func(a, b *membership.Member) int {
		if a.OlderThan(b) {
			return -1
		}
		return 1
	})
	if c.shard.rand.IntN(2) == 0 {
		slices.Reverse(members)
	}
	members = members[:min(len(members), 4)]
	c.w.Tell("FAULT: a rolling restart begins")
	for _, m := range members {
		h := c.byNode[m.Node]
		if !h.alive() || c.violation != nil {
			break
		}
		c.leaving[m.Node] = true
		h.tell(node.Membership{Input: membership.Leave{Node: m.Node}})
		c.until(time.Minute, func() bool { return h.p.Dead() && c.unsettled() == "" })
	}
	c.hit("node", "rolling restart")
	return true
}

func down(c *cluster) bool {
	by := c.any()
	if by == nil || !c.well(by) || !by.up() || c.cutting > 0 {
		return false
	}
	for _, m := range by.m.Gossip().Members() {
		if h := c.byNode[m.Node]; h.p.Dead() || c.well(h) && h != by && h.alive() && c.w.Rand.IntN(3) == 0 {
			c.w.Tell("FAULT: %v is asked to down %v", by.p.Node(), m.Node)
			c.troubleAt = c.w.Now()
			by.tell(node.Membership{Input: membership.DownNode{Node: m.Node}})
			return true
		}
	}
	return false
}

func pause(c *cluster, least, most time.Duration) bool {
	h := c.any()
	if h == nil || h.p.Paused() || c.cutting > 0 && c.plan.Config.Downing.Strategy == splitbrain.LeaseMajority {
		return false
	}
	d := c.between(least, most)
	c.w.Tell("FAULT: %v is paused for %v", h.p.Node(), d)
	h.p.Pause()
	c.trouble(d, func() { c.resume(h) })
	return true
}

func (c *cluster) resume(h *host) {
	if !h.p.Paused() || h.p.Dead() {
		return
	}
	c.w.Tell("%v goes on", h.p.Node())
	h.p.Resume()
	for _, s := range c.plan.Singletons {
		oneInstance(c, s.Name)
	}
}

func busyNode(c *cluster) bool {
	h := c.any()
	if h == nil || c.lag[h.p.Node().Name] > 0 {
		return false
	}
	name, d := h.p.Node().Name, c.between(5*time.Second, 30*time.Second)
	c.lag[name] = c.between(100*time.Millisecond, 4*time.Second)
	c.w.Tell("FAULT: for %v %s handles messages up to %v late", d, name, c.lag[name])
	c.trouble(d, func() {
		c.quick[name] = c.w.Now() + c.lag[name]
		delete(c.lag, name)
		c.w.Tell("%s is quick again", name)
	})
	return true
}

func wallClock(c *cluster) bool {
	h := c.any()
	if h == nil {
		return false
	}
	by := c.between(-12*time.Hour, 12*time.Hour)
	h.p.Place().Wall += by
	c.w.Tell("FAULT: the wall clock of %s jumps by %v", h.p.Node().Name, by)
	return true
}

func joinNew(c *cluster) bool {
	if len(c.names) >= len(c.plan.Names)+spares {
		return false
	}
	name := fmt.Sprintf("z%02d", len(c.names))
	if c.w.Rand.IntN(2) == 0 { // it may come first in the order of names, too
		name = "a" + name
	}
	c.names = append(slices.Clip(c.names), name)
	c.w.Tell("FAULT: %s joins", name)
	h := c.start(name, nil)
	if by := c.any(); by != nil && c.w.Rand.IntN(2) == 0 {
		h.tell(node.Membership{Input: membership.JoinNode{Name: by.p.Node().Name}})
	} else {
		c.join(h)
	}
	return true
}

func twin(c *cluster) bool {
	h := c.any()
	if h == nil || !c.well(h) || c.troubled > 0 || !h.up() || h.p.Node().Name == c.plan.Seeds[0] {
		return false
	}
	calm := c.unsettled() == ""
	c.w.Tell("FAULT: a second %s starts, calm %t", h.p.Node().Name, calm)
	other := c.start(h.p.Node().Name, nil)
	c.twins[other.p.Node()] = true
	c.join(other)
	if calm {
		c.undisturbed(15 * time.Second)
		twinHarmsNobody(c, h, other)
	}
	return true
}

func twinHarmsNobody(c *cluster, h, other *host) {
	c.hit("node", "twin refused")
	switch {
	case !h.alive() || !h.up():
		h.violate("twin-harms-nobody", "another one with its name has driven it out")
	case other.stopped != membership.NameTaken:
		other.violate("twin-harms-nobody", "it has the name of another, and was not told")
	}
}

func hopeless(c *cluster) bool {
	if c.w.Rand.IntN(2) == 0 {
		c.w.Tell("FAULT: a node starts with seeds that are not there")
		h := c.start("lost", func(cfg *node.Config) { cfg.Membership.Settings.StopJoiningAfter = 20 * time.Second })
		c.hopeless[h.p.Node()] = membership.Unsuccessful
		h.tell(node.Membership{Input: membership.JoinSeeds{Seeds: []string{"nowhere", "neither"}}})
		return true
	}
	if by := c.any(); by == nil || !c.well(by) {
		return false
	}
	c.w.Tell("FAULT: a node starts with other settings")
	h := c.start("other", func(cfg *node.Config) {
		cfg.Membership.Check = []membership.Setting{{Key: "shards", Value: "7"}}
		cfg.Membership.Settings.StopJoiningAfter = 20 * time.Second
	})
	c.hopeless[h.p.Node()] = membership.Incompatible
	c.join(h)
	return true
}
