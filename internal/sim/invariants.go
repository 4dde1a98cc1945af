// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/splitbrain"
)

// legalTransition: the status of a member only advances. A node may miss intermediate statuses.
func legalTransition(h *host, e membership.Event) {
	before, known := h.observed.members[e.Member.Node]
	if e.Kind == membership.MemberRemoved && (!known || before.Status != e.Previous) {
		h.violate("events-are-complete", "%v was %v, but the event of its removal reports %v", e.Member.Node, before.Status, e.Previous)
	} else if known && before.Status != e.Member.Status && !leadsTo(before.Status, e.Member.Status) {
		h.violate("legal-transitions", "the status of %v changes from %v to %v", e.Member.Node, before.Status, e.Member.Status)
	}
}

// leadsTo reports whether a status may become another one, directly or through intermediate
// statuses.
func leadsTo(from, to identity.Status) bool {
	if from.CanBecome(to) {
		return true
	}
	for via := identity.Joining; via <= identity.ReadyForShutdown; via++ {
		if via != from && via != identity.Removed && from.CanBecome(via) && leadsTo(via, to) {
			return true
		}
	}
	return false
}

// upWasSeenByAll: when a member becomes Up, all members that are Up or Leaving have it in their
// gossip.
func upWasSeenByAll(h *host, e membership.Event) {
	n := e.Member.Node
	if h.c.wasUp[n] {
		return
	}
	h.c.wasUp[n] = true
	for _, o := range h.observed.gossip.Members() {
		other := h.c.byNode[o.Node]
		if o.Status != identity.Up && o.Status != identity.Leaving || other == nil || !other.alive() || other == h {
			continue
		}
		if other.m.Gossip().Member(n) == nil && !other.observed.removed[n] {
			h.violate("up-was-seen-by-all", "%v becomes Up, but the gossip of %v does not contain it", n, o.Node)
		}
	}
}

// removedOnlyWhenGone: the leader removes only members that are Down or Exiting, and either
// unreachable or ended.
func removedOnlyWhenGone(h *host, e membership.Event) {
	n := e.Member.Node
	if h.c.wasGone[n] {
		return
	}
	h.c.wasGone[n] = true
	was, other := h.observed.gossip.Member(n), h.c.byNode[n]
	switch {
	case was == nil:
	case was.Status != identity.Down && was.Status != identity.Exiting:
		h.violate("removed-only-when-gone", "it removes %v, which is %v", n, was.Status)
	case !h.observed.unreachable[n] && other != nil && other.alive():
		h.violate("removed-only-when-gone", "it removes %v, which is %v, reachable and running", n, was.Status)
	}
}

// oneIncarnation: two incarnations of one name are never members at the same time, except one that
// is Joining or Down.
func oneIncarnation(h *host, g membership.Gossip) {
	members := g.Members()
	counts := func(m *identity.Member) bool { return m.Status != identity.Joining && m.Status != identity.Down }
	for i := 1; i < len(members); i++ {
		if members[i-1].Node.Name == members[i].Node.Name && counts(members[i-1]) && counts(members[i]) {
			h.violate("one-incarnation", "%v is %v and %v is %v", members[i-1].Node, members[i-1].Status, members[i].Node, members[i].Status)
		}
	}
}

// wellFormed: a gossip contains only members.
func wellFormed(h *host, g membership.Gossip) {
	for _, m := range g.Members() {
		if m.Status == identity.Removed {
			h.violate("well-formed-gossip", "%v is removed, but still a member", m.Node)
		}
	}
	check := func(n identity.Node, has string, member bool) {
		if (g.Member(n) != nil) != member {
			h.violate("well-formed-gossip", "%v has %s, member %t", n, has, !member)
		}
	}
	for _, o := range g.Reachability().Observers {
		check(o.Node, "observations", true)
	}
	for _, t := range g.Clock() {
		check(t.Node, "a clock", true)
	}
	for _, t := range g.Tombstones() {
		check(t.Node, "a tombstone", false)
	}
}

// terminatedStays: a terminated member never becomes reachable again.
func terminatedStays(h *host, old, g membership.Gossip) {
	if membership.SameSlice(old.Reachability().Observers, g.Reachability().Observers) {
		return
	}
	old.Reachability().EachUnreachable(func(observer identity.Node, rec membership.Record) {
		if rec.Reach != membership.Terminated || g.Member(observer) == nil || g.Member(rec.Subject) == nil {
			return
		}
		if now := g.Reachability().By(observer, rec.Subject); now != membership.Terminated {
			h.violate("terminated-stays", "the record of %v about %v changes from terminated to %v", observer, rec.Subject, now)
		}
	})
}

