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
	// settled is the time between a node becoming Up and the stop of the next one.
	settled = 5 * time.Second
	// Afterwards is the maximum time after the last restart until shards are balanced.
	Afterwards = 300 * time.Second
	// Balanced is the maximum difference between the most and the fewest shards of a region then.
	Balanced = 2
)

// Order selects the order of restarts.
type Order uint8

const (
	// AnyOrder is a random order.
	AnyOrder Order = iota
	// OldestFirst moves the coordinator with each restart.
	OldestFirst
	// YoungestFirst moves it once, at the end.
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
	// HandOffs is the number of completed hand-offs, Failed of abandoned ones. Most is the maximum
	// number of hand-offs of one shard.
	HandOffs, Failed, Most int
	// Owners is the maximum number of nodes that hosted one shard at the same time.
	Owners int
	// Widest is the largest difference between the most and the fewest shards of a region before
	// the end of the last restart. Spread is the difference at the end. BalancedAfter is the time
	// from the last restart until the difference stayed at most Balanced, -1 if it did not.
	Widest, Spread int
	BalancedAfter  time.Duration
	// Leaving is the maximum time of the hand-offs of a leaving node. Forced is the number of nodes
	// that were too late.
	Leaving time.Duration
	Forced  int
	// Coordinators is the number of coordinators.
	Coordinators int
	// Commands is the number of sent commands, Delivered of those that reached their entity,
	// Refused of those that their senders got an error for.
	Commands, Delivered, Refused int
	// Steps is the number of steps of all machines.
	Steps int
}

// Run runs the simulation.
func (r Restart) Run() Result {
	c := newCluster(r, env.New(r.Seed))
	c.run()
	return c.result
}

// run is the state of a run.
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

// order returns the nodes, by age, in the order of their restarts.
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

// balance waits until the shards are balanced.
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

// until advances the time until a condition holds, and reports whether it does.
func (c *cluster) until(most time.Duration, subject string, holds func() bool) bool {
	for end := c.w.Now() + most; c.w.Now() < end && !holds() && c.result.Err == nil; {
		c.w.Run(100*time.Millisecond, c.broken)
		c.tell()
	}
	if !holds() {
		c.violate("after %v it is not true that %s", most, subject)
	}
	return c.result.Err == nil
}

func (c *cluster) broken() bool { return c.result.Err != nil }

// violate records the first violated rule.
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
