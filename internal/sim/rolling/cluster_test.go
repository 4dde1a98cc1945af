// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/sim/env"
)

const (
	// settled is the time from Up of a node until the stop of the next node.
	settled = 5 * time.Second
	// Afterwards is the maximum time after the last restart until shards are balanced.
	Afterwards = 300 * time.Second
	// Balanced is the maximum difference, at that time, between the most and the fewest shards of a
	// region.
	Balanced = 2
)

// Order selects the order of restarts.
type Order uint8

const (
	// AnyOrder is a random order.
	AnyOrder Order = iota
	// OldestFirst moves the coordinator with each restart.
	OldestFirst
	// YoungestFirst moves the coordinator once, at the end.
	YoungestFirst
)

func (o Order) String() string { return [...]string{"any", "oldest first", "youngest first"}[o] }

// Restart configures a simulation.
type Restart struct {
	Seed          uint64
	Nodes, Shards int
	Order         Order
	// Watch is how long the simulation continues after the last restart. Defaults to Afterwards.
	Watch time.Duration
	// Progress is called during the simulation, unless it is nil.
	Progress func(at time.Duration, restarted int)
}

// Result is the result of a simulation. Times are simulated.
type Result struct {
	// Err reports a violated rule or a missed deadline.
	Err error
	// Restarts is the number of restarted nodes, Took the duration of all restarts.
	Restarts int
	Took     time.Duration
	// HandOffs is the number of completed hand-offs, and Failed the number of abandoned ones. Most
	// is the maximum number of hand-offs of one shard.
	HandOffs, Failed, Most int
	// Owners is the maximum number of nodes that hosted one shard at the same time.
	Owners int
	// Widest is the largest difference between the most and the fewest shards of a region before
	// the end of the last restart. Spread is the difference at the end. BalancedAfter is the time
	// from the last restart until the difference stayed at most Balanced, -1 if it did not.
	Widest, Spread int
	BalancedAfter  time.Duration
	// Leaving is the maximum time that a leaving node needed for its hand-offs. Forced is the
	// number of nodes that were stopped because their hand-offs took too long.
	Leaving time.Duration
	Forced  int
	// Coordinators is the number of coordinators.
	Coordinators int
	// Commands is the number of sent commands. Delivered of them reached their entity. For Refused
	// of them the sender received an error.
	Commands, Delivered, Refused int
	// Steps is the number of steps of all machines.
	Steps int
}

// Run runs the simulation.
func (r Restart) Run() Result {
	c := &cluster{
		Restart: r, w: env.New(r.Seed), nodes: make([]*node, r.Nodes), byNode: map[identity.Node]*node{}, owners: make([]*node, r.Shards),
		living: make([]*node, r.Shards), moves: make([]int, r.Shards),
	}
	c.run()
	return c.result
}

func (c *cluster) run() {
	c.form()
	if !c.until(time.Minute, "all regions are registered", c.allRegistered) {
		return
	}
	for s := range c.Shards { // each gets a home
		c.command(c.nodes[c.w.Rand.IntN(c.Nodes)], shardcore.Shard(s))
	}
	if !c.until(time.Minute, "all shards have a home", func() bool { return c.owned == c.Shards && c.state.Shards() == c.Shards }) {
		return
	}
	c.begin()
	began := c.w.Now()
	for _, i := range c.order() {
		c.restart(i)
		if !c.until(5*time.Minute, fmt.Sprintf("restart %d is done", c.result.Restarts), func() bool { return !c.restarting }) {
			return
		}
		c.result.Widest = max(c.result.Widest, c.spread())
	}
	c.result.Took = c.w.Now() - began
	c.balance()
	c.sends = false
	c.until(time.Minute, "all commands are delivered or refused", func() bool {
		return c.result.Delivered+c.result.Refused == c.result.Commands
	})
}

// order returns the indexes of the nodes in the order of their restarts. Before the first restart,
// the node with index 0 is the oldest.
func (c *cluster) order() []int {
	order := c.w.Rand.Perm(c.Nodes)
	if c.Order != AnyOrder {
		slices.Sort(order)
	}
	if c.Order == YoungestFirst {
		slices.Reverse(order)
	}
	return order
}