// sameClockSameContent: two gossips with the same clock have the same content.
func sameClockSameContent(h *host, g membership.Gossip) {
	hash := fnv.New64a()
	_, _ = hash.Write(g.AppendContent(nil))
	digest := g.Clock().Digest()
	if other, known := h.c.contents[digest]; known && other != hash.Sum64() {
		h.violate("same-clock-same-content", "two gossips have the clock %v", g.Clock())
	}
	h.c.contents[digest] = hash.Sum64()
}

// oneSide: no two running nodes have removed each other. Paused nodes are not compared: after a
// long pause, a node is suspended until other members have confirmed it.
func oneSide(h *host, old, g membership.Gossip) {
	if membership.SameSlice(old.Tombstones(), g.Tombstones()) {
		return
	}
	for _, t := range g.Tombstones() {
		other := h.c.byNode[t.Node]
		if other == nil || !other.alive() || other.p.Paused() || h.p.Paused() || !other.m.Member() || !other.m.Gossip().Removed(h.p.Node()) {
			continue
		}
		h.violate("one-side", "it and %v have removed each other, but both run", t.Node)
	}
}

// checkLink: a node that does not receive its own messages decides nothing.
func (h *host) checkLink(old, g membership.Gossip) {
	o := &h.observed
	since, deaf := h.c.deaf[h.p.Node().Name]
	settings := h.c.plan.Config.Membership.Settings
	pause := cmp.Or(settings.AcceptablePause, 3*time.Second)
	if !deaf || h.c.w.Now() < max(since, h.p.Began(), h.c.overloadEnd[h.p.Node().Name])+pause*51/50+200*time.Millisecond+h.p.Place().Slow || h.c.overload[h.p.Node().Name] > 0 {
		o.deaf = false
		return
	}
	count := h.m.Counters().Downing
	if !o.deaf {
		o.deaf, o.decisions = true, count
		return
	}
	if count != o.decisions {
		h.violate("own-link", "it makes a downing decision without its own link")
	}
	version := func(g membership.Gossip) uint64 {
		for _, obs := range g.Reachability().Observers {
			if obs.Node == h.p.Node() {
				return obs.Version
			}
		}
		return 0
	}
	if now := version(g); now > version(old) && h.stopped == 0 {
		h.violate("own-link", "it records observations of other nodes without its own link: %v", g.Reachability())
	}
}

// notForOthers: a message to another incarnation changes nothing.
func notForOthers(h *host, m env.Message, old membership.Gossip) {
	if m.To.UID == 0 || m.To == h.p.Node() {
		return
	}
	h.c.hit("node", "misdelivered message")
	if !membership.SameSlice(old.Clock(), h.m.Gossip().Clock()) {
		h.violate("not-for-others", "a message for %v had an effect", m.To)
	}
}

type version struct {
	node   identity.Node
	digest membership.Digest
}

func (h *host) recordVersion(d membership.Digest) { h.c.versions[version{h.p.Node(), d}] = true }

// seenMeansSeen: each node in the seen set of a version has had that version.
func seenMeansSeen(h *host, g membership.Gossip) {
	if h.stopped != 0 || len(g.Members()) == 0 {
		return
	}
	digest := g.Clock().Digest()
	h.recordVersion(digest)
	for _, n := range g.SeenBy() {
		if h.c.byNode[n] != nil && !h.c.versions[version{n, digest}] {
			h.violate("seen-means-seen", "%v is in the seen set of a version that it never had", n)
		}
	}
}

// decidesWhenStable: no node makes a downing decision before the membership has been stable for
// StableAfter. With a lease, the decision takes effect when the lease is held, even if the
// membership has changed since the request.
func decidesWhenStable(h *host, e node.Effects) {
	o := &h.observed
	if slices.ContainsFunc(e.Events, func(e membership.Event) bool { return e.Kind == membership.MemberDowned }) {
		size := min(len(o.gossip.Members()), len(h.m.Gossip().Members()))
		decided, s := h.m.Counters().Downing[splitbrain.Decided], h.m.Config().Downing.For(size)
		if quiet := h.p.Now() - o.stableAt; decided > o.decided && quiet < s.StableAfter && s.Strategy != downing.LeaseMajority {
			h.violate("decides-when-stable", "it makes a downing decision %v after the last change", quiet)
		}
		o.decided = decided
	}
	missing := len(o.unreachable) > 0
	for _, m := range o.members {
		missing = missing || m.Status == identity.Down
	}
	for _, event := range e.Events {
		switch event.Kind {
		case membership.MemberUnreachable, membership.MemberReachable, membership.MemberUp, membership.MemberExited, membership.MemberDowned:
			// A member that is removed in the same step does not count. A member that was never Up
			// counts only if no other member is missing.
			m, stays := o.members[event.Member.Node]
			if newcomer := m.UpNumber == identity.NeverUp && event.Kind != membership.MemberUp; stays && (!newcomer || !missing) {
				o.stableAt = h.p.Now()
			}
		default:
		}
	}
}

