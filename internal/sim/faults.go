// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/cluster/membership"
	"github.com/refold-io/refold/cluster/singleton"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/world"
	"github.com/refold-io/refold/transport/link"
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
	c.w.Tell("FAULT: %v is asked to let %v leave", by.p.Node(), h.p.Node())
	c.leaving[h.p.Node()] = true
	by.tell(node.Membership{Input: membership.Leave{Node: h.p.Node()}})
	return true
}

// forgedHandOver lets the oldest leave, and others say that they have handed over what they never
// had.
func forgedHandOver(c *cluster) bool {
	var oldest *membership.Member
	by := c.any()
	if by == nil {
		return false
	}
	for _, m := range by.m.Gossip().Members() {
		if m.Status == membership.Up && (oldest == nil || m.OlderThan(oldest)) {
			oldest = m
		}
	}
	if oldest == nil {
		return false
	}
	c.w.Tell("FAULT: %v is asked to let %v leave, and others answer in its name", by.p.Node(), oldest.Node)
	c.leaving[oldest.Node] = true
	by.tell(node.Membership{Input: membership.Leave{Node: oldest.Node}})
	for i := range 200 {
		c.w.After(time.Duration(i)*50*time.Millisecond, c.forge)
	}
	return true
}

// forge tells those who wait for a hand-over that it is done, in the name of somebody younger, who
// never was asked.
func (c *cluster) forge() {
	for _, h := range c.living() {
		me := h.m.Gossip().Member(h.p.Node())
		for _, s := range h.m.Singletons() {
			if s.State != singleton.BecomingOldest || me == nil {
				continue
			}
			for _, m := range h.m.Gossip().Members() {
				if m.Status != membership.Up || !me.OlderThan(m) {
					continue
				}
				done := singleton.Message{Kind: singleton.HandOverDone, Singleton: s.Name, Hosted: true, Round: 1 + c.w.Rand.Uint64N(3)}
				msg := world.Message{From: m.Node, To: h.p.Node(), Kind: link.Kind(node.KindSingleton), Data: singleton.AppendMessage(nil, done)}
				c.hit("node", "forged hand-over")
				h.p.Do(func() { h.received(msg) })
				break
			}
		}
	}
}

// down is an operator that downs a member: a dead one, or one that can hear of it.
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
	if h == nil || h.p.Paused() || c.cutting > 0 && c.plan.Config.Downing.Strategy == downing.LeaseMajority {
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

// linkLost cuts a node off from the broker, in one direction or both, whether it notices or
// not.
func linkLost(c *cluster) bool {
	h := c.any()
	if h == nil || !c.wellAt(h.p.Node().Name) {
		return false
	}
	place, d := h.p.Place(), c.between(time.Second, 60*time.Second)
	kind := c.w.Rand.IntN(4)
	place.NoUp, place.NoDown = kind != 1, kind != 2
	noticed := kind == 3 && c.w.Rand.IntN(2) == 0
	c.w.Tell("FAULT: %v loses its link for %v: up %t, down %t, noticed %t", h.p.Node(), d, place.NoUp, place.NoDown, noticed)
	c.trouble(d, func() {
		place.NoUp, place.NoDown = false, false
		c.w.Tell("%s has its link again", place.Name)
		if now := c.latest(place.Name); now != nil && noticed {
			now.p.Connection(true)
		}
	})
	if noticed {
		h.p.Connection(false)
	}
	return true
}

// mayCut reports whether the network may be cut: not while an earlier cut still is decided
// about.
func (c *cluster) mayCut() bool {
	return c.cutting == 0 && c.troubled == 0 && c.unsettled() == ""
}

// partition cuts the broker in two halves.
func partition(c *cluster, oneWay bool) bool {
	if !c.mayCut() {
		return false
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
	c.w.Tell("FAULT: the broker is split for %v, one way %t: %s on the other side", d, oneWay, strings.Join(there, " "))
	n.Split, n.OneWay = true, oneWay
	c.cutting++
	c.trouble(d, func() {
		n.Split, n.OneWay = false, false
		c.cutting--
		c.w.Tell("the broker is one again")
	})
	return true
}

// pairLost lets single nodes not hear others.
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
		c.w.Network.Pair(from, to, world.Pair{Loss: 1})
		c.w.Tell("FAULT: nothing gets from %s to %s for %v", from, to, d)
	}
	c.cutting++
	c.trouble(d, func() {
		c.cutting--
		for _, p := range pairs {
			c.w.Network.Pair(p.from, p.to, world.Pair{})
		}
		c.w.Tell("the pairs hear each other again")
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
	c.w.Tell("FAULT: for %v frames are lost with %.2f, doubled with %.2f, overtaken with %.2f", d, n.Loss, n.Double, n.Overtake)
	c.trouble(d, func() {
		n.Loss, n.Double, n.Overtake = 0, 0, 0
		c.w.Tell("no frames are lost any more")
	})
	return true
}

func slowNetwork(c *cluster) bool {
	n := &c.w.Network
	old, d := n.Delay, c.between(5*time.Second, 30*time.Second)
	n.Delay = world.Between{Least: 10 * time.Millisecond, Most: c.between(50*time.Millisecond, 1500*time.Millisecond)}
	c.w.Tell("FAULT: for %v the network is slow: %v", d, n.Delay.Most)
	c.trouble(d, func() {
		n.Delay = old
		c.w.Tell("the network is fast again")
	})
	return old.Most < 10*time.Millisecond
}

func slowNode(c *cluster) bool {
	h := c.any()
	if h == nil || h.p.Place().Slow > 0 {
		return false
	}
	place, d := h.p.Place(), c.between(5*time.Second, 30*time.Second)
	place.Slow = c.between(100*time.Millisecond, 4*time.Second)
	c.w.Tell("FAULT: for %v messages from and to %s take %v", d, place.Name, place.Slow)
	c.trouble(d, func() {
		place.Slow = 0
		c.w.Tell("%s is fast again", place.Name)
	})
	return true
}

// busyNode lets a node handle messages late that came in time.
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

// twin starts a second process with the name of a member that lives. If nothing else is
// wrong, that must not harm the first one.
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
		c.run(15 * time.Second)
		twinHarmsNobody(c, h, other)
	}
	return true
}

