// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

type fault struct {
	name   string
	weight int
	// planned is true for an operator action, and for an event that harms no node.
	planned bool
	// strategy is the only downing strategy with this fault, unless it is empty.
	strategy downing.Strategy
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
		{name: "cannot join", weight: 1, planned: true, do: cannotJoin},
		{name: "lease store", weight: 3, do: leaseStoreTrouble},
		{name: "misdelivery", weight: 1, planned: true, do: misdelivery},
		{name: "garbage", weight: 1, planned: true, do: garbage},
		{name: "hostile", weight: 3, planned: true, do: hostile},
		{name: "early leave", weight: 2, planned: true, do: earlyLeave},
		{name: "admission and crash", weight: 2, do: admissionAndCrash},
		{name: "lease owner", weight: 10, strategy: downing.LeaseMajority, do: leaseOwner},
	}
}

// injectFault injects a random fault in a cluster with members, if that is possible now.
func (c *cluster) injectFault() {
	// While the first seed joins, it must reach the other seeds. Otherwise it would found a second
	// cluster.
	if first := c.latest(c.plan.Seeds[0]); len(c.members()) == 0 || first != nil && first.alive() && !first.m.Member() {
		return
	}
	c.coverage.hit("clean cut", sideSurvives, 0) // creates the row, so that the report can show it as missing
	var all []fault                              // each fault as often as its weight
	for _, f := range faults() {
		c.coverage.expect("fault", f.name)
		if (f.planned || !c.shard.plan.Calm) && (f.strategy == "" || f.strategy == c.plan.Config.Downing.Strategy) {
			all = append(all, slices.Repeat([]fault{f}, f.weight)...)
		}
	}
	f := all[c.w.Rand.IntN(len(all))]
	if f.do(c) {
		c.faults++
		c.hit("fault", f.name)
	}
}

// any returns a random member.
func (c *cluster) any() *host {
	all := c.members()
	return all[c.w.Rand.IntN(len(all))]
}