// observed is the view that a subscriber derives from the events of a node, and the gossip of the
// node before the current step.
type observed struct {
	members     map[identity.Node]identity.Member
	unreachable map[identity.Node]bool
	leader      identity.Node
	roleLeaders map[string]identity.Node
	removed     map[identity.Node]bool
	gossip      membership.Gossip
	closed      bool // ShuttingDown was published

	stableAt  time.Duration                      // the last change of reachability, on the node's clock
	decided   uint64                             // number of decisions
	decisions [splitbrain.LeftToOwner + 1]uint64 // counters at the start of deafness
	deaf      bool
}

func (h *host) beforeStep() { h.observed.gossip = h.m.Gossip() }

func (h *host) check(e node.Effects) {
	o := &h.observed
	old, g := o.gossip, h.m.Gossip()
	for _, event := range e.Events {
		h.fold(event)
	}
	changed := !membership.SameSlice(old.Members(), g.Members()) || !membership.SameSlice(old.Reachability().Observers, g.Reachability().Observers) || !membership.SameSlice(old.Clock(), g.Clock())
	if changed || len(e.Events) > 0 {
		h.checkEvents()
	}
	if changed && h.stopped == 0 && !o.closed {
		oneIncarnation(h, g)
		wellFormed(h, g)
		terminatedStays(h, old, g)
		sameClockSameContent(h, g)
		oneSide(h, old, g)
	}
	if changed || slices.ContainsFunc(e.Events, func(e membership.Event) bool { return e.Kind == membership.SeenChanged }) {
		seenMeansSeen(h, g)
	}
	decidesWhenStable(h, e)
	h.checkLink(old, g)
	for _, s := range h.c.plan.Singletons {
		downHostsNothing(h, s.Name)
	}
	o.gossip = g
}

// fold applies an event, as a subscriber does.
func (h *host) fold(e membership.Event) {
	o := &h.observed
	switch e.Kind {
	case membership.ShuttingDown:
		o.closed = true
		o.leader = identity.Node{}
		clear(o.unreachable)
		clear(o.roleLeaders)
	case membership.MemberUnreachable:
		if e.Member.Node == h.p.Node() {
			h.violate("never-unreachable-self", "it marks itself as unreachable")
		}
		o.unreachable[e.Member.Node] = true
	case membership.MemberReachable:
		delete(o.unreachable, e.Member.Node)
	case membership.LeaderChanged:
		o.leader = e.Node
	case membership.RoleLeaderChanged:
		o.roleLeaders[e.Role] = e.Node
		if e.Node.IsZero() {
			delete(o.roleLeaders, e.Role)
		}
	case membership.TombstonesChanged, membership.SeenChanged, membership.ReachabilityChanged:
	case membership.MemberRemoved:
		legalTransition(h, e)
		if !o.closed {
			removedOnlyWhenGone(h, e)
			o.removed[e.Member.Node] = true
		}
		delete(o.members, e.Member.Node)
		delete(o.unreachable, e.Member.Node)
	case membership.MemberJoined, membership.MemberWeaklyUp, membership.MemberUp, membership.MemberPreparing, membership.MemberReady,
		membership.MemberLeft, membership.MemberExited, membership.MemberDowned:
		if o.removed[e.Member.Node] {
			h.violate("removed-stays-removed", "%v was removed, but is %v", e.Member.Node, e.Member.Status)
		}
		legalTransition(h, e)
		if e.Kind == membership.MemberUp {
			upWasSeenByAll(h, e)
		}
		o.members[e.Member.Node] = *e.Member
	}
}

