// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
)

// cluster is the nodes of a world, and what is known about them from outside.
type cluster struct {
	w     *env.World
	plan  Plan
	store *env.Store
	data  *data
	shard *sharding

	hosts  []*host // all there ever were
	byNode map[identity.Node]*host
	names  []string // that are meant to run

	coverage  Coverage
	violation *Violation

	// What the invariants remember.
	wasUp     map[identity.Node]bool
	wasGone   map[identity.Node]bool
	contents  map[membership.Digest]uint64
	delivered map[delivered]bool
	versions  map[version]bool

	// What happens.
	lag       map[string]time.Duration // of nodes that have too much to do
	quick     map[string]time.Duration // when the last message was handled that came while they had
	deaf      map[string]time.Duration // since when a node can't hear itself
	leaving   map[identity.Node]bool
	twins     map[identity.Node]bool // that want a name which is in use
	hopeless  map[identity.Node]membership.Reason
	retiring  map[string]bool // names that are not started again
	troubled  int             // troubles that go on and may be a reason to give up a member
	troubleAt time.Duration   // when the last one was over
	cutting   int             // cuts that go on
	faults    int
	restarts  bool
	watched   bool // nothing else is to happen
}

// Violation is an invariant that was broken.
type Violation struct {
	// Invariant is its name.
	Invariant string
	At        time.Duration
	Node      identity.Node
	What      string
}

func (v *Violation) String() string {
	who := ""
	if !v.Node.IsZero() {
		who = v.Node.String() + ": "
	}
	return fmt.Sprintf("%s after %v: %s%s", v.Invariant, v.At, who, v.What)
}

func newCluster(seed uint64, plan Plan) *cluster {
	w := env.New(seed)
	c := &cluster{
		w: w, plan: plan, store: w.NewStore(plan.LeaseTimeout), byNode: map[identity.Node]*host{}, names: plan.Names, coverage: Coverage{},
		wasUp: map[identity.Node]bool{}, wasGone: map[identity.Node]bool{}, contents: map[membership.Digest]uint64{}, delivered: map[delivered]bool{}, versions: map[version]bool{},
		lag: map[string]time.Duration{}, quick: map[string]time.Duration{}, deaf: map[string]time.Duration{}, leaving: map[identity.Node]bool{}, twins: map[identity.Node]bool{},
		hopeless: map[identity.Node]membership.Reason{}, retiring: map[string]bool{},
	}
	c.data = newData(c, seed, NewDataPlan(seed, plan))
	c.shard = newSharding(c, seed, NewShardsPlan(seed, plan))
	return c
}

// violate notes the first invariant that is broken.
func (c *cluster) violate(invariant string, n identity.Node, format string, args ...any) {
	if c.violation == nil {
		c.violation = &Violation{Invariant: invariant, At: c.w.Now(), Node: n, What: fmt.Sprintf(format, args...)}
		c.w.Tell("BROKEN: %v", c.violation)
	}
}

func (h *host) violate(invariant, format string, args ...any) {
	h.c.violate(invariant, h.p.Node(), format, args...)
}

// run lets time pass, until an invariant is broken.
func (c *cluster) run(d time.Duration) bool {
	return !c.w.Run(d, func() bool { return c.violation != nil }) && c.violation == nil
}

// undisturbed lets time pass in which operators do nothing, and reports whether all invariants hold.
func (c *cluster) undisturbed(d time.Duration) bool {
	c.watched = true
	defer func() { c.watched = false }()
	return c.run(d)
}

// until lets time pass until something holds, which is looked at a few times a second.
func (c *cluster) until(most time.Duration, holds func() bool) bool {
	for end := c.w.Now() + most; c.w.Now() < end; {
		if holds() {
			return true
		}
		if !c.run(250 * time.Millisecond) {
			return false
		}
	}
	return holds()
}

func (c *cluster) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.w.Rand.Int64N(int64(most-least)))
}

func (c *cluster) hit(table, row string) { c.coverage.hit(table, row, 1) }

// count adds what a node has counted, once, when it ends.
func (c *cluster) count(h *host) {
	if !h.p.Dead() {
		c.coverage.add(h.m.Counters())
	}
}

// latest returns the process with a name that lives, or nil. A twin may have taken the place of the
// one it had the name of.
func (c *cluster) latest(name string) *host {
	var found *host
	for _, h := range slices.Backward(c.hosts) {
		if h.p.Node().Name != name || h.p.Dead() {
			continue
		}
		if !c.twins[h.p.Node()] {
			return h
		}
		found = h
	}
	return found
}

