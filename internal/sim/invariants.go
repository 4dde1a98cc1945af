// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/splitbrain"
)

// neverUnreachableSelf: a node never marks itself as unreachable.
func neverUnreachableSelf(h *host, e membership.Event) {
	if e.Member.Node == h.p.Node() {
		h.violate("never-unreachable-self", "it marks itself as unreachable")
	}
}

// removedStaysRemoved: a removed node never becomes a member again.
func removedStaysRemoved(h *host, e membership.Event) {
	if h.observed.removed[e.Member.Node] {
		h.violate("removed-stays-removed", "%v was removed, and is %v", e.Member.Node, e.Member.Status)
	}
}

// legalTransition: the status of a member only advances. Intermediate ones may be missed.
func legalTransition(h *host, e membership.Event) {
	before, known := h.observed.members[e.Member.Node]
	switch {
	case e.Kind == membership.MemberRemoved && (!known || before.Status != e.Previous):
		h.violate("events-are-complete", "%v was %v, and is removed as one that was %v", e.Member.Node, before.Status, e.Previous)
	case known && before.Status != e.Member.Status && !leadsTo(before.Status, e.Member.Status):
		h.violate("legal-transitions", "%v was %v, and is %v", e.Member.Node, before.Status, e.Member.Status)
	}
}

// leadsTo reports whether a status may become another one, directly or through others.
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
			h.violate("up-was-seen-by-all", "%v becomes up, which is not in the gossip of %v", n, o.Node)
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
		h.violate("removed-only-when-gone", "it removes %v, which is %v, reachable and runs", n, was.Status)
	}
}

func (h *host) checkGossip(old, g membership.Gossip) {
	oneIncarnation(h, g)
	wellFormed(h, g)
	terminatedStays(h, old, g)
	sameClockSameContent(h, g)
	oneSide(h, old, g)
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
			h.violate("well-formed-gossip", "%v is removed, and still there", m.Node)
		}
	}
	for _, o := range g.Reachability().Observers {
		if g.Member(o.Node) == nil {
			h.violate("well-formed-gossip", "%v observes, and is no member", o.Node)
		}
	}
	for _, t := range g.Clock() {
		if g.Member(t.Node) == nil {
			h.violate("well-formed-gossip", "%v has a clock, and is no member", t.Node)
		}
	}
	for _, t := range g.Tombstones() {
		if g.Member(t.Node) != nil {
			h.violate("well-formed-gossip", "%v has a tombstone, and is a member", t.Node)
		}
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
			h.violate("terminated-stays", "%v found %v terminated, and now %v", observer, rec.Subject, now)
		}
	})
}

// sameClockSameContent: two gossips with the same clock have the same content.
func sameClockSameContent(h *host, g membership.Gossip) {
	hash := uint64(14695981039346656037)
	for _, b := range g.AppendContent(nil) {
		hash = (hash ^ uint64(b)) * 1099511628211
	}
	digest := g.Clock().Digest()
	if other, known := h.c.contents[digest]; known && other != hash {
		h.violate("same-clock-same-content", "two gossips have the clock %v", g.Clock())
	}
	h.c.contents[digest] = hash
}

// oneSide: two running nodes never have removed each other. A node that is paused while its lease
// expires is suspended until it has found out; see node.lives.
func oneSide(h *host, old, g membership.Gossip) {
	if membership.SameSlice(old.Tombstones(), g.Tombstones()) {
		return
	}
	for _, t := range g.Tombstones() {
		other := h.c.byNode[t.Node]
		if other == nil || !other.alive() || other.p.Paused() || h.p.Paused() || !other.m.Member() || !other.m.Gossip().Removed(h.p.Node()) {
			continue
		}
		h.violate("one-side", "it and %v have removed each other, and both run", t.Node)
	}
}

// checkLink: a node that does not receive its own messages decides nothing.
func (h *host) checkLink(old, g membership.Gossip) {
	o := &h.observed
	since, deaf := h.c.deaf[h.p.Node().Name]
	settings := h.c.plan.Config.Membership.Settings
	pause := settings.AcceptablePause
	if pause == 0 {
		pause = 3 * time.Second
	}
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
		h.violate("own-link", "it is deaf and makes a downing decision")
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
		h.violate("own-link", "it is deaf and records observations of others: %v", g.Reachability())
	}
}

// notForOthers: a message to another incarnation changes nothing.
func notForOthers(h *host, m env.Message, old membership.Gossip) {
	if m.To.UID == 0 || m.To == h.p.Node() {
		return
	}
	h.c.hit("node", "stray message")
	if !membership.SameSlice(old.Clock(), h.m.Gossip().Clock()) {
		h.violate("not-for-others", "a message for %v had an effect", m.To)
	}
}

type version struct {
	node   identity.Node
	digest membership.Digest
}

// recordVersion records that a node has had a version of the gossip.
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
		decided, s := h.m.Counters().Downing[splitbrain.Decided], h.m.Config().Downing
		if quiet := h.p.Now() - o.stableAt; decided > o.decided && quiet < s.StableAfter && s.Strategy != downing.LeaseMajority {
			h.violate("decides-when-stable", "it makes a downing decision %v after the last change", quiet)
		}
		o.decided = decided
	}
	for _, event := range e.Events {
		switch event.Kind {
		case membership.MemberUnreachable, membership.MemberReachable, membership.MemberUp, membership.MemberExited, membership.MemberDowned:
			if _, stays := o.members[event.Member.Node]; stays { // a member that is removed in the same step does not count
				o.stableAt = h.p.Now()
			}
		default:
		}
	}
}
