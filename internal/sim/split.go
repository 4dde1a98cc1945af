// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/membership"
)

// untilDecided is how long it takes at most, besides the time of stability, until a clean cut is noticed by all, decided
// about, and who has to end has ended.
const untilDecided = 40 * time.Second

const namedSideLeft = "the named side is left"

// cleanCut cuts a cluster in two in which all is well, and looks who is left when that is decided about. Nothing
// else goes wrong meanwhile.
func (c *cluster) cleanCut() bool {
	c.deal()
	var sides [2][]*host
	for _, h := range c.living() {
		side := h.p.Place().Side
		sides[side] = append(sides[side], h)
	}
	if len(sides[0]) == 0 || len(sides[1]) == 0 {
		return false
	}
	s := c.plan.Config.Downing
	expected, either := named(s, sides)
	c.w.Tell("FAULT: the broker is split cleanly, %d and %d, side %d is to survive, either %t", len(sides[0]), len(sides[1]), expected, either)
	d := cmp.Or(s.StableAfter, 20*time.Second) + untilDecided
	c.w.Network.Split = true
	c.cutting++
	c.trouble(d+time.Second, func() {
		c.w.Network.Split = false
		c.cutting--
		c.w.Tell("the broker is one again")
	})
	if c.undisturbed(d) {
		c.leftBy(sides, expected, either)
	}
	return true
}

// deal puts the nodes on two sides: anyhow, or half and half, or the oldest alone.
func (c *cluster) deal() {
	living, kind := c.living(), c.w.Rand.IntN(4)
	oldest := slices.MinFunc(living[0].m.Gossip().Members(), func(a, b *membership.Member) int {
		if a.OlderThan(b) {
			return -1
		}
		return 1
	})
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

// leftBy: after a clean cut all of the side go on that the strategy names, and nobody else.
func (c *cluster) leftBy(sides [2][]*host, expected int, either bool) {
	if either && !slices.ContainsFunc(sides[0], (*host).alive) {
		expected = 1
	} else if either {
		expected = 0
	}
	for side, hosts := range sides {
		for _, h := range hosts {
			switch {
			case side == expected && !h.alive():
				h.violate("named-side-survives", "%s names its side after a clean cut, and it has ended, %v", c.plan.Config.Downing.Strategy, h.stopped)
			case side != expected && h.alive():
				h.violate("named-side-survives", "%s doesn't name its side after a clean cut, and it goes on", c.plan.Config.Downing.Strategy)
			case side != expected && h.stopped != membership.WasDowned:
				h.violate("named-side-survives", "its side was not to go on after a clean cut, and it has ended, %v", h.stopped)
			}
		}
	}
	c.hit("clean cut", string(c.plan.Config.Downing.Strategy))
	if expected < 0 {
		c.hit("clean cut", "nobody was named")
	} else {
		c.hit("clean cut", namedSideLeft)
	}
}

// named returns the side of two that has to survive, -1 for none, or that it is up to the lease. All members are
// up.
func named(s downing.Settings, sides [2][]*host) (side int, either bool) {
	var lowest, oldest *membership.Member
	sideOf := func(m *membership.Member) int {
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