// runFault begins a fault during which members may be downed. After d, runFault calls over and logs
// the text in ends. It always returns true, so that a fault function can return its result.
func (c *cluster) runFault(d time.Duration, ends string, over func()) bool {
	c.runningFaults++
	c.updateDeaf()
	c.w.After(d, func() {
		over()
		c.w.Logf("%s", ends)
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
	by := c.any()
	first := oldest(by.m.Gossip().Members(), func(m *identity.Member) bool { return m.Status == identity.Up })
	if first == nil {
		return false
	}
	c.w.Logf("FAULT: %v is asked to let %v leave; the next oldest node receives forged hand-overs", by.p.Node(), first.Node)
	c.leaving[first.Node] = true
	by.submit(node.Membership{Input: membership.Leave{Node: first.Node}})
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

func misdelivery(c *cluster) bool {
	c.w.Network.Misdelivery = 1
	c.w.Logf("FAULT: the next incarnations receive messages for earlier ones")
	return true
}

func garbage(c *cluster) bool {
	from, to := c.any(), c.any()
	if from == to {
		return false
	}
	c.w.Logf("FAULT: %v sends garbage to %v", from.p.Node(), to.p.Node())
	for range 20 {
		data := make([]byte, c.w.Rand.IntN(200))
		for i := range data {
			data[i] = byte(c.w.Rand.Uint32()) //nolint:gosec // any byte
		}
		kind := link.Kind(c.w.Rand.IntN(int(node.KindForwarded))) //nolint:gosec // a few
		// Random bytes may form a valid message, which the node would accept. For example, the
		// notice that a node is quarantined would shut the node down. Two bytes can be enough for a
		// valid message, because a higher minor version may append any bytes.
		if msg, err := membership.DecodeMessage(data); err == nil {
			c.w.Logf("not sent, because the bytes form a message: %v", membership.KindOf(msg))
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
	c.w.Logf("FAULT: lease store for %v: away %t, loss probability %.2f, delay probability %.2f", d, s.Away, s.Loss, s.Late)
	return c.runFault(d, "the lease store works again", s.Heal)
}

func crash(c *cluster) bool {
	h := c.any()
	c.w.Logf("FAULT: %v is killed", h.p.Node())
	c.faultEnded = c.w.Now() // the survivors may be too few to continue
	h.kill()
	return true
}

func crashAndRestart(c *cluster) bool {
	h := c.any()
	if h.p.Node().Name == c.plan.Seeds[0] || !c.healthy(h) {
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
	if c.shard.rand.IntN(6) == 0 && c.mayCut() {
		return rollingRestart(c, h)
	}
	if c.group.rand.IntN(2) == 0 {
		c.w.Logf("FAULT: %v shuts down", h.p.Node())
		h.shutDown()
		return true
	}
	c.w.Logf("FAULT: %v is asked to let %v leave", by.p.Node(), h.p.Node())
	c.leaving[h.p.Node()] = true
	by.submit(node.Membership{Input: membership.Leave{Node: h.p.Node()}})
	return true
}

// rollingRestart restarts up to four members one after the other: the oldest or the youngest ones
// first. Before each next restart, it waits up to a minute until the cluster has settled.
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
		if c.group.rand.IntN(2) == 0 {
			h.shutDown()
		} else {
			c.leaving[m.Node] = true
			h.submit(node.Membership{Input: membership.Leave{Node: m.Node}})
		}
		c.until(time.Minute, func() bool { return h.p.Dead() && c.unsettled() == "" })
	}
	c.hit("node", "rolling restart")
	return true
}

func down(c *cluster) bool {
	by := c.any()
	if !c.healthy(by) || !by.up() || c.runningCuts > 0 {
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
	if h.p.Paused() || c.runningCuts > 0 && c.plan.Config.Downing.Strategy == downing.LeaseMajority {
		return false
	}
	d := c.between(least, most)
	c.w.Logf("FAULT: %v is paused for %v", h.p.Node(), d)
	h.p.Pause()
	return c.runFault(d, "the pause ends", func() { c.resume(h) })
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
	if c.overload[h.p.Node().Name] > 0 {
		return false
	}
	name, d := h.p.Node().Name, c.between(5*time.Second, 30*time.Second)
	c.overload[name] = c.between(100*time.Millisecond, 4*time.Second)
	c.w.Logf("FAULT: for %v %s handles messages up to %v late", d, name, c.overload[name])
	return c.runFault(d, name+" is fast again", func() {
		c.overloadEnd[name] = c.w.Now() + c.overload[name]
		delete(c.overload, name)
	})
}

func wallClock(c *cluster) bool {
	h := c.any()
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
	if c.w.Rand.IntN(2) == 0 { // some new names sort before all others
		name = "a" + name
	}
	c.names = append(slices.Clip(c.names), name)
	c.w.Logf("FAULT: %s joins", name)
	h := c.start(name, nil)
	if c.w.Rand.IntN(2) == 0 {
		h.submit(node.Membership{Input: membership.JoinNode{Name: c.any().p.Node().Name}})
	} else {
		c.join(h)
	}
	return true
}

func twin(c *cluster) bool {
	h := c.any()
	if !c.healthy(h) || c.runningFaults > 0 || !h.up() || h.p.Node().Name == c.plan.Seeds[0] {
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
	if !h.alive() || !h.up() {
		h.violate("twin-harms-no-node", "a second process with its name has replaced it")
	} else if other.stopped != membership.NameTaken {
		other.violate("twin-harms-no-node", "it has the name of another node but was not refused")
	}
}

func cannotJoin(c *cluster) bool {
	if c.w.Rand.IntN(2) == 0 {
		c.w.Logf("FAULT: a node starts with seeds that do not exist")
		h := c.start("lost", func(cfg *node.Config) { cfg.Membership.Settings.StopJoiningAfter = 20 * time.Second })
		c.cannotJoin[h.p.Node()] = membership.Unsuccessful
		h.submit(node.Membership{Input: membership.JoinSeeds{Seeds: []string{"nowhere", "neither"}}})
		return true
	}
	if !c.healthy(c.any()) {
		return false
	}
	c.w.Logf("FAULT: a node starts with other settings")
	h := c.start("other", func(cfg *node.Config) {
		cfg.Membership.Check = []membership.Setting{{Key: "shards", Value: "7"}}
		cfg.Membership.Settings.StopJoiningAfter = 20 * time.Second
	})
	c.cannotJoin[h.p.Node()] = membership.Incompatible
	c.join(h)
	return true
}

func linkLost(c *cluster) bool {
	h := c.any()
	if !c.healthyAt(h.p.Node().Name) {
		return false
	}
	place, d := h.p.Place(), c.between(time.Second, 60*time.Second)
	kind := c.w.Rand.IntN(4)
	place.NoUp, place.NoDown = kind != 1, kind != 2
	noticed := kind == 3 && c.w.Rand.IntN(2) == 0
	c.w.Logf("FAULT: %v loses its link for %v: up %t, down %t, noticed %t", h.p.Node(), d, place.NoUp, place.NoDown, noticed)
	c.runFault(d, place.Name+" has its link again", func() {
		place.NoUp, place.NoDown = false, false
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
	d := c.between(3*time.Second, 90*time.Second)
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
	c.split(d, oneWay)
	return true
}

func (c *cluster) split(d time.Duration, oneWay bool) {
	n := &c.w.Network
	n.Split, n.OneWay = true, oneWay
	c.runningCuts++
	c.runFault(d, "the sides of the broker are connected again", func() {
		n.Split, n.OneWay = false, false
		c.runningCuts--
	})
}

func pairLost(c *cluster) bool {
	if !c.mayCut() {
		return false
	}
	d := c.between(3*time.Second, 60*time.Second)
	var pairs [][2]string
	for range 1 + c.w.Rand.IntN(3) {
		a, b := c.any(), c.any()
		if a == b {
			continue
		}
		from, to := a.p.Node().Name, b.p.Node().Name
		pairs = append(pairs, [2]string{from, to})
		c.w.Network.Cut(from, to, true)
		c.w.Logf("FAULT: nothing gets from %s to %s for %v", from, to, d)
	}
	c.runningCuts++
	c.runFault(d, "the pairs can communicate again", func() {
		c.runningCuts--
		for _, p := range pairs {
			c.w.Network.Cut(p[0], p[1], false)
		}
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
	c.w.Logf("FAULT: for %v frames are lost with probability %.2f, doubled with %.2f, overtaken with %.2f", d, n.Loss, n.Double, n.Overtake)
	return c.runFault(d, "frames are no longer lost", func() { n.Loss, n.Double, n.Overtake = 0, 0, 0 })
}

func slowNetwork(c *cluster) bool {
	n := &c.w.Network
	if n.Delay.Most >= 10*time.Millisecond {
		return false // the network is already slow, so old would be the slow delay
	}
	old, d := n.Delay, c.between(5*time.Second, 30*time.Second)
	n.Delay = env.Between{Least: 10 * time.Millisecond, Most: c.between(50*time.Millisecond, 1500*time.Millisecond)}
	c.w.Logf("FAULT: for %v the network is slow: %v", d, n.Delay.Most)
	return c.runFault(d, "the network is fast again", func() { n.Delay = old })
}

func slowNode(c *cluster) bool {
	h := c.any()
	if h.p.Place().Slow > 0 {
		return false
	}
	place, d := h.p.Place(), c.between(5*time.Second, 30*time.Second)
	place.Slow = c.between(100*time.Millisecond, 4*time.Second)
	c.w.Logf("FAULT: for %v messages from and to %s take %v", d, place.Name, place.Slow)
	return c.runFault(d, place.Name+" is fast again", func() { place.Slow = 0 })
}

func brokerAway(c *cluster) bool {
	if c.runningCuts > 0 && c.plan.Config.Downing.Strategy == downing.LeaseMajority {
		return false // the side that holds the lease could not renew it
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
	report := func(up bool) {
		for _, h := range c.living() {
			if noticed {
				h.p.Connection(up)
			}
		}
	}
	report(false)
	c.runFault(d, "the broker works again", func() {
		c.w.Network.Away = false
		report(true)
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
// clean cut, a side is chosen, and the losing nodes have ended.
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
	c.w.Logf("FAULT: the broker is split cleanly into %d and %d nodes, side %d is to survive, the lease decides %t", len(sides[0]), len(sides[1]), expected, either)
	d := cmp.Or(s.StableAfter, 20*time.Second) + untilDecided
	c.split(d+time.Second, false)
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
				h.violate("chosen-side-survives", "%s chooses its side after a clean cut, but it has stopped: %v", c.plan.Config.Downing.Strategy, h.stopped)
			case side != expected && h.alive():
				h.violate("chosen-side-survives", "%s does not choose its side after a clean cut, but it survives", c.plan.Config.Downing.Strategy)
			case side != expected && h.stopped != membership.WasDowned:
				h.violate("chosen-side-survives", "its side must be downed after a clean cut, but it has stopped: %v", h.stopped)
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

// survivingSide returns the side that has to survive, or -1 for none. If either is true, the lease
// decides which side survives. All members must be Up.
func survivingSide(s splitbrain.Settings, sides [2][]*host) (side int, either bool) {
	members := sides[0][0].m.Gossip().Members() // sorted by node
	sideOf := func(m *identity.Member) int {
		if slices.ContainsFunc(sides[0], func(h *host) bool { return h.p.Node() == m.Node }) {
			return 0
		}
		return 1
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
		side := sideOf(slices.MinFunc(members, membership.CompareAge))
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
		return sideOf(members[0]), false
	case sizes[0] > sizes[1]:
		return 0, false
	}
	return 1, false
}
