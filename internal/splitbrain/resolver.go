// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package splitbrain is the split brain resolver: it decides which members of a cluster are down
// while some are unreachable. It consists of values and pure functions. Package cluster/downing
// documents it for users.
//
// A Resolver receives views of the cluster. When the view has not changed for Settings.StableAfter,
// the strategy decides which side survives:
//
//	r, err := splitbrain.New(self, splitbrain.Settings{Strategy: downing.KeepMajority})
//	...
//	effects := r.Step(now, splitbrain.View{...}) // when members or reachability changed
//	effects = r.Tick(now)                        // each second
//	for _, n := range effects.Down { ... }       // this node comes last
package splitbrain

import (
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Resolver decides for one node when members are to be downed. The same inputs at the same times
// give the same effects. It is not safe for concurrent use.
type Resolver struct {
	self       identity.Node
	configured Settings
	settings   Settings // for the number of members in view

	view View // the view for decisions
	gone int  // number of members that do not count in view

	started      bool
	disconnected bool // this node is disconnected
	changedAt    time.Duration

	// Changes of reachability since all members were reachable.
	changes           int
	firstAt, latestAt time.Duration

	outgrown bool
	warned   bool
	lease    leaseState
	suspects []suspect // of automatic downing
}

// New returns a resolver for a node. The error matches ErrInvalid.
func New(self identity.Node, settings Settings) (*Resolver, error) {
	if err := identity.CheckName(self.Name); err != nil || self.UID == 0 {
		return nil, fmt.Errorf("%w: self is %v, want a valid name and a UID", ErrInvalid, self)
	}
	settings, err := settings.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Resolver{self: self, configured: settings, settings: settings.For(0)}, nil
}

// Step handles an input at a time. The origin of time is arbitrary. Time must not decrease.
func (r *Resolver) Step(now time.Duration, in Input) Effects {
	var out Effects
	if r.settings.Strategy == downing.Off {
		return out
	}
	switch in := in.(type) {
	case View:
		r.see(now, in, &out)
	case LeaseAnswer:
		r.leaseAnswered(now, in, &out)
	case LeaseLost:
		r.lease.lost = r.lease.held // it has to be acquired again
	case LeaseReleased:
		// A report that arrives while the lease is requested again is about an earlier release.
		if l := &r.lease; in.Done && l.phase == idle && l.releasing {
			l.held, l.releasing, l.lost = false, false, false
		}
	case Link:
		r.link(now, in.Up, &out)
	}
	return out
}

// Tick takes a decision if it is due. It must be called once a second.
func (r *Resolver) Tick(now time.Duration) Effects {
	var out Effects
	switch {
	case r.settings.Strategy == downing.Off || r.disconnected || !r.started:
		return out
	case r.settings.Strategy == automatic:
		r.tickAutomatic(now, &out)
		return out
	case r.lease.phase != idle:
		if r.lease.phase == delaying && now >= r.lease.askAt {
			r.lease.phase = asking
			out.AskLease = true
		}
		return out
	}
	out.ReleaseLease = r.lease.releasing && now >= r.lease.releaseAt
	r.tickUnstable(now, &out)
	if len(out.Down) == 0 && r.responsible() && r.gone > 0 && now-r.changedAt >= r.settings.StableAfter {
		r.decide(now, &out)
	}
	r.tickRegain(&out)
	return out
}

// see handles a view. While the lease is requested, the pending decision is about the earlier view;
// later changes are handled afterwards.
func (r *Resolver) see(now time.Duration, v View, out *Effects) {
	if r.settings.Strategy == automatic {
		r.suspect(now, &v, out)
		r.view, r.started = v, true
		return
	}
	if r.lease.phase != idle {
		r.lease.queue(diff(r.self, &r.lease.latest, &v), v)
		r.endOwnerWait(now, out)
		return
	}
	r.apply(now, diff(r.self, &r.view, &v), v, out)
}

func (r *Resolver) apply(now time.Duration, c change, v View, out *Effects) {
	before := r.view
	r.view = v
	if !r.started || c.restart || c.newcomers && r.gone == 0 {
		r.changedAt = now
	}
	r.started = true
	if !membership.SameSlice(before.Members, v.Members) || !membership.SameSlice(before.Unreachable, v.Unreachable) {
		r.settings = r.configured.For(len(v.Members))
		r.gone = len(v.gone(r.self))
		r.checkSize(out)
	}
	if c.removed {
		r.lease.removed(now, &r.settings, &v)
	}
	if c.reach > 0 {
		if r.changes == 0 {
			r.firstAt = now
		}
		r.latestAt = now
		r.changes += c.reach
	}
	if c != (change{}) && !slices.ContainsFunc(v.Unreachable, func(n identity.Node) bool { return !r.leavesAnyway(n) && !v.isNewcomer(&n) }) {
		r.changes = 0
	}
	if r.orphaned() {
		self := []identity.Node{r.self} // other joining members detect this themselves
		out.Notes = append(out.Notes, Note{Kind: Orphaned, Decision: KeepNobody, Down: self})
		out.Down = self
	}
}

// orphaned reports whether all members that may have accepted this node have been downed. If such a
// node continued alone as the leader, it would remove the other side of a partition, which may have
// survived.
func (r *Resolver) orphaned() bool {
	if s := r.view.status(r.self); s != identity.Joining && s != identity.WeaklyUp {
		return false
	}
	given := false
	for i := range r.view.Members {
		switch m := &r.view.Members[i]; m.Status {
		case identity.Down:
			given = given || m.UpNumber != identity.NeverUp
		case identity.Joining, identity.WeaklyUp:
		case identity.Up, identity.Leaving, identity.Exiting, identity.Removed, identity.PreparingForShutdown, identity.ReadyForShutdown:
			return false
		}
	}
	return given
}

func (r *Resolver) leavesAnyway(n identity.Node) bool {
	s := r.view.status(n)
	return s == identity.Down || s == identity.Exiting || s == identity.Removed
}

func (r *Resolver) checkSize(out *Effects) {
	if r.settings.Strategy != downing.StaticQuorum {
		return
	}
	p := partition{members: r.view.Members, gone: r.view.gone(r.self)}
	c := p.count(countedBy(r.settings.Role))
	outgrown := r.settings.outgrown(c.all())
	if outgrown && !r.outgrown {
		out.Notes = append(out.Notes, Note{Kind: Outgrown, Here: c.here, There: c.there})
	}
	r.outgrown = outgrown
}

// responsible reports whether this node decides: it leads or holds the lease, and its status allows
// decisions.
func (r *Resolver) responsible() bool {
	return mayDecide(r.view.status(r.self)) && (r.view.Leader || r.lease.held && !r.lease.lost)
}

// mayDecide reports whether a member with this status may decide: it has been at least WeaklyUp. A
// leaving member may decide, because it could not leave without a decision.
func mayDecide(s identity.Status) bool {
	return s != identity.Joining && s != identity.Down && s != identity.Removed
}

// tickUnstable downs all members if the reachability does not become stable in time. All nodes do
// this, because they may not agree on a leader.
func (r *Resolver) tickUnstable(now time.Duration, out *Effects) {
	switch {
	case r.changes == 0:
	case r.settings.DownAllWhenUnstable < 0:
		if now-r.latestAt > 2*r.settings.StableAfter {
			r.changes = 0
		}
	case now-r.firstAt > r.settings.StableAfter+r.settings.DownAllWhenUnstable:
		r.act(now, Unstable, KeepNobody, out)
	}
}

func (r *Resolver) decide(now time.Duration, out *Effects) {
	p := newPartition(r.self, &r.view)
	decision := r.settings.decide(&p)
	switch {
	case r.settings.Strategy != downing.LeaseMajority:
		r.act(now, Decided, decision, out)
	case p.onlyNewcomers():
		r.act(now, Decided, KeepOtherSide, out)
	case !r.lease.held && p.onlyLeaves():
		// The other side may have removed the members of this side without a decision. They are
		// leaving anyway, so this side does not request the lease.
		r.act(now, Decided, KeepOtherSide, out)
	default:
		r.ask(now, decision, &p, out)
	}
}

// act carries out a decision and returns the downed nodes.
func (r *Resolver) act(now time.Duration, kind NoteKind, decision Decision, out *Effects) []identity.Node {
	p := newPartition(r.self, &r.view)
	nodes, decision := r.settings.nodesToDown(&p, decision)
	if len(nodes) == 0 {
		return nil
	}
	sides := p.sides()
	c := sides.count(countedBy(r.settings.Role))
	out.Notes = append(out.Notes, Note{Kind: kind, Decision: decision, Down: nodes, Here: c.here, There: c.there})
	out.Down = slices.Clone(nodes)
	if i := slices.Index(nodes, r.self); i >= 0 { // this node is the last
		out.Down = append(slices.Delete(out.Down, i, i+1), r.self)
	}
	r.changes = 0
	r.changedAt = now
	return nodes
}

// link handles a lost or restored connection. Observations during the disconnection are not
// evidence about other nodes.
func (r *Resolver) link(now time.Duration, up bool, out *Effects) {
	if r.disconnected == !up {
		return
	}
	r.disconnected = !up
	if !up {
		r.abandon(now, out)
		return
	}
	r.changedAt = now
	r.changes = 0
	for i := range r.suspects {
		r.suspects[i].since = now
	}
}

// suspect is an unreachable member, with the time since which automatic downing has found it
// unreachable.
type suspect struct {
	node  identity.Node
	since time.Duration
}

func (r *Resolver) suspect(now time.Duration, v *View, out *Effects) {
	if !r.warned {
		r.warned = true
		out.Notes = append(out.Notes, Note{Kind: Automatic})
	}
	if r.started && membership.SameSlice(r.view.Unreachable, v.Unreachable) {
		return
	}
	suspects := make([]suspect, 0, len(v.Unreachable))
	for _, n := range v.Unreachable {
		s := suspect{n, now}
		if i := slices.IndexFunc(r.suspects, func(s suspect) bool { return s.node == n }); i >= 0 {
			s = r.suspects[i]
		}
		suspects = append(suspects, s)
	}
	r.suspects = suspects
}

func (r *Resolver) tickAutomatic(now time.Duration, out *Effects) {
	if !r.responsible() {
		return
	}
	var nodes []identity.Node
	for _, s := range r.suspects {
		if now-s.since >= r.settings.StableAfter && !r.leavesAnyway(s.node) {
			nodes = append(nodes, s.node)
		}
	}
	if len(nodes) > 0 {
		out.Notes = append(out.Notes, Note{Kind: Automatic, Down: nodes})
		out.Down = slices.Clone(nodes)
	}
}
