// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// overlap is the maximum time for which a node that was downed during a pause may run instances
// that others have started.
const overlap = time.Second

// downHostsNothing: a node that is Down, suspended or stopped has requested all its instances to
// stop.
func downHostsNothing(h *host, name string) {
	i := h.instances[name]
	if i == nil || i.stopping {
		return
	}
	switch {
	case h.m.Stopped():
		h.violate("down-hosts-nothing", "it has stopped, and hosts %s", name)
	case h.m.Suspended():
		h.violate("down-hosts-nothing", "it is suspended, and hosts %s", name)
	case h.observed.members[h.p.Node()].Status == identity.Down:
		h.violate("down-hosts-nothing", "it is down, and hosts %s", name)
	}
}

// oneInstance: a singleton never has two instances or two holders of its lease. Only a node after a
// long pause may overlap for a second.
func oneInstance(c *cluster, name string) {
	var running, surely, excused []*host
	for _, h := range c.hosts {
		i := h.instances[name]
		if i == nil || h.p.Dead() {
			continue
		}
		if l := h.leases[c.plan.Config.Cluster+"-singleton-"+name]; l != nil && l.certain() {
			surely = append(surely, h)
		}
		switch {
		case h.p.Paused():
		case h.p.Resumed() > i.since && c.w.Now() <= h.p.Resumed()+overlap:
			excused = append(excused, h)
		default:
			running = append(running, h)
		}
	}
	if len(surely) > 1 {
		surely[0].violate("one-instance", "it holds the lease of %s, and so does %v", name, surely[1].p.Node())
	}
	switch {
	case len(running) > 1:
		running[len(running)-1].violate("one-instance", "it runs %s, and so does %v", name, running[0].p.Node())
	case len(excused) > 0 && len(excused)+len(running) > 1:
		c.hit("instance", "overlap after a pause")
		c.w.After(overlap+time.Millisecond, func() { oneInstance(c, name) })
	}
}

type delivered struct {
	from      identity.Node
	singleton string
	serial    uint64
}

// onceAndInOrder: an instance receives the messages of a proxy in order and at most once.
func onceAndInOrder(h *host, from identity.Node, i *instance, serial uint64) {
	m := delivered{from, i.name, serial}
	switch {
	case h.c.delivered[m]:
		h.violate("once-and-in-order", "%s gets message %d of %v once more", i.name, serial, from)
	case serial < i.heard[from]:
		h.violate("once-and-in-order", "%s gets message %d of %v after %d", i.name, serial, from, i.heard[from])
	}
	h.c.delivered[m] = true
	i.heard[from] = serial
}

// onlyTheFirstSeedFounds: only the first seed forms a cluster.
func onlyTheFirstSeedFounds(h *host) {
	g := h.m.Gossip()
	if len(g.Members()) > 1 || g.Member(h.p.Node()) == nil {
		return
	}
	h.c.hit("node", "founded")
	h.c.shard.foundedAgain()
	if h.p.Node().Name != h.c.plan.Seeds[0] {
		h.violate("only-the-first-seed-founds", "it is not the first seed, and has formed a cluster")
	}
	// A node that was cut off or paused cannot have replied. Its cluster can never merge with the
	// new one, so an operator has to end it.
	for _, other := range h.c.members() {
		switch {
		case other == h:
		case h.c.healthySince(other) <= h.p.Began() && other.joined < h.p.Began() && h.c.isSeed(other) && other.up():
			h.violate("only-the-first-seed-founds", "it forms a cluster, and %v is a reachable member", other.p.Node())
		default:
			h.c.w.Logf("%v belongs to another cluster and is killed", other.p.Node())
			other.kill()
		}
	}
}

