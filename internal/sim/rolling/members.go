// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"slices"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore"
)

// How long things take is about what they take 500 real nodes that are simulated by themselves.
const (
	// gossip is how long it takes at most until a node hears of a change.
	gossip = 4 * time.Second
	// The leader knows some seconds after that that all have, and goes on.
	agreementLeast, agreementMost = 3 * time.Second, 5 * time.Second
	// A process that has ended is still a member for a while.
	removalLeast, removalMost = 8 * time.Second, 12 * time.Second
	// It is there again after some seconds, as another incarnation.
	startingLeast, startingMost = time.Second, 4 * time.Second
	// maxLeaving is how long a node that leaves waits at most until its shards are elsewhere.
	maxLeaving = 9 * time.Second
)

// list is who is in the cluster, from one change to the next.
type list struct {
	version uint64
	members []membership.Member // sorted by node
	ups     int32
}

// become changes the status of a member, or adds one, or removes it. All hear of it, each at its time, and then is called when all have.
func (c *cluster) become(n *node, s membership.Status, then func()) {
	l := &c.list
	l.version++
	l.members = slices.Clone(l.members)
	i, found := membership.Find(l.members, n.self)
	if !found {
		l.members = slices.Insert(l.members, i, membership.Member{Node: n.self, UpNumber: membership.NeverUp, Version: n.version})
	}
	l.members[i].Status = s
	switch s {
	case membership.Up:
		l.ups++
		l.members[i].UpNumber = l.ups
	case membership.Removed:
		l.members = slices.Delete(l.members, i, i+1)
	case membership.Joining, membership.WeaklyUp, membership.Leaving, membership.Exiting, membership.Down, membership.PreparingForShutdown, membership.ReadyForShutdown:
	}
	c.publish(then)
}

// becomes is become, and calls then when the member itself has heard of it.
func (c *cluster) becomes(n *node, s membership.Status, then func()) {
	n.awaits, n.then = c.list.version+1, then
	c.become(n, s, func() {})
}

// publish tells all nodes who is a member.
func (c *cluster) publish(then func()) {
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

// hear takes a version of the members, unless it knows a later one.
func (n *node) hear(version uint64, members []membership.Member) {
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

// oldest is the one that is to have the coordinator.
func (c *cluster) oldest() *node {
	var oldest *membership.Member
	for i := range c.list.members {
		if m := &c.list.members[i]; m.Status == membership.Up && (oldest == nil || m.OlderThan(oldest)) {
			oldest = m
		}
	}
	return c.byNode[oldest.Node]
}

// found makes a cluster of nodes of the old version, all at once.
func (c *cluster) found() {
	for i := range c.Nodes {
		c.nodes[i] = c.start(i, old)
	}
	for _, n := range c.nodes {
		c.list.ups++
		c.list.members = append(c.list.members, membership.Member{Node: n.self, Status: membership.Up, UpNumber: c.list.ups, Version: n.version})
	}
	slices.SortFunc(c.list.members, func(a, b membership.Member) int { return a.Node.Compare(b.Node) })
	c.list.version++
	c.publish(func() { c.oldest().step(shardcore.StartCoordinator{}) })
}

// restart lets a node leave in good order, and start again.
func (c *cluster) restart(i int) {
	c.restarting = true
	n := c.nodes[i]
	c.leave(n, func() {
		c.become(n, membership.Leaving, func() {
			c.becomes(n, membership.Exiting, func() {
				c.handOver(n, func() { c.replace(n) })
			})
		})
	})
}

// leave lets a node give its shards away, as the first thing it does when it shuts down.
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

// handOver moves the coordinator if the node has it.
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

// replace ends a process, and starts one with the new version in its place.
func (c *cluster) replace(n *node) {
	n.end()
	removed, next := false, (*node)(nil)
	admit := func() {
		if removed && next != nil {
			c.admit(next)
		}
	}
	c.w.After(c.between(removalLeast, removalMost), func() {
		c.become(n, membership.Removed, func() {
			removed = true
			admit()
		})
	})
	c.w.After(c.between(startingLeast, startingMost), func() {
		fresh := c.start(n.nr, recent)
		c.nodes[n.nr] = fresh
		c.send(fresh)
		c.become(fresh, membership.Joining, func() {
			next = fresh
			admit()
		})
	})
}

// admit makes a node Up. Some seconds after it knows that, it is done.
func (c *cluster) admit(n *node) {
	c.becomes(n, membership.Up, func() {
		c.w.After(settled, func() {
			c.result.Restarts++
			c.restarting = false
		})
	})
}
