// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/splitbrain"
)

// neverUnreachableSelf: no node says that it can't reach itself.
func neverUnreachableSelf(h *host, e membership.Event) {
	if e.Member.Node == h.p.Node() {
		h.violate("never-unreachable-self", "it finds itself unreachable")
	}
}

// removedStaysRemoved: whoever was removed is no member again.
func removedStaysRemoved(h *host, e membership.Event) {
	if h.watching.removed[e.Member.Node] {
		h.violate("removed-stays-removed", "%v was removed, and is %v", e.Member.Node, e.Member.Status)
	}
}

// legalTransition: a member's status only goes on. Some in between may be missed.
func legalTransition(h *host, e membership.Event) {
	before, known := h.watching.members[e.Member.Node]
	switch {
	case e.Kind == membership.MemberRemoved && (!known || before.Status != e.Previous):
		h.violate("events-tell-all", "%v was %v, and is removed as one that was %v", e.Member.Node, before.Status, e.Previous)
	case known && before.Status != e.Member.Status && !leadsTo(before.Status, e.Member.Status):
		h.violate("legal-transitions", "%v was %v, and is %v", e.Member.Node, before.Status, e.Member.Status)
	}
}

// leadsTo reports whether a member may go from one status to another, maybe by way of others.
func leadsTo(from, to membership.Status) bool {
	if from.CanBecome(to) {
		return true
	}
	for via := membership.Joining; via <= membership.ReadyForShutdown; via++ {
		if via != from && via != membership.Removed && from.CanBecome(via) && leadsTo(via, to) {
			return true
		}
	}
	return false
}

// upWasSeenByAll: when a member becomes Up, all who are Up or Leaving have heard of
// it.
func upWasSeenByAll(h *host, e membership.Event) {
	n := e.Member.Node
	if h.c.wasUp[n] {
		return
	}
	h.c.wasUp[n] = true
	for _, o := range h.watching.gossip.Members() {
		other := h.c.byNode[o.Node]
		if o.Status != membership.Up && o.Status != membership.Leaving || other == nil || !other.alive() || other == h {
			continue
		}
		if other.m.Gossip().Member(n) == nil && !other.watching.removed[n] {
			h.violate("up-was-seen-by-all", "%v becomes up, and %v has not heard of it", n, o.Node)
		}
	}
}

// removedOnlyWhenGone: the leader removes nobody but who is Down or Exiting, and can't be
// reached or has ended.
func removedOnlyWhenGone(h *host, e membership.Event) {
	n := e.Member.Node
	if h.c.wasGone[n] {
		return
	}
	h.c.wasGone[n] = true
	was, other := h.watching.gossip.Member(n), h.c.byNode[n]
	switch {
	case was == nil:
	case was.Status != membership.Down && was.Status != membership.Exiting:
		h.violate("removed-only-when-gone", "it removes %v, which is %v", n, was.Status)
	case !h.watching.unreachable[n] && other != nil && other.alive():
		h.violate("removed-only-when-gone", "it removes %v, which is %v, reachable and runs", n, was.Status)
	}
}

// checkGossip looks at what a node knows now.
func (h *host) checkGossip(old, g membership.Gossip) {
	oneIncarnation(h, g)
	wellFormed(h, g)
	terminatedStays(h, old, g)
	sameClockSameContent(h, g)
	oneSide(h, old, g)
}

// oneIncarnation: two incarnations of one name are never members, but for one that
// is only joining or is Down.
func oneIncarnation(h *host, g membership.Gossip) {
	members := g.Members()
	counts := func(m *membership.Member) bool { return m.Status != membership.Joining && m.Status != membership.Down }
	for i := 1; i < len(members); i++ {
		if members[i-1].Node.Name == members[i].Node.Name && counts(members[i-1]) && counts(members[i]) {
			h.violate("one-incarnation", "%v is %v and %v is %v", members[i-1].Node, members[i-1].Status, members[i].Node, members[i].Status)
		}
	}
}

