// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/splitbrain"
)

func linkLost(c *cluster) bool {
	h := c.any()
	if h == nil || !c.healthyAt(h.p.Node().Name) {
		return false
	}
	place, d := h.p.Place(), c.between(time.Second, 60*time.Second)
	kind := c.w.Rand.IntN(4)
	place.NoUp, place.NoDown = kind != 1, kind != 2
	noticed := kind == 3 && c.w.Rand.IntN(2) == 0
	c.w.Logf("FAULT: %v loses its link for %v: up %t, down %t, noticed %t", h.p.Node(), d, place.NoUp, place.NoDown, noticed)
	c.runFault(d, func() {
		place.NoUp, place.NoDown = false, false
		c.w.Logf("%s has its link again", place.Name)
		if now := c.latest(place.Name); now != nil && noticed {
			now.p.Connection(true)
		}
	})
	if noticed {
		h.p.Connection(false)
	}
	return true
}

func (c *cluster) mayCut() bool {
	return c.runningCuts == 0 && c.runningFaults == 0 && c.unsettled() == ""
}

func partition(c *cluster, oneWay bool) bool {
	if !c.mayCut() {
		return false
	}
	if !oneWay && c.w.Rand.IntN(2) == 0 {
		return c.cleanCut()
	}
	n, d := &c.w.Network, c.between(3*time.Second, 90*time.Second)
	var there []string
	for _, name := range c.names {
		c.w.Place(name).Side = c.w.Rand.IntN(2)
		if c.w.Place(name).Side == 1 {
			there = append(there, name)
		}
	}
	if len(there) == 0 || len(there) == len(c.names) {
		return false
	}
	c.w.Logf("FAULT: the broker is split for %v, one way %t: %s on the other side", d, oneWay, strings.Join(there, " "))
	n.Split, n.OneWay = true, oneWay
	c.runningCuts++
	return c.runFault(d, func() {
		n.Split, n.OneWay = false, false
		c.runningCuts--
		c.w.Logf("the broker is one again")
	})
}

func pairLost(c *cluster) bool {
	if !c.mayCut() {
		return false
	}
	d := c.between(3*time.Second, 60*time.Second)
	type pair struct{ from, to string }
	var pairs []pair
	for range 1 + c.w.Rand.IntN(3) {
		a, b := c.any(), c.any()
		if a == b {
			continue
		}
		from, to := a.p.Node().Name, b.p.Node().Name
		pairs = append(pairs, pair{from, to})
		c.w.Network.Pair(from, to, env.Pair{Loss: 1})
		c.w.Logf("FAULT: nothing gets from %s to %s for %v", from, to, d)
	}
	c.runningCuts++
	c.runFault(d, func() {
		c.runningCuts--
		for _, p := range pairs {
			c.w.Network.Pair(p.from, p.to, env.Pair{})
		}
		c.w.Logf("the pairs can communicate again")
	})
	return len(pairs) > 0
}

func loss(c *cluster) bool {
	n := &c.w.Network
	if n.Loss > 0 {
		return false
	}
	n.Loss, n.Double, n.Overtake = 0.2*math.Pow(c.w.Rand.Float64(), 2), 0.1*c.w.Rand.Float64(), 0.1*c.w.Rand.Float64()
	d := c.between(5*time.Second, 30*time.Second)
	c.w.Logf("FAULT: for %v frames are lost with %.2f, doubled with %.2f, overtaken with %.2f", d, n.Loss, n.Double, n.Overtake)
	return c.runFault(d, func() {
		n.Loss, n.Double, n.Overtake = 0, 0, 0
		c.w.Logf("no frames are lost any more")
	})
}

func slowNetwork(c *cluster) bool {
	n := &c.w.Network
	if n.Delay.Most >= 10*time.Millisecond {
		return false // the delay would never be restored
	}
	old, d := n.Delay, c.between(5*time.Second, 30*time.Second)
	n.Delay = env.Between{Least: 10 * time.Millisecond, Most: c.between(50*time.Millisecond, 1500*time.Millisecond)}
	c.w.Logf("FAULT: for %v the network is slow: %v", d, n.Delay.Most)
	return c.runFault(d, func() {
		n.Delay = old
		c.w.Logf("the network is fast again")
	})
}

func slowNode(c *cluster) bool {
	h := c.any()
	if h == nil || h.p.Place().Slow > 0 {
		return false
	}
	place, d := h.p.Place(), c.between(5*time.Second, 30*time.Second)
	place.Slow = c.between(100*time.Millisecond, 4*time.Second)
	c.w.Logf("FAULT: for %v messages from and to %s take %v", d, place.Name, place.Slow)
	return c.runFault(d, func() {
		place.Slow = 0
		c.w.Logf("%s is fast again", place.Name)
	})
}

func brokerAway(c *cluster) bool {
	if c.runningCuts > 0 && c.plan.Config.Downing.Strategy == downing.LeaseMajority {
		return false // the lease of the winner expires
	}
	d := c.between(2*time.Second, 75*time.Second)
	calm := c.mayCut()
	var were []*host
	if calm {
		were = c.living()
		d = max(d, 60*time.Second)
	}
	noticed := c.w.Rand.IntN(2) == 0
	c.w.Logf("FAULT: the broker is away for %v, noticed %t, calm %t", d, noticed, calm)
	c.w.Network.Away = true
	tell := func(up bool) {
		for _, h := range c.living() {
			if noticed {
				h.p.Connection(up)
			}
		}
	}
	tell(false)
	c.runFault(d, func() {
		c.w.Network.Away = false
		c.w.Logf("the broker is back")
		tell(true)
	})
	if calm {
		c.undisturbed(d + 30*time.Second)
		outageLosesNoNode(c, were)
	}
	return true
}

