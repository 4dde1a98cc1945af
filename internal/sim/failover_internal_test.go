// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// failOver crashes a member of a healthy cluster with the default downing settings. It returns the
// time until all other nodes have acknowledged commands for each shard, sent after the crash.
func failOver(t *testing.T, seed uint64, nodes int, victim func(*cluster) *host) time.Duration {
	t.Helper()
	plan := NewPlan(seed, nodes)
	plan.Config.Downing = splitbrain.Settings{}
	c := newCluster(seed, plan)
	d := c.shard
	d.plan.Proxy, d.quiet = "", true
	write := func() {
		for n := range d.plan.Shards {
			for _, s := range d.living() {
				s.h.p.Do(func() { s.write(d.accounts[n*d.plan.Entities]) })
			}
		}
	}
	c.begin()
	if c.converge("comes-up", 3*time.Minute, c.unsettled) {
		write()
		c.run(30 * time.Second)
	}
	if c.broken() {
		t.Fatalf("seed %d, %d nodes: %v", seed, nodes, c.violation)
	}
	h := victim(c)
	c.notRestarted[h.p.Node().Name] = true
	h.kill()
	crash, first := c.w.Now(), len(d.commands)
	answers := func() bool {
		write()
		answered := map[string]bool{}
		for _, l := range d.commands[first:] {
			if l.outcome == done {
				answered[fmt.Sprint(l.account.shard, l.from.h.p.Node())] = true
			}
		}
		return len(answered) == d.plan.Shards*(nodes-1)
	}
	if !c.until(2*time.Minute, answers) {
		t.Fatalf("seed %d, %d nodes: some shards of %v do not answer after its crash: %v", seed, nodes, h.p.Node(), c.violation)
	}
	return c.w.Now() - crash
}

// TestFailOver checks how long the shards of a crashed node do not answer with the default
// settings, including the detection: in a small cluster at most 20 s, and in a large one at least
// StableAfter and RemovalMargin of 20 s each.
func TestFailOver(t *testing.T) {
	t.Parallel()
	first := func(c *cluster) []identity.Member { return c.living()[0].m.View().Members }
	for name, victim := range map[string]func(*cluster) *host{
		"oldest": func(c *cluster) *host {
			return c.byNode[slices.MinFunc(first(c), func(a, b identity.Member) int { return int(a.UpNumber - b.UpNumber) }).Node]
		},
		"leader": func(c *cluster) *host { return c.byNode[c.living()[0].m.View().LeaderNode] },
		"other":  (*cluster).any,
	} {
		for _, size := range []struct {
			nodes, seeds int
			least, most  time.Duration
		}{{3, effort.Count(3, 10, 100), 10 * time.Second, 20 * time.Second}, {100, effort.Count(0, 0, 1), 40 * time.Second, 60 * time.Second}} {
			if size.seeds == 0 || size.nodes > 3 && name != "oldest" { // the others host few shards
				continue
			}
			t.Run(fmt.Sprint(name, " of ", size.nodes), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(size.seeds) {
					if took := failOver(t, seed, size.nodes, victim); took < size.least || took > size.most {
						t.Errorf("seed %d: the shards answer again after %v, want %v to %v", seed, took, size.least, size.most)
					}
				}
			})
		}
	}
}
