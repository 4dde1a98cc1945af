// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore"
)

// Durations measured in simulations of 500 nodes with real membership.
const (
	// gossip is the maximum time until a node learns of a change.
	gossip = 4 * time.Second
	// The leader detects convergence some seconds later and continues.
	agreementLeast, agreementMost = 3 * time.Second, 5 * time.Second
	// A process that has ended is a member for some time.
	removalLeast, removalMost = 8 * time.Second, 12 * time.Second
	// It returns after some seconds as another incarnation.
	startingLeast, startingMost = time.Second, 4 * time.Second
	// maxLeaving is how long a leaving node waits for its hand-offs.
	maxLeaving = 9 * time.Second
)

// list is a version of the membership.
type list struct {
	version uint64
	members []identity.Member // sorted by node
	ups     int32
}

// setStatus changes the status of a member, or adds or removes it. Each node learns it after its
// own delay. The function then is called when all have.
func (c *cluster) setStatus(n *node, s identity.Status, then func()) {
	l := &c.list
	l.version++
	l.members = slices.Clone(l.members)
	i, found := membership.Find(l.members, n.self)
	if !found {
		l.members = slices.Insert(l.members, i, identity.Member{Node: n.self, UpNumber: identity.NeverUp, Version: n.version})
	}
	l.members[i].Status = s
	switch s {
	case identity.Up:
		l.ups++
		l.members[i].UpNumber = l.ups
	case identity.Removed:
		l.members = slices.Delete(l.members, i, i+1)
	case identity.Joining, identity.WeaklyUp, identity.Leaving, identity.Exiting, identity.Down, identity.PreparingForShutdown, identity.ReadyForShutdown:
	}
	c.publishMembers(then)
}

// setStatusAndWait is setStatus; it calls then when the member itself has learned the change.
func (c *cluster) setStatusAndWait(n *node, s identity.Status, then func()) {
	n.awaits, n.then = c.list.version+1, then
	c.setStatus(n, s, func() {})
}

// publishMembers sends the membership to all nodes.
func (c *cluster) publishMembers(then func()) {
	version, members, last := c.list.version, c.list.members, time.Duration(0)
	for _, n := range c.nodes {
		if n.gone {
			continue
		}
		at := c.between(0, gossip)
		last = max(last, at)
		c.w.After(at, func() { n.hear(version, members) })
	}
	c.w.After(last+c.between(agreementLeast, agreementMost), then)
}

// hear handles a version of the membership unless the node has a later one.
func (n *node) hear(version uint64, members []identity.Member) {
	if version <= n.heard || n.gone {
		return
	}
	n.heard = version
	in := shardcore.Members{}
	in.Members.Members = members
	n.step(in)
	if f := n.then; f != nil && version >= n.awaits {
		n.then = nil
		f()
	}
}

// oldest returns the member that should run the coordinator.
func (c *cluster) oldest() *node {
	var oldest *identity.Member
	for i := range c.list.members {
		if m := &c.list.members[i]; m.Status == identity.Up && (oldest == nil || m.OlderThan(oldest)) {
			oldest = m
		}
	}
	return c.byNode[oldest.Node]
}

// found creates a cluster of nodes with the old version.
func (c *cluster) found() {
	for i := range c.Nodes {
		c.nodes[i] = c.start(i, old)
	}
	for _, n := range c.nodes {
		c.list.ups++
		c.list.members = append(c.list.members, identity.Member{Node: n.self, Status: identity.Up, UpNumber: c.list.ups, Version: n.version})
	}
	slices.SortFunc(c.list.members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	c.list.version++
	c.publishMembers(func() { c.oldest().step(shardcore.StartCoordinator{}) })
}

// restart shuts a node down gracefully and starts it again.
func (c *cluster) restart(i int) {
	c.restarting = true
	n := c.nodes[i]
	c.leave(n, func() {
		c.setStatus(n, identity.Leaving, func() {
			c.setStatusAndWait(n, identity.Exiting, func() {
				c.handOver(n, func() { c.replace(n) })
			})
		})
	})
}

// leave hands off the shards of a node, the first step of its shutdown.
func (c *cluster) leave(n *node, then func()) {
	began := c.w.Now()
	n.leaving = true
	n.left = func() {
		c.result.Leaving = max(c.result.Leaving, c.w.Now()-began)
		then()
	}
	c.w.After(maxLeaving, func() {
		if n.left != nil {
			c.result.Forced++
			n.step(shardcore.Stop{})
		}
	})
	n.step(shardcore.Leave{})
}

// handOver moves the coordinator if the node runs it.
func (c *cluster) handOver(n *node, then func()) {
	if n.m.LocalCoordinator() == nil {
		then()
		return
	}
	n.dismissed = func() {
		c.w.After(c.delay(), func() { c.oldest().step(shardcore.StartCoordinator{}) })
		then()
	}
	n.step(shardcore.StopCoordinator{})
}

// replace ends a process and starts one with the new version.
func (c *cluster) replace(n *node) {
	n.end()
	removed, next := false, (*node)(nil)
	admit := func() {
		if removed && next != nil {
			c.admit(next)
		}
	}
	c.w.After(c.between(removalLeast, removalMost), func() {
		c.setStatus(n, identity.Removed, func() {
			removed = true
			admit()
		})
	})
	c.w.After(c.between(startingLeast, startingMost), func() {
		fresh := c.start(n.nr, recent)
		c.nodes[n.nr] = fresh
		c.send(fresh)
		c.setStatus(fresh, identity.Joining, func() {
			next = fresh
			admit()
		})
	})
}

// admit makes a node Up, and completes its restart some seconds after it has learned that.
func (c *cluster) admit(n *node) {
	c.setStatusAndWait(n, identity.Up, func() {
		c.w.After(settled, func() {
			c.result.Restarts++
			c.restarting = false
		})
	})
}