// living returns the nodes that run and mean to go on.
func (c *cluster) living() []*host {
	var all []*host
	for _, h := range c.hosts {
		if h.alive() {
			all = append(all, h)
		}
	}
	return all
}

// members returns the living nodes that are members.
func (c *cluster) members() []*host {
	var all []*host
	for _, h := range c.hosts {
		if h.alive() && h.m.Member() {
			all = append(all, h)
		}
	}
	return all
}

// begin starts all nodes, within a few seconds.
func (c *cluster) begin() {
	for _, name := range c.names {
		place := c.w.Place(name)
		place.Drift = c.w.Rand.Int64N(2*maxDrift) - maxDrift
		place.Wall = c.between(-time.Minute, time.Minute)
		c.w.After(c.between(0, 4*time.Second), func() { c.join(c.start(name, nil)) })
	}
	c.w.After(5*time.Second, c.supervise)
}

// join lets a node join through the seeds.
func (c *cluster) join(h *host) {
	h.tell(node.Membership{Input: membership.JoinSeeds{Seeds: c.plan.Seeds}})
}

// supervise starts what has stopped again, as whoever runs the nodes does.
func (c *cluster) supervise() {
	c.w.After(c.between(500*time.Millisecond, 3*time.Second), c.supervise)
	for _, name := range c.names {
		if !c.restarts && c.w.Rand.IntN(4) > 0 || c.retiring[name] || c.latest(name) != nil || c.violation != nil {
			continue
		}
		c.restart(name)
	}
	for _, h := range c.living() { // who asks somebody who is no longer there is started again
		if c.restarts && !h.m.Member() && c.w.Now() > h.p.Began()+40*time.Second && c.w.Rand.IntN(5) == 0 {
			c.w.Tell("%v is killed: it does not come in", h.p.Node())
			h.kill()
		}
	}
}

// up reports whether a node knows for sure that it is a full member.
func (h *host) up() bool {
	me := h.m.Gossip().Member(h.p.Node())
	return me != nil && me.Status == membership.Up && !h.m.Suspended()
}

func (c *cluster) isSeed(h *host) bool { return slices.Contains(c.plan.Seeds, h.p.Node().Name) }

// wellSince is since when a node and the network are without troubles.
func (c *cluster) wellSince(h *host) time.Duration {
	if !c.well(h) || c.troubled > 0 {
		return c.w.Now()
	}
	return max(h.p.Resumed(), c.troubleAt)
}

// restart starts a node again, unless it would found a cluster of its own.
func (c *cluster) restart(name string) {
	members, seeds := c.members(), 0 // seeds let others in
	for _, h := range members {
		if n := h.p.Node().Name; n != name && c.isSeed(h) && c.well(h) && h.up() {
			seeds++
		}
	}
	first := name == c.plan.Seeds[0]
	switch {
	case len(members) == 0:
		c.join(c.start(name, nil))
	case first && (seeds == 0 || !c.wellAt(name)), seeds == 0:
		if c.restarts { // an operator names a living member
			h := c.start(name, nil)
			h.tell(node.Membership{Input: membership.JoinNode{Name: members[c.w.Rand.IntN(len(members))].p.Node().Name}})
		}
	default:
		c.join(c.start(name, nil))
	}
}

// well reports whether a node hears and is heard in time.
func (c *cluster) well(h *host) bool { return !h.p.Paused() && c.wellAt(h.p.Node().Name) }

func (c *cluster) wellAt(name string) bool {
	place, n := c.w.Place(name), &c.w.Network
	return !place.NoUp && !place.NoDown && place.Slow == 0 && c.lag[name] == 0 && !n.Away && !n.Split && !n.Troubled() && n.Loss < 0.05 &&
		n.Delay.Most < 100*time.Millisecond
}

// aside is what happens beside the membership of a cluster. Chance comes from a source of its own, so that the nodes' story is the same
// with it and without.
type aside struct {
	c     *cluster
	w     *env.World
	rand  *rand.Rand
	quiet bool // nothing happens by itself any more
}

func newAside(c *cluster, seed, salt uint64) aside {
	return aside{c: c, w: c.w, rand: rand.New(rand.NewPCG(seed, salt))} //nolint:gosec // it has to be repeatable
}

// later calls f after about some time, again and again, until nothing happens by itself any more.
func (a *aside) later(about time.Duration, f func()) {
	a.w.After(a.between(about/4, about*7/4), func() {
		if !a.quiet && a.c.violation == nil {
			f()
			a.later(about, f)
		}
	})
}

func (a *aside) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.rand.Int64N(int64(most-least)))
}

func (a *aside) hit(table, row string) { a.c.hit(table, row) }
