// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
)

func crash(c *cluster) bool {
	h := c.any()
	if h == nil {
		return false
	}
	c.w.Logf("FAULT: %v is killed", h.p.Node())
	c.faultEnded = c.w.Now() // the survivors may be too few to continue
	h.kill()
	return true
}

func crashAndRestart(c *cluster) bool {
	h := c.any()
	if h == nil || h.p.Node().Name == c.plan.Seeds[0] || !c.healthy(h) {
		return false
	}
	c.w.Logf("FAULT: %v is killed and starts again at once", h.p.Node())
	c.faultEnded = c.w.Now()
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
	c.w.Logf("FAULT: %v is asked to let %v leave", by.p.Node(), h.p.Node())
	c.leaving[h.p.Node()] = true
	by.submit(node.Membership{Input: membership.Leave{Node: h.p.Node()}})
	return true
}

// rollingRestart restarts up to four members, in order of age from either end, each one after the
// previous one is back.
func rollingRestart(c *cluster, by *host) bool {
	members := slices.Clone(by.m.Gossip().Members())
	slices.SortFunc(members, membership.CompareAge)
	if c.shard.rand.IntN(2) == 0 {
		slices.Reverse(members)
	}
	members = members[:min(len(members), 4)]
	c.w.Logf("FAULT: a rolling restart begins")
	for _, m := range members {
		h := c.byNode[m.Node]
		if !h.alive() || c.violation != nil {
			break
		}
		c.leaving[m.Node] = true
		h.submit(node.Membership{Input: membership.Leave{Node: m.Node}})
		c.until(time.Minute, func() bool { return h.p.Dead() && c.unsettled() == "" })
	}
	c.hit("node", "rolling restart")
	return true
}

func down(c *cluster) bool {
	by := c.any()
	if by == nil || !c.healthy(by) || !by.up() || c.runningCuts > 0 {
		return false
	}
	for _, m := range by.m.Gossip().Members() {
		if h := c.byNode[m.Node]; h.p.Dead() || c.healthy(h) && h != by && h.alive() && c.w.Rand.IntN(3) == 0 {
			c.w.Logf("FAULT: %v is asked to down %v", by.p.Node(), m.Node)
			c.faultEnded = c.w.Now()
			by.submit(node.Membership{Input: membership.DownNode{Node: m.Node}})
			return true
		}
	}
	return false
}

func pause(c *cluster, least, most time.Duration) bool {
	h := c.any()
	if h == nil || h.p.Paused() || c.runningCuts > 0 && c.plan.Config.Downing.Strategy == downing.LeaseMajority {
		return false
	}
	d := c.between(least, most)
	c.w.Logf("FAULT: %v is paused for %v", h.p.Node(), d)
	h.p.Pause()
	return c.runFault(d, func() { c.resume(h) })
}

func (c *cluster) resume(h *host) {
	if !h.p.Paused() || h.p.Dead() {
		return
	}
	c.w.Logf("%v is resumed", h.p.Node())
	h.p.Resume()
	for _, s := range c.plan.Singletons {
		oneInstance(c, s.Name)
	}
}

func busyNode(c *cluster) bool {
	h := c.any()
	if h == nil || c.overload[h.p.Node().Name] > 0 {
		return false
	}
	name, d := h.p.Node().Name, c.between(5*time.Second, 30*time.Second)
	c.overload[name] = c.between(100*time.Millisecond, 4*time.Second)
	c.w.Logf("FAULT: for %v %s handles messages up to %v late", d, name, c.overload[name])
	return c.runFault(d, func() {
		c.overloadEnd[name] = c.w.Now() + c.overload[name]
		delete(c.overload, name)
		c.w.Logf("%s is quick again", name)
	})
}

func wallClock(c *cluster) bool {
	h := c.any()
	if h == nil {
		return false
	}
	by := c.between(-12*time.Hour, 12*time.Hour)
	h.p.Place().Wall += by
	c.w.Logf("FAULT: the wall clock of %s jumps by %v", h.p.Node().Name, by)
	return true
}

func joinNew(c *cluster) bool {
	if len(c.names) >= len(c.plan.Names)+spares {
		return false
	}
	name := fmt.Sprintf("z%02d", len(c.names))
	if c.w.Rand.IntN(2) == 0 { // its name may also sort first
		name = "a" + name
	}
	c.names = append(slices.Clip(c.names), name)
	c.w.Logf("FAULT: %s joins", name)
	h := c.start(name, nil)
	if by := c.any(); by != nil && c.w.Rand.IntN(2) == 0 {
		h.submit(node.Membership{Input: membership.JoinNode{Name: by.p.Node().Name}})
	} else {
		c.join(h)
	}
	return true
}

func twin(c *cluster) bool {
	h := c.any()
	if h == nil || !c.healthy(h) || c.runningFaults > 0 || !h.up() || h.p.Node().Name == c.plan.Seeds[0] {
		return false
	}
	calm := c.unsettled() == ""
	c.w.Logf("FAULT: a second %s starts, calm %t", h.p.Node().Name, calm)
	other := c.start(h.p.Node().Name, nil)
	c.twins[other.p.Node()] = true
	c.join(other)
	if calm {
		c.undisturbed(15 * time.Second)
		twinHarmsNoNode(c, h, other)
	}
	return true
}

func twinHarmsNoNode(c *cluster, h, other *host) {
	c.hit("node", "twin refused")
	switch {
	case !h.alive() || !h.up():
		h.violate("twin-harms-no-node", "a twin with its name has replaced it")
	case other.stopped != membership.NameTaken:
		other.violate("twin-harms-no-node", "it has the name of another node, and was not refused")
	}
}

func hopeless(c *cluster) bool {
	if c.w.Rand.IntN(2) == 0 {
		c.w.Logf("FAULT: a node starts with seeds that are not there")
		h := c.start("lost", func(cfg *node.Config) { cfg.Membership.Settings.StopJoiningAfter = 20 * time.Second })
		c.hopeless[h.p.Node()] = membership.Unsuccessful
		h.submit(node.Membership{Input: membership.JoinSeeds{Seeds: []string{"nowhere", "neither"}}})
		return true
	}
	if by := c.any(); by == nil || !c.healthy(by) {
		return false
	}
	c.w.Logf("FAULT: a node starts with other settings")
	h := c.start("other", func(cfg *node.Config) {
		cfg.Membership.Check = []membership.Setting{{Key: "shards", Value: "7"}}
		cfg.Membership.Settings.StopJoiningAfter = 20 * time.Second
	})
	c.hopeless[h.p.Node()] = membership.Incompatible
	c.join(h)
	return true
}