func (c *cluster) balance() {
	end := c.w.Now()
	c.result.BalancedAfter = -1
	for c.w.Now() < end+cmp.Or(c.Watch, Afterwards) && c.result.Err == nil {
		c.w.Run(time.Second, c.broken)
		switch c.result.Spread = c.spread(); {
		case c.result.Spread > Balanced:
			c.result.BalancedAfter = -1
		case c.result.BalancedAfter < 0:
			c.result.BalancedAfter = c.w.Now() - end
		}
		c.report()
	}
}

// until advances the time until a condition holds, and reports whether it does.
func (c *cluster) until(most time.Duration, subject string, holds func() bool) bool {
	reached := c.w.Until(most, 100*time.Millisecond, func() bool {
		c.report()
		return holds()
	}, c.broken)
	if !reached {
		c.violate("after %v: not reached: %s", most, subject)
	}
	return !c.broken()
}

func (c *cluster) broken() bool { return c.result.Err != nil }

func (c *cluster) violate(format string, args ...any) {
	if c.result.Err == nil {
		c.result.Err = fmt.Errorf("%v: "+format, append([]any{c.w.Now()}, args...)...)
	}
}

func (c *cluster) report() {
	if c.Progress != nil && c.w.Now()%time.Second == 0 {
		c.Progress(c.w.Now(), c.result.Restarts)
	}
}

// The versions of the application.
const (
	old    = "1.0.0"
	recent = "1.1.0"
)

type cluster struct {
	Restart

	w          *env.Env
	result     Result
	nodes      []*node // the latest process of each name; at the start the first is the oldest
	byNode     map[identity.Node]*node
	uids       uint64
	owners     []*node // by shard
	owned      int     // number of shards with an owner
	living     []*node // by shard: the node that runs its entity
	moves      []int   // by shard: number of hand-offs
	restarting bool
	begun      bool   // hand-offs are counted
	sends      bool   // nodes send commands
	arrived    []bool // by the number of the command, from 1

	// The journal with the state of coordinators.
	state coordinator.State
	rev   uint64

	// The membership.
	version uint64
	members []identity.Member // sorted by node
	ups     int32             // number of members that have become Up
}

func (c *cluster) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.w.Rand.Int64N(int64(most-least)))
}

// delay returns a random transit time. Frames with different transit times may overtake each other.
func (c *cluster) delay() time.Duration { return c.between(time.Millisecond, 5*time.Millisecond) }

func (c *cluster) start(i int, version string) *node {
	c.uids++
	n := &node{c: c, nr: i, self: identity.Node{Name: fmt.Sprintf("node-%04d", i), UID: c.uids}, entities: map[place]bool{}}
	var err error
	if n.version, err = identity.ParseVersion(version); err != nil {
		panic(fmt.Sprintf("rolling: %v", err)) // constant
	}
	retry := 2 * time.Second
	n.m, err = shardcore.New(shardcore.Config{ // the defaults of package sharding
		Region:      region.Config{Self: n.self, Type: "account", Instance: 1, RetryInterval: retry, GiveUpAfter: 3 * retry},
		Shard:       shard.Config{StopTimeout: 55 * time.Second},
		Coordinator: coordinator.Config{Shards: c.Shards, RemovalMargin: func(int) time.Duration { return 20 * time.Second }, RetryInterval: retry},
	})
	if err != nil {
		panic(fmt.Sprintf("rolling: %v: %v", n.self, err)) // the simulator made the configuration
	}
	c.byNode[n.self] = n
	return n
}

func (c *cluster) allRegistered() bool {
	for _, n := range c.nodes {
		if !n.m.Registered() {
			return false
		}
	}
	return true
}

func (c *cluster) begin() {
	c.begun, c.sends = true, true
	for _, n := range c.nodes {
		c.send(n)
	}
}

