// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/splitbrain"
)

// observed is the view of an observer of a node, from its events, and the gossip before the current
// step.
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

func newObserved() observed {
	return observed{
		members: map[identity.Node]identity.Member{}, unreachable: map[identity.Node]bool{}, roleLeaders: map[string]identity.Node{},
		removed: map[identity.Node]bool{},
	}
}

// beforeStep records the gossip before a step.
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
		h.checkGossip(old, g)
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
		neverUnreachableSelf(h, e)
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
		removedStaysRemoved(h, e)
		legalTransition(h, e)
		if e.Kind == membership.MemberUp {
			upWasSeenByAll(h, e)
		}
		o.members[e.Member.Node] = *e.Member
	}
}

// checkEvents compares the view that follows from the events with the node's snapshot.
func (h *host) checkEvents() {
	o, s := &h.observed, h.m.Snapshot()
	wrong := len(s.Members) != len(o.members) || len(s.Unreachable) != len(o.unreachable) || s.Leader != o.leader || len(s.RoleLeaders) != len(o.roleLeaders)
	for _, m := range s.Members {
		is, known := o.members[m.Node]
		wrong = wrong || !known || is.Status != m.Status || is.UpNumber != m.UpNumber
	}
	for _, m := range s.Unreachable {
		wrong = wrong || !o.unreachable[m.Node]
	}
	for _, r := range s.RoleLeaders {
		wrong = wrong || o.roleLeaders[r.Role] != r.Node
	}
	if wrong {
		h.violate("events-are-complete", "the events lead to members %v, unreachable %v, leader %v; the snapshot has members %v, unreachable %v, leader %v",
			slices.SortedFunc(maps.Keys(o.members), identity.Node.Compare), slices.SortedFunc(maps.Keys(o.unreachable), identity.Node.Compare), o.leader,
			s.Members, s.Unreachable, s.Leader)
	}
}