func outageLosesNoNode(c *cluster, were []*host) {
	c.hit("node", "outage without losses")
	for _, h := range were {
		if h.p.Dead() || h.stopped != 0 {
			h.violate("outage-loses-no-node", "it did not survive an outage of the broker")
		}
	}
	if why := c.unsettled(); why != "" && c.violation == nil {
		c.violate("outage-loses-no-node", were[0].p.Node(), "after an outage of the broker: %s", why)
	}
}

// untilDecided is the maximum time, in addition to StableAfter, until all nodes have noticed a
// clean cut, it is decided, and the losing nodes have ended.
const untilDecided = 40 * time.Second

const sideSurvives = "the chosen side survives"

// cleanCut cuts a healthy cluster in two and checks which nodes survive the decision. No other
// fault occurs in this time.
func (c *cluster) cleanCut() bool {
	c.chooseSides()
	var sides [2][]*host
	for _, h := range c.living() {
		side := h.p.Place().Side
		sides[side] = append(sides[side], h)
	}
	if len(sides[0]) == 0 || len(sides[1]) == 0 {
		return false
	}
	s := c.plan.Config.Downing
	expected, either := survivingSide(s, sides)
	c.w.Logf("FAULT: the broker is split cleanly, %d and %d, side %d is to survive, either %t", len(sides[0]), len(sides[1]), expected, either)
	d := cmp.Or(s.StableAfter, 20*time.Second) + untilDecided
	c.w.Network.Split = true
	c.runningCuts++
	c.runFault(d+time.Second, func() {
		c.w.Network.Split = false
		c.runningCuts--
		c.w.Logf("the broker is one again")
	})
	if c.undisturbed(d) {
		c.checkSurvivors(sides, expected, either)
	}
	return true
}

// chooseSides puts the nodes on two sides: at random, in equal halves, or with the oldest alone.
func (c *cluster) chooseSides() {
	living, kind := c.living(), c.w.Rand.IntN(4)
	oldest := slices.MinFunc(living[0].m.Gossip().Members(), membership.CompareAge)
	for i, k := range c.w.Rand.Perm(len(living)) {
		place := living[k].p.Place()
		switch {
		case kind == 0 && living[k].p.Node() == oldest.Node, kind == 1 && i < len(living)/2, kind > 1 && c.w.Rand.IntN(2) == 0:
			place.Side = 1
		default:
			place.Side = 0
		}
	}
}

// checkSurvivors: after a clean cut, all nodes of the side that the strategy chooses survive, and
// no others.
func (c *cluster) checkSurvivors(sides [2][]*host, expected int, either bool) {
	if either && !slices.ContainsFunc(sides[0], (*host).alive) {
		expected = 1
	} else if either {
		expected = 0
	}
	for side, hosts := range sides {
		for _, h := range hosts {
			switch {
			case side == expected && !h.alive():
				h.violate("chosen-side-survives", "%s chooses its side after a clean cut, and it has ended, %v", c.plan.Config.Downing.Strategy, h.stopped)
			case side != expected && h.alive():
				h.violate("chosen-side-survives", "%s does not choose its side after a clean cut, and it survives", c.plan.Config.Downing.Strategy)
			case side != expected && h.stopped != membership.WasDowned:
				h.violate("chosen-side-survives", "its side had to end after a clean cut, and it has ended, %v", h.stopped)
			}
		}
	}
	c.hit("clean cut", string(c.plan.Config.Downing.Strategy))
	if expected < 0 {
		c.hit("clean cut", "no side was chosen")
	} else {
		c.hit("clean cut", sideSurvives)
	}
}

// survivingSide returns the side that has to survive, or -1 for none. With either, the lease
// decides. All members are Up.
func survivingSide(s splitbrain.Settings, sides [2][]*host) (side int, either bool) {
	var lowest, oldest *identity.Member
	sideOf := func(m *identity.Member) int {
		if slices.ContainsFunc(sides[0], func(h *host) bool { return h.p.Node() == m.Node }) {
			return 0
		}
		return 1
	}
	for _, m := range sides[0][0].m.Gossip().Members() {
		if lowest == nil || m.Node.Compare(lowest.Node) < 0 {
			lowest = m
		}
		if oldest == nil || m.OlderThan(oldest) {
			oldest = m
		}
	}
	sizes := [2]int{len(sides[0]), len(sides[1])}
	switch s.Strategy {
	case downing.StaticQuorum:
		for side, size := range sizes {
			if size >= s.QuorumSize {
				return side, false
			}
		}
		return -1, false
	case downing.KeepOldest:
		side := sideOf(oldest)
		if !s.KeepLoneOldest && sizes[side] == 1 && sizes[1-side] > 1 {
			return 1 - side, false
		}
		return side, false
	case downing.DownAll:
		return -1, false
	case downing.LeaseMajority:
		return -1, true
	case downing.KeepMajority, downing.Off:
	}
	switch {
	case sizes[0] == sizes[1]:
		return sideOf(lowest), false
	case sizes[0] > sizes[1]:
		return 0, false
	}
	return 1, false
}
