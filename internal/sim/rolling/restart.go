// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"cmp"
	"fmt"
	"time"

	"github.com/refold-io/refold/internal/sim/env"
)

const (
	// settled is how long after a node is Up the next one is stopped.
	settled = 5 * time.Second
	// Afterwards is how long after the last restart it may take until shards are balanced.
	Afterwards = 300 * time.Second
	// Balanced is by how many shards the fullest and the emptiest region may differ then.
	Balanced = 2
)

// Order says which node is started anew first.
type Order uint8

const (
	// AnyOrder is one by chance.
	AnyOrder Order = iota
	// OldestFirst moves the coordinator with each restart.
	OldestFirst
	// YoungestFirst moves it once, in the end.
	YoungestFirst
)

func (o Order) String() string { return [...]string{"any", "oldest first", "youngest first"}[o] }

// Restart says what is simulated.
type Restart struct {
	Seed          uint64
	Nodes, Shards int
	Order         Order
	// Watch is how long after the last restart it is looked at what happens. Defaults to Afterwards.
	Watch time.Duration
	// Progress is told how far it is, if it is not nil.
	Progress func(at time.Duration, restarted int)
}

// Result is what came of it. Times are simulated.
type Result struct {
	// Err says which rule was broken, or what did not happen in time.
	Err error
	// Restarts is how many nodes were started anew, and Took how long that was.
	Restarts int
	Took     time.Duration
	// HandOffs is how many hand-offs of shards were completed, Failed how many were given up. Most is how often one shard was handed off.
	HandOffs, Failed, Most int
	// Owners is the largest number of nodes that hosted one shard at a time.
	Owners int
	// Widest is the largest difference between the fullest and the emptiest region before the end of the last restart, Spread the one at the end of
	// all, and BalancedAfter how long after the last restart it was at most Balanced for good, -1 if it never was.
	Widest, Spread int
	BalancedAfter  time.Duration
	// Leaving is how long a node has taken at most to give its shards away, Forced how many nodes did not in time.
	Leaving time.Duration
	Forced  int
	// Coordinators is how many there were, one after the other.
	Coordinators int
	// Commands were sent to entities, Delivered reached them, Refused are those whose senders were told that they did not.
	Commands, Delivered, Refused int
	// Steps is how many steps the machines have taken.
	Steps int
}

// Run simulates it.
func (r Restart) Run() Result {
	c := newCluster(r, env.New(r.Seed))
	c.run()
	return c.result
}

// run is all of a simulation.
func (c *cluster) run() {
	c.found()
	if !c.until(time.Minute, "all regions are registered", c.allRegistered) {
		return
	}
	c.wantAll()
	if !c.until(time.Minute, "all shards have a home", c.allHosted) {
		return
	}
	c.begin()
	began := c.w.Now()
	for _, i := range c.order() {
		c.restart(i)
		if !c.until(5*time.Minute, fmt.Sprintf("restart %d is done", c.result.Restarts), func() bool { return !c.restarting }) {
			return
		}
		c.result.Widest = max(c.result.Widest, c.store.spread())
	}
	c.result.Took = c.w.Now() - began
	c.balance()
	c.sends = false
	c.until(time.Minute, "all commands have come to their end", func() bool {
		return c.result.Delivered+c.result.Refused == c.result.Commands
	})
}

// order returns the nodes, by age, in the order in which they are started anew.
func (c *cluster) order() []int {
	order := c.w.Rand.Perm(c.Nodes)
	for i := range order {
		switch c.Order {
		case OldestFirst:
			order[i] = i
		case YoungestFirst:
			order[i] = c.Nodes - 1 - i
		case AnyOrder:
		}
	}
	return order
}

// balance lets the time pass in which shards have to be balanced again.
func (c *cluster) balance() {
	end := c.w.Now()
	c.result.BalancedAfter = -1
	for c.w.Now() < end+cmp.Or(c.Watch, Afterwards) && c.result.Err == nil {
		c.w.Run(time.Second, c.broken)
		switch c.result.Spread = c.store.spread(); {
		case c.result.Spread > Balanced:
			c.result.BalancedAfter = -1
		case c.result.BalancedAfter < 0:
			c.result.BalancedAfter = c.w.Now() - end
		}
		c.tell()
	}
}

// until lets time pass until something holds, and reports whether it did.
func (c *cluster) until(most time.Duration, what string, holds func() bool) bool {
	for end := c.w.Now() + most; c.w.Now() < end && !holds() && c.result.Err == nil; {
		c.w.Run(100*time.Millisecond, c.broken)
		c.tell()
	}
	if !holds() {
		c.violate("after %v it is not true that %s", most, what)
	}
	return c.result.Err == nil
}

func (c *cluster) broken() bool { return c.result.Err != nil }

// violate notes the first rule that was broken.
func (c *cluster) violate(format string, args ...any) {
	if c.result.Err == nil {
		c.result.Err = fmt.Errorf("%v: "+format, append([]any{c.w.Now()}, args...)...)
	}
}

func (c *cluster) tell() {
	if c.Progress != nil && c.w.Now()%time.Second == 0 {
		c.Progress(c.w.Now(), c.result.Restarts)
	}
}
