// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// overlap is for how long a node that was paused and given up may go on with what others have
// started meanwhile.
const overlap = time.Second

// downHostsNothing: a node that is Down, suspended or stopped has asked all its instances
// to end.
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
	case h.watching.members[h.p.Node()].Status == membership.Down:
		h.violate("down-hosts-nothing", "it is down, and hosts %s", name)
	}
}

// oneInstance: there never are two instances of a singleton, and never two that hold its
// lease. Only a node that was paused for long may have one for a second more.
func oneInstance(c *cluster, name string) {
	var running, surely, excused []*host
	for _, h := range c.hosts {
		i := h.instances[name]
		if i == nil || h.p.Dead() {
			continue
		}
		if l := h.leases[c.plan.Config.Cluster+"-singleton-"+name]; l != nil && l.surely() {
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

// delivered is a message that has come to an instance.
type delivered struct {
	from      identity.Node
	singleton string
	serial    uint64
}

// onceAndInOrder: an instance gets the messages of a proxy in order, and none comes
// twice.
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

// onlyTheFirstSeedFounds: no other node makes a cluster of its own.
func onlyTheFirstSeedFounds(h *host) {
	g := h.m.Gossip()
	if len(g.Members()) > 1 || g.Member(h.p.Node()) == nil {
		return
	}
	h.c.hit("node", "founded")
	h.c.shard.foundedAnew()
	if h.p.Node().Name != h.c.plan.Seeds[0] {
		h.violate("only-the-first-seed-founds", "it is no first seed, and has founded a cluster")
	}
	// Who was cut off or paused meanwhile can't have answered. Its cluster can never be one with the new
	// one, so whoever runs them has to end it.
	for _, other := range h.c.members() {
		switch {
		case other == h:
		case h.c.wellSince(other) <= h.p.Began() && other.joined < h.p.Began() && h.c.isSeed(other) && other.up():
			h.violate("only-the-first-seed-founds", "it founds a cluster, and %v is a member that hears it", other.p.Node())
		default:
			h.c.w.Tell("%v is left over from another cluster, and ended", other.p.Node())
			other.kill()
		}
	}
}

// stoppedForAReason: a node ends only as the story explains.
func stoppedForAReason(h *host) {
	n, c := h.p.Node(), h.c
	c.hit("stopped", h.stopped.String())
	explained := false
	switch h.stopped {
	case membership.Left:
		explained = c.leaving[n]
	case membership.WasDowned:
		// Two of a name may be let in by two seeds at the same time: then one is downed.
		explained = c.twins[n] || namesakes(c, h) || c.troubled > 0 || c.w.Now() < c.troubleAt+c.patience() || c.plan.Config.Downing.Strategy == splitbrain.DownAll
	case membership.NameTaken:
		explained = c.twins[n] || namesakes(c, h) || c.troubled > 0 || c.w.Now() < c.troubleAt+c.patience()
	case membership.Incompatible, membership.Unsuccessful:
		explained = c.hopeless[n] == h.stopped || c.hopeless[n] != 0 && h.stopped == membership.Unsuccessful
	case membership.Asked:
	}
	if !explained {
		h.violate("stopped-for-a-reason", "it has stopped, %v, and nothing explains that", h.stopped)
	}
}

// namesakes reports whether another process with the name of a node lives.
func namesakes(c *cluster, h *host) bool {
	for _, other := range c.hosts {
		if other != h && other.p.Node().Name == h.p.Node().Name && !other.p.Dead() {
			return true
		}
	}
	return false
}

// patience is how long a trouble may have consequences after it is over: until it is
// noticed that it was there, it is decided about, and the members agree.
func (c *cluster) patience() time.Duration {
	stable := c.plan.Config.Downing.StableAfter
	if stable == 0 {
		stable = 20 * time.Second
	}
	return 3*stable + 40*time.Second
}

// unsettled returns what keeps the living nodes from being one cluster in which all is as it
// should be, or nothing.
func (c *cluster) unsettled() string {
	living := c.living()
	if len(living) == 0 {
		return "nobody lives"
	}
	for _, name := range c.names {
		if c.latest(name) == nil && !c.retiring[name] {
			return name + " does not run"
		}
	}
	leader := living[0].m.Snapshot().Leader
	for _, h := range living {
		n, s := h.p.Node(), h.m.Snapshot()
		switch {
		case len(s.Members) != len(living):
			return n.String() + " does not know of just the living: " + describe(h)
		case len(s.Unreachable) > 0:
			return n.String() + " can't reach some: " + describe(h)
		case s.Leader != leader:
			return n.String() + " knows of another leader: " + describe(h)
		case h.m.Suspended():
			return n.String() + " is suspended: " + describe(h)
		case c.restarts && h.site.misfit != "":
			return n.String() + " has other settings than the others"
		}
		for _, m := range s.Members {
			if other := c.byNode[m.Node]; m.Status != membership.Up || other == nil || !other.alive() {
				return n.String() + " knows of a member that should not be one: " + describe(h)
			}
		}
	}
	return c.misplaced(living)
}

// misplaced returns which singleton does not run on the oldest member, or nothing.
func (c *cluster) misplaced(living []*host) string {
	for _, s := range c.plan.Singletons {
		var oldest *membership.Member
		for _, m := range living[0].m.Gossip().Members() {
			if m.HasRole(s.Role) && (oldest == nil || m.OlderThan(oldest)) {
				oldest = m
			}
		}
		for _, h := range c.hosts {
			i := h.instances[s.Name]
			runs := i != nil && !h.p.Dead() && !i.stopping
			if should := h.p.Node() == oldest.Node; runs != should {
				return h.p.Node().String() + " hosts " + s.Name + " wrongly or not; the oldest is " + oldest.Node.String() + ": " + describe(h)
			}
		}
	}
	return ""
}

// describe says what a node knows.
func describe(h *host) string {
	var s strings.Builder
	for _, m := range h.m.Gossip().Members() {
		s.WriteString(m.Node.String() + " " + m.Status.String() + ", ")
	}
	h.m.Gossip().Reachability().Bad(func(observer identity.Node, rec membership.Record) {
		s.WriteString(observer.String() + " finds " + rec.Subject.String() + " " + rec.Reach.String() + ", ")
	})
	for _, x := range h.m.Singletons() {
		s.WriteString(x.Name + " is " + x.State.String() + ", ")
	}
	return strings.TrimSuffix(s.String(), ", ")
}
