// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
)

// maxUnrest is the maximum duration of the fault phase.
const maxUnrest = 20 * time.Minute

// Result is the result of a simulation.
type Result struct {
	Seed uint64
	Plan Plan
	// Violation is the broken invariant, or nil.
	Violation *Violation
	// Hash is a hash of all events.
	Hash uint64
	// Took is the simulated time, Faults the number of faults.
	Took   time.Duration
	Faults int
	// Messages is the number of messages to entities. Replicated is true if the coordinator's state
	// was in replicated data.
	Messages   int
	Replicated bool
	Coverage   Coverage
}

// Options configures a simulation.
type Options struct {
	// Trace is called with each event as text. Nil means no trace.
	Trace func(at time.Duration, text string)
}

// Run simulates a seed.
func Run(seed uint64, o Options) Result {
	plan := NewPlan(seed)
	c := newCluster(seed, plan)
	c.w.Trace = o.Trace
	c.w.Logf("%v", plan)
	c.w.Logf("data: %v", c.data.plan)
	c.w.Logf("sharding: %v", c.shard.plan)
	c.live()
	for _, h := range c.hosts {
		c.count(h)
		c.data.count(h.data)
	}
	c.shard.mustHappen()
	for _, s := range c.shard.all {
		s.endStoreCalls()
	}
	return Result{
		Seed: seed, Plan: plan, Violation: c.violation, Hash: c.w.Hash(), Took: c.w.Now(), Faults: c.faults,
		Messages: len(c.shard.commands), Replicated: c.shard.plan.Replicated, Coverage: c.coverage,
	}
}

// live performs all phases of a simulation.
func (c *cluster) live() {
	c.begin()
	c.data.begin()
	c.shard.begin()
	if !c.settle("comes-up", time.Minute) {
		return
	}
	begun := c.w.Now()
	for c.violation == nil && (c.faults < c.plan.Faults || c.w.Now() < begun+c.plan.Least) {
		if c.w.Now() > begun+maxUnrest { // most faults are not possible without the first seed
			c.violate("comes-together", c.hosts[0].p.Node(), "after %v only %d faults were possible: %s", c.w.Now()-begun, c.faults, c.unsettled())
		}
		c.injectFault()
		c.run(c.between(500*time.Millisecond, 20*time.Second))
	}
	c.heal()
	c.run(2 * c.plan.LeaseCall) // pending lease calls are answered and take effect
	if !c.settle("comes-together", 4*time.Minute) {
		return
	}
	c.shard.calm()
	if c.violation == nil {
		c.shard.finish()
	}
	c.data.calm()
	c.run(20 * time.Second) // no workload and no faults
	if why := c.unsettled(); why != "" && c.violation == nil {
		c.violate("stays-together", c.hosts[0].p.Node(), "%s", why)
	}
	if c.violation == nil {
		c.data.finish()
	}
	if c.plan.Shutdown && c.violation == nil {
		c.shutDown()
	}
}

// settle waits until all nodes form one cluster.
func (c *cluster) settle(invariant string, most time.Duration) bool {
	if c.until(most, func() bool { return c.unsettled() == "" }) {
		return true
	}
	c.violate(invariant, c.hosts[0].p.Node(), "after %v: %s", most, c.unsettled())
	return false
}

func (c *cluster) heal() {
	c.w.Logf("all is healed")
	c.w.Network.Heal()
	c.store.Heal()
	clear(c.overload)
	c.shard.misconfigured = ""
	c.restarts = true
	for _, h := range c.hosts {
		place := h.p.Place()
		place.NoUp, place.NoDown, place.Slow = false, false, 0
	}
	c.updateDeaf()
	for _, h := range c.hosts {
		c.resume(h)
	}
	for _, h := range c.living() {
		h.p.Connection(true)
		if h.site.m.Drained() || h.site.wrongSetting != "" {
			h.site.restart()
		}
	}
	c.faultEnded = c.w.Now()
}

// shutDown shuts down the whole cluster, as operators do.
func (c *cluster) shutDown() {
	c.w.Logf("all is shut down")
	for _, name := range c.names {
		c.notRestarted[name] = true
	}
	for _, h := range c.living() {
		c.leaving[h.p.Node()] = true
	}
	c.any().submit(node.Membership{Input: membership.PrepareForShutdown{}})
	ready := func() bool {
		for _, h := range c.living() {
			for _, m := range h.m.Gossip().Members() {
				if m.Status != identity.ReadyForShutdown {
					return false
				}
			}
		}
		return true
	}
	if !c.until(time.Minute, ready) {
		c.violate("shuts-down", c.hosts[0].p.Node(), "not all are ready")
		return
	}
	for _, h := range c.living() {
		h.submit(node.Membership{Input: membership.Leave{Node: h.p.Node()}})
	}
	if !c.until(time.Minute, func() bool { return len(c.living()) == 0 }) {
		c.violate("shuts-down", c.hosts[0].p.Node(), "%d nodes do not stop", len(c.living()))
	}
}

// Many simulates n seeds from first on, in parallel. It calls done with each result, one at a time
// and in any order. It stops when the context ends.
func Many(ctx context.Context, first, n uint64, parallel int, done func(Result)) {
	seeds := make(chan uint64)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range max(1, parallel) {
		workers.Go(func() {
			for seed := range seeds {
				r := Run(seed, Options{})
				mu.Lock()
				done(r)
				mu.Unlock()
			}
		})
	}
	for seed := first; seed < first+n && ctx.Err() == nil; seed++ {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()
}