// Durations measured in simulations of 500 nodes with real membership.
const (
	// gossip is the maximum time until a node learns of a change.
	gossip = 4 * time.Second
	// The leader detects convergence some seconds later and continues.
	agreementLeast, agreementMost = 3 * time.Second, 5 * time.Second
	// A process that has ended remains a member for some time.
	removalLeast, removalMost = 8 * time.Second, 12 * time.Second
	// The process returns after some seconds as another incarnation.
	startingLeast, startingMost = time.Second, 4 * time.Second
	// maxLeaving is how long a leaving node waits for its hand-offs.
	maxLeaving = 9 * time.Second
)

// setStatus changes the status of a member, or adds or removes it. Each node learns the change
// after its own delay. setStatus calls then when all nodes have learned it.
func (c *cluster) setStatus(n *node, s identity.Status, then func()) {
	c.version++
	c.members = slices.Clone(c.members)
	i, found := membership.Find(c.members, n.self)
	if !found {
		c.members = slices.Insert(c.members, i, identity.Member{Node: n.self, UpNumber: identity.NeverUp, Version: n.version})
	}
	c.members[i].Status = s
	switch s {
	case identity.Up:
		c.ups++
		c.members[i].UpNumber = c.ups
	case identity.Removed:
		c.members = slices.Delete(c.members, i, i+1)
	case identity.Joining, identity.WeaklyUp, identity.Leaving, identity.Exiting, identity.Down, identity.PreparingForShutdown, identity.ReadyForShutdown:
	}
	c.publishMembers(then)
}

// setStatusAndWait is like setStatus, but calls then when the member itself has learned the change.
func (c *cluster) setStatusAndWait(n *node, s identity.Status, then func()) {
	n.awaits, n.then = c.version+1, then
	c.setStatus(n, s, func() {})
}

func (c *cluster) publishMembers(then func()) {
	version, members, last := c.version, c.members, time.Duration(0)
	for _, n := range c.nodes {
		if n.gone {
			continue
		}
		at := c.between(0, gossip)
		last = max(last, at)
		c.w.After(at, func() { n.learn(version, members) })
	}
	c.w.After(last+c.between(agreementLeast, agreementMost), then)
}

// learn handles a version of the membership unless the node has a later one.
func (n *node) learn(version uint64, members []identity.Member) {
	if version <= n.members || n.gone {
		return
	}
	n.members = version
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
	for i := range c.members {
		if m := &c.members[i]; m.Status == identity.Up && (oldest == nil || m.OlderThan(oldest)) {
			oldest = m
		}
	}
	return c.byNode[oldest.Node]
}

// form forms a cluster of nodes with the old version.
func (c *cluster) form() {
	for i := range c.Nodes {
		c.nodes[i] = c.start(i, old)
	}
	for _, n := range c.nodes {
		c.ups++
		c.members = append(c.members, identity.Member{Node: n.self, Status: identity.Up, UpNumber: c.ups, Version: n.version})
	}
	slices.SortFunc(c.members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	c.version++
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
	n.regionStopped = func() {
		c.result.Leaving = max(c.result.Leaving, c.w.Now()-began)
		then()
	}
	c.w.After(maxLeaving, func() {
		if n.regionStopped != nil {
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
	n.coordinatorStopped = func() {
		c.w.After(c.delay(), func() { c.oldest().step(shardcore.StartCoordinator{}) })
		then()
	}
	n.step(shardcore.StopCoordinator{})
}

// replace ends a process and starts one with the new version. The restart is complete some seconds
// after the new process has learned that it is Up.
func (c *cluster) replace(n *node) {
	n.end()
	changes := 0
	admit := func() {
		if changes++; changes == 2 { // the old incarnation is removed, the new one is Joining
			c.setStatusAndWait(c.nodes[n.nr], identity.Up, func() {
				c.w.After(settled, func() {
					c.result.Restarts++
					c.restarting = false
				})
			})
		}
	}
	c.w.After(c.between(removalLeast, removalMost), func() { c.setStatus(n, identity.Removed, admit) })
	c.w.After(c.between(startingLeast, startingMost), func() {
		next := c.start(n.nr, recent)
		c.nodes[n.nr] = next
		c.send(next)
		c.setStatus(next, identity.Joining, admit)
	})
}