// stoppedForAReason: a node stops only for a known cause.
func stoppedForAReason(h *host) {
	n, c := h.p.Node(), h.c
	c.hit("stopped", h.stopped.String())
	explained := false
	switch h.stopped {
	case membership.Left:
		explained = c.leaving[n]
	case membership.WasDowned:
		// Two seeds may accept two nodes of one name at the same time: then one of them is downed.
		explained = c.twins[n] || namesakes(c, h) || c.runningFaults > 0 || c.w.Now() < c.faultEnded+c.patience() || c.plan.Config.Downing.Strategy == downing.DownAll
	case membership.NameTaken:
		explained = c.twins[n] || namesakes(c, h) || c.runningFaults > 0 || c.w.Now() < c.faultEnded+c.patience()
	case membership.Incompatible, membership.Unsuccessful:
		explained = c.hopeless[n] == h.stopped || c.hopeless[n] != 0 && h.stopped == membership.Unsuccessful
	case membership.Asked:
	}
	if !explained {
		h.violate("stopped-for-a-reason", "it has stopped, %v, without a known cause", h.stopped)
	}
}

// namesakes reports whether another living process has the name of a node.
func namesakes(c *cluster, h *host) bool {
	for _, other := range c.hosts {
		if other != h && other.p.Node().Name == h.p.Node().Name && !other.p.Dead() {
			return true
		}
	}
	return false
}

// patience is the time after a fault in which it may have consequences: until all nodes have
// noticed it, it is decided, and the members agree.
func (c *cluster) patience() time.Duration {
	stable := c.plan.Config.Downing.StableAfter
	if stable == 0 {
		stable = 20 * time.Second
	}
	return 3*stable + 40*time.Second
}

// unsettled returns the reason for which the living nodes do not form one healthy cluster, or "".
func (c *cluster) unsettled() string {
	living := c.living()
	if len(living) == 0 {
		return "no node lives"
	}
	for _, name := range c.names {
		if c.latest(name) == nil && !c.notRestarted[name] {
			return name + " does not run"
		}
	}
	leader := living[0].m.Snapshot().Leader
	for _, h := range living {
		n, s := h.p.Node(), h.m.Snapshot()
		switch {
		case len(s.Members) != len(living):
			return n.String() + " has other members than the living nodes: " + describe(h)
		case len(s.Unreachable) > 0:
			return n.String() + " cannot reach some members: " + describe(h)
		case s.Leader != leader:
			return n.String() + " has another leader: " + describe(h)
		case h.m.Suspended():
			return n.String() + " is suspended: " + describe(h)
		case c.restarts && h.site.wrongSetting != "":
			return n.String() + " has other settings than the others"
		}
		for _, m := range s.Members {
			if other := c.byNode[m.Node]; m.Status != identity.Up || other == nil || !other.alive() {
				return n.String() + " has a member that should not be one: " + describe(h)
			}
		}
	}
	return c.misplaced(living)
}

// misplaced returns a singleton that does not run on the oldest member, or "".
func (c *cluster) misplaced(living []*host) string {
	for _, s := range c.plan.Singletons {
		var oldest *identity.Member
		for _, m := range living[0].m.Gossip().Members() {
			if m.HasRole(s.Role) && (oldest == nil || m.OlderThan(oldest)) {
				oldest = m
			}
		}
		for _, h := range c.hosts {
			i := h.instances[s.Name]
			runs := i != nil && !h.p.Dead() && !i.stopping
			if should := h.p.Node() == oldest.Node; runs != should {
				return h.p.Node().String() + " hosts " + s.Name + " or should; the oldest member is " + oldest.Node.String() + ": " + describe(h)
			}
		}
	}
	return ""
}

func describe(h *host) string {
	var s strings.Builder
	for _, m := range h.m.Gossip().Members() {
		s.WriteString(m.Node.String() + " " + m.Status.String() + ", ")
	}
	h.m.Gossip().Reachability().EachUnreachable(func(observer identity.Node, rec membership.Record) {
		s.WriteString(observer.String() + " finds " + rec.Subject.String() + " " + rec.Reach.String() + ", ")
	})
	for _, x := range h.m.Singletons() {
		s.WriteString(x.Name + " is " + x.State.String() + ", ")
	}
	return strings.TrimSuffix(s.String(), ", ")
}
