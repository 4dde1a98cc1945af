// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"

	"github.com/refold-io/refold/identity"
)

// unreachable returns the members that anybody finds unreachable or terminated.
// Observers for which ignored holds do not count; nil ignores none.
func (g Gossip) unreachable(ignored func(*Member) bool) bitmap {
	c := g.know()
	var found bitmap
	for _, o := range c.reach.Observers {
		if len(o.Records) == 0 {
			continue
		}
		if ignored != nil {
			if i, member := findMember(c.members, o.Node); member && ignored(c.members[i]) {
				continue
			}
		}
		for _, rec := range o.Records {
			if rec.Reach == Reachable {
				continue
			}
			if i, member := findMember(c.members, rec.Subject); member {
				if found == nil {
					found = newBitmap(len(c.members))
				}
				found.set(i)
			}
		}
	}
	return found
}

// Unreachable returns the members but self that anybody finds unreachable or
// terminated, sorted.
func (g Gossip) Unreachable(self identity.Node) []*Member {
	var found []*Member
	g.unreachable(nil).each(func(i int) {
		if g.members[i].Node != self {
			found = append(found, g.members[i])
		}
	})
	return found
}

// Converged reports whether all members that matter have seen exactly this, as
// far as self knows: nobody is unreachable who is neither Down nor Exiting, and all that
// are Up, Leaving or about to shut down have seen it. As long as there is none of
// these, Joining and WeaklyUp must have seen it. Who has confirmed that it exits
// is not waited for; nil is nobody.
func (g Gossip) Converged(self identity.Node, confirmed func(identity.Node) bool) bool {
	return len(g.blocking(self, confirmed, 1)) == 0
}

// blocking returns up to most members that keep the gossip from being converged.
func (g Gossip) blocking(self identity.Node, confirmed func(identity.Node) bool, most int) []*Member {
	var found []*Member
	block := func(m *Member) bool {
		if len(found) < most && (confirmed == nil || !confirmed(m.Node)) {
			found = append(found, m)
		}
		return len(found) < most
	}
	members := g.Members()
	if !g.Reachability().AllReachable() {
		g.unreachable(func(observer *Member) bool { return observer.Status == Down }).each(func(i int) {
			if m := members[i]; m.Node != self && !isGone(m.Status) {
				block(m)
			}
		})
	}
	settled := false
	for i, m := range members {
		if !countsForConvergence(m.Status) {
			continue
		}
		settled = true
		if !g.seen.has(i) && !block(m) {
			return found
		}
	}
	if settled {
		return found
	}
	for i, m := range members {
		if !isGone(m.Status) && !g.seen.has(i) && !block(m) {
			return found
		}
	}
	return found
}

// Leader returns who is to act for all, as self sees it: among the members that
// are not Down, have the role, and are reachable or self, the first that is Up, Leaving or about
// to shut down; if there is none, the first of those nearest to it. It is the
// zero node if there is nobody.
func (g Gossip) Leader(self identity.Node, role string) identity.Node {
	return leader(g.Members(), g.unreachable(nil), self, func(m *Member) bool { return m.HasRole(role) })
}

func leader(members []*Member, unreachable bitmap, self identity.Node, eligible func(*Member) bool) identity.Node {
	var best *Member
	for i, m := range members {
		if m.Status == Down || unreachable.has(i) && m.Node != self || !eligible(m) {
			continue
		}
		if countsForConvergence(m.Status) {
			return m.Node
		}
		if best == nil || cmp.Compare(substituteRank(m.Status), substituteRank(best.Status)) < 0 {
			best = m
		}
	}
	if best == nil {
		return identity.Node{}
	}
	return best.Node
}

// substituteRank orders the statuses of members that lead only if no member is Up, Leaving or about to shut down. The lowest leads.
func substituteRank(s Status) int {
	switch s {
	case WeaklyUp:
		return 1
	case Joining:
		return 2
	case Exiting:
		return 3
	case Down:
		return 4
	case Up, Leaving, PreparingForShutdown, ReadyForShutdown, Removed:
	}
	return 0
}