// checkEvents compares the view that follows from the events with the node's view.
func (h *host) checkEvents() {
	o, v := &h.observed, h.m.View()
	wrong := len(v.Members) != len(o.members) || len(v.Unreachable) != len(o.unreachable) || v.LeaderNode != o.leader || len(v.RoleLeaders) != len(o.roleLeaders)
	for _, m := range v.Members {
		is, known := o.members[m.Node]
		wrong = wrong || !known || is.Status != m.Status || is.UpNumber != m.UpNumber
	}
	for _, n := range v.Unreachable {
		wrong = wrong || !o.unreachable[n]
	}
	for _, r := range v.RoleLeaders {
		wrong = wrong || o.roleLeaders[r.Role] != r.Node
	}
	if wrong {
		h.violate("events-are-complete", "the events lead to members %v, unreachable %v, leader %v; the view has members %v, unreachable %v, leader %v",
			slices.SortedFunc(maps.Keys(o.members), identity.Node.Compare), slices.SortedFunc(maps.Keys(o.unreachable), identity.Node.Compare), o.leader,
			v.Members, v.Unreachable, v.LeaderNode)
	}
}

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
		h.violate("down-hosts-nothing", "it has stopped but hosts %s", name)
	case h.m.Suspended():
		h.violate("down-hosts-nothing", "it is suspended but hosts %s", name)
	case h.observed.members[h.p.Node()].Status == identity.Down:
		h.violate("down-hosts-nothing", "it is Down but hosts %s", name)
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
		surely[0].violate("one-instance", "it and %[2]v both hold the lease of %[1]s", name, surely[1].p.Node())
	}
	if len(running) > 1 {
		running[len(running)-1].violate("one-instance", "it and %[2]v both run %[1]s", name, running[0].p.Node())
	} else if len(excused) > 0 && len(excused)+len(running) > 1 {
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
	if h.c.delivered[m] {
		h.violate("once-and-in-order", "%s receives message %d of %v twice", i.name, serial, from)
	} else if serial < i.last[from] {
		h.violate("once-and-in-order", "%s receives message %d of %v after message %d", i.name, serial, from, i.last[from])
	}
	h.c.delivered[m] = true
	i.last[from] = serial
}

// onlyTheFirstSeedFounds: only the first seed forms a cluster.
func onlyTheFirstSeedFounds(h *host) {
	g := h.m.Gossip()
	if len(g.Members()) > 1 || g.Member(h.p.Node()) == nil {
		return
	}
	h.c.hit("node", "founded")
	if m := h.c.shard.rememberStore.replicated; m != nil {
		clear(m.last) // the remembered entities of an earlier cluster may be lost
	}
	if h.p.Node().Name != h.c.plan.Seeds[0] {
		h.violate("only-the-first-seed-founds", "it forms a cluster but is not the first seed")
	}
	// A node that was cut off or paused cannot have replied. Its cluster can never merge with the
	// new one. An operator therefore has to kill the nodes of its cluster.
	for _, other := range h.c.members() {
		switch {
		case other == h:
		case h.c.healthySince(other) <= h.p.Began() && other.joined < h.p.Began() && h.c.isSeed(other) && other.up():
			h.violate("only-the-first-seed-founds", "it forms a cluster, but %v is a reachable member of another one", other.p.Node())
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
		explained = c.cannotJoin[n] == h.stopped || c.cannotJoin[n] != 0 && h.stopped == membership.Unsuccessful
	case membership.Asked:
	}
	if !explained {
		h.violate("stopped-for-a-reason", "it has stopped without a known cause: %v", h.stopped)
	}
}

func namesakes(c *cluster, h *host) bool {
	return slices.ContainsFunc(c.hosts, func(other *host) bool {
		return other != h && other.p.Node().Name == h.p.Node().Name && !other.p.Dead()
	})
}

// patience is the time after a fault in which the fault may have consequences: until all nodes have
// noticed it, a downing decision is made, and the members agree.
func (c *cluster) patience() time.Duration {
	return 3*cmp.Or(c.plan.Config.Downing.StableAfter, 20*time.Second) + 40*time.Second
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
	leader := living[0].m.View().LeaderNode
	for _, h := range living {
		n, v := h.p.Node(), h.m.View()
		switch {
		case len(v.Members) != len(living):
			return n.String() + " has other members than the living nodes: " + describe(h)
		case len(v.Unreachable) > 0:
			return n.String() + " cannot reach some members: " + describe(h)
		case v.LeaderNode != leader:
			return n.String() + " has another leader: " + describe(h)
		case h.m.Suspended():
			return n.String() + " is suspended: " + describe(h)
		case h.regions.begun:
			return n.String() + " is about to leave"
		case c.restarts && h.shards.wrongSetting != "":
			return n.String() + " has other settings than the others"
		}
		for _, m := range v.Members {
			if other := c.byNode[m.Node]; m.Status != identity.Up || other == nil || !other.alive() {
				return n.String() + " has a member that is not Up or does not run: " + describe(h)
			}
		}
	}
	return c.misplacedSingleton(living)
}

// misplacedSingleton returns a singleton that does not run on the oldest member, or "".
func (c *cluster) misplacedSingleton(living []*host) string {
	for _, s := range c.plan.Singletons {
		home := oldest(living[0].m.Gossip().Members(), func(m *identity.Member) bool { return m.HasRole(s.Role) }).Node
		for _, h := range c.hosts {
			i := h.instances[s.Name]
			runs := i != nil && !h.p.Dead() && !i.stopping
			if should := h.p.Node() == home; runs != should {
				return h.p.Node().String() + " runs " + s.Name + " or should run it; the oldest member is " + home.String() + ": " + describe(h)
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