// twinHarmsNobody: of two processes with one name the first one stays.
func twinHarmsNobody(c *cluster, h, other *host) {
	c.hit("node", "twin refused")
	switch {
	case !h.alive() || !h.up():
		h.violate("twin-harms-nobody", "another one with its name has driven it out")
	case other.stopped != membership.NameTaken:
		other.violate("twin-harms-nobody", "it has the name of another, and was not told")
	}
}

// hopeless starts a node that can't join.
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
	c.w.Tell("FAULT: the lease store is away %t, loses %.2f, is late with %.2f, for %v", s.Away, s.Loss, s.Late, d)
	c.trouble(d, func() {
		s.Heal()
		c.w.Tell("the lease store is well")
	})
	return true
}

// stray lets what was for an earlier incarnation come to the next one.
func stray(c *cluster) bool {
	c.w.Network.Stray = 1
	c.w.Tell("FAULT: messages for earlier incarnations come to the next")
	return true
}

// garbage sends what nobody can read.
func garbage(c *cluster) bool {
	from, to := c.any(), c.any()
	if from == nil || from == to {
		return false
	}
	c.w.Tell("FAULT: %v sends garbage to %v", from.p.Node(), to.p.Node())
	for range 20 {
		data := make([]byte, c.w.Rand.IntN(200))
		for i := range data {
			data[i] = byte(c.w.Rand.Uint32()) //nolint:gosec // any byte
		}
		kind := link.Kind(c.w.Rand.IntN(int(node.KindForwarded))) //nolint:gosec // a few
		m := world.Message{From: from.p.Node(), To: to.p.Node(), Kind: kind, Data: data}
		to.p.Do(func() { to.received(m) })
	}
	return true
}

// brokerAway takes the broker away from all.
func brokerAway(c *cluster) bool {
	d := c.between(2*time.Second, 75*time.Second)
	calm := c.mayCut()
	var were []*host
	if calm {
		were = c.living()
		d = max(d, 60*time.Second)
	}
	noticed := c.w.Rand.IntN(2) == 0
	c.w.Tell("FAULT: the broker is away for %v, noticed %t, calm %t", d, noticed, calm)
	c.w.Network.Away = true
	tell := func(up bool) {
		for _, h := range c.living() {
			if noticed {
				h.p.Connection(up)
			}
		}
	}
	tell(false)
	c.trouble(d, func() {
		c.w.Network.Away = false
		c.w.Tell("the broker is back")
		tell(true)
	})
	if calm {
		c.run(d + 30*time.Second)
		outageLosesNobody(c, were)
	}
	return true
}

// outageLosesNobody: after the broker was away for all, the same members are there.
func outageLosesNobody(c *cluster, were []*host) {
	c.hit("node", "outage without losses")
	for _, h := range were {
		if h.p.Dead() || h.stopped != 0 {
			h.violate("outage-loses-nobody", "it did not survive that the broker was away")
		}
	}
	if why := c.unsettled(); why != "" && c.violation == nil {
		c.violate("outage-loses-nobody", were[0].p.Node(), "after the broker was away: %s", why)
	}
}