// wellFormed: nobody stands in a gossip who is no member.
func wellFormed(h *host, g membership.Gossip) {
	for _, m := range g.Members() {
		if m.Status == membership.Removed {
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

// terminatedStays: nobody takes it back that a member is terminated.
func terminatedStays(h *host, old, g membership.Gossip) {
	if same(old.Reachability().Observers, g.Reachability().Observers) {
		return
	}
	old.Reachability().Bad(func(observer identity.Node, rec membership.Record) {
		if rec.Reach != membership.Terminated || g.Member(observer) == nil || g.Member(rec.Subject) == nil {
			return
		}
		if now := g.Reachability().By(observer, rec.Subject); now != membership.Terminated {
			h.violate("terminated-stays", "%v found %v terminated, and now %v", observer, rec.Subject, now)
		}
	})
}

// sameClockSameContent: two gossips with the same clock say the same.
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

// oneSide: two nodes that run have not removed each other. One that is paused meanwhile, while a lease that it held ran
// out, has to find out when it goes on: until then it is suspended, see node.lives.
func oneSide(h *host, old, g membership.Gossip) {
	if same(old.Tombstones(), g.Tombstones()) {
		return
	}
	for _, t := range g.Tombstones() {
		other := h.c.byNode[t.Node]
		if other == nil || !other.alive() || other.p.Paused() || h.p.Paused() || !other.m.Member() || !other.m.Gossip().Buried(h.p.Node()) {
			continue
		}
		h.violate("one-side", "it and %v have removed each other, and both go on", t.Node)
	}
}

// checkLink: a node that can't hear itself judges nobody.
func (h *host) checkLink(old, g membership.Gossip) {
	o := &h.watching
	since, deaf := h.c.deaf[h.p.Node().Name]
	settings := h.c.plan.Config.Membership.Settings
	pause := settings.AcceptablePause
	if pause == 0 {
		pause = 3 * time.Second
	}
	if !deaf || h.c.w.Now() < max(since, h.p.Began(), h.c.quick[h.p.Node().Name])+pause*51/50+200*time.Millisecond+h.p.Place().Slow || h.c.lag[h.p.Node().Name] > 0 {
		o.deaf = false
		return
	}
	count := h.m.Counters().Downing
	if !o.deaf {
		o.deaf, o.decisions = true, count
		return
	}
	if count != o.decisions {
		h.violate("own-link", "it hears nothing, and decides who survives")
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
		h.violate("own-link", "it hears nothing, and judges others: %v", g.Reachability())
	}
}

// notForOthers: what was for another incarnation changes nothing.
func notForOthers(h *host, m env.Message, old membership.Gossip) {
	if m.To.UID == 0 || m.To == h.p.Node() {
		return
	}
	h.c.hit("node", "stray message")
	if !same(old.Clock(), h.m.Gossip().Clock()) {
		h.violate("not-for-others", "a message for %v was heeded", m.To)
	}
}

// version is a version of the gossip at a node.
type version struct {
	node   identity.Node
	digest membership.Digest
}

// had notes which version of the gossip a node has.
func (h *host) had(d membership.Digest) { h.c.versions[version{h.p.Node(), d}] = true }

// seenMeansSeen: whoever is said to have seen a version of the gossip had it.
func seenMeansSeen(h *host, g membership.Gossip) {
	if h.stopped != 0 || len(g.Members()) == 0 {
		return
	}
	digest := g.Clock().Digest()
	h.had(digest)
	for _, n := range g.SeenBy() {
		if h.c.byNode[n] != nil && !h.c.versions[version{n, digest}] {
			h.violate("seen-means-seen", "%v is said to have seen what it never had", n)
		}
	}
}

// decidesWhenStable: nobody decides who survives before nothing has changed for a while. With a lease
// the decision is carried out when that is held, whatever has changed since it was asked for.
func decidesWhenStable(h *host, e node.Effects) {
	o := &h.watching
	if slices.ContainsFunc(e.Events, func(e membership.Event) bool { return e.Kind == membership.MemberDowned }) {
		decided, s := h.m.Counters().Downing[splitbrain.Decided], h.m.Config().Downing
		if quiet := h.p.Now() - o.stableAt; decided > o.decided && quiet < s.StableAfter && s.Strategy != splitbrain.LeaseMajority {
			h.violate("decides-when-stable", "it decides who survives %v after the last change", quiet)
		}
		o.decided = decided
	}
	for _, event := range e.Events {
		switch event.Kind {
		case membership.MemberUnreachable, membership.MemberReachable, membership.MemberUp, membership.MemberExited, membership.MemberDowned:
			if _, stays := o.members[event.Member.Node]; stays { // who is removed in the same step matters no more
				o.stableAt = h.p.Now()
			}
		case membership.TombstonesChanged, membership.ShuttingDown, membership.MemberRemoved, membership.MemberJoined, membership.MemberWeaklyUp,
			membership.MemberPreparing, membership.MemberReady, membership.MemberLeft, membership.LeaderChanged, membership.RoleLeaderChanged,
			membership.SeenChanged, membership.ReachabilityChanged:
		}
	}
}
