// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
)

// cluster has the simulated nodes and the checks that need all of them.
type cluster struct {
	w     *env.Env
	plan  Plan
	store *env.LeaseStore
	data  *data
	shard *sharding
	group *grouping

	hosts  []*host // all processes, including those that have ended
	byNode map[identity.Node]*host
	names  []string // names of the nodes that should run

	coverage  Coverage
	violation *Violation

	// State of the invariants.
	wasUp     map[identity.Node]bool
	wasGone   map[identity.Node]bool
	contents  map[membership.Digest]uint64
	delivered map[delivered]bool
	versions  map[version]bool

	// State of the faults.
	overload       map[string]time.Duration // delay of overloaded nodes
	overloadEnd    map[string]time.Duration // when the last message of an overload is handled
	deaf           map[string]time.Duration // the time since which a node receives none of its own messages
	leaving        map[identity.Node]bool
	twins          map[identity.Node]bool // nodes that were started under a name in use
	cannotJoin     map[identity.Node]membership.Reason
	notRestarted   map[string]bool // names that are not restarted
	runningFaults  int             // running faults for which a member may be downed
	faultEnded     time.Duration   // when the last of these faults ended
	runningCuts    int             // running cuts
	faults         int
	restarts       bool
	shuttingDown   bool   // the whole cluster
	undisturbedNow bool   // operators do nothing
	forging        bool   // a forged message is handled
	accuser        string // name of the member that sends forged reports
	forgedEpoch    uint64
	newcomers      int // number of nodes in addition to the planned ones
}

// Violation describes a broken invariant.
type Violation struct {
	// Invariant is the name of the broken invariant.
	Invariant string
	At        time.Duration
	Node      identity.Node
	Detail    string
}

func (v *Violation) String() string {
	subject := ""
	if !v.Node.IsZero() {
		subject = v.Node.String() + ": "
	}
	return fmt.Sprintf("%s after %v: %s%s", v.Invariant, v.At, subject, v.Detail)
}

func newCluster(seed uint64, plan Plan) *cluster {
	w := env.New(seed)
	c := &cluster{
		w: w, plan: plan, store: w.NewLeaseStore(plan.LeaseTimeout), byNode: map[identity.Node]*host{}, names: plan.Names, coverage: Coverage{},
		wasUp: map[identity.Node]bool{}, wasGone: map[identity.Node]bool{}, contents: map[membership.Digest]uint64{}, delivered: map[delivered]bool{}, versions: map[version]bool{},
		overload: map[string]time.Duration{}, overloadEnd: map[string]time.Duration{}, deaf: map[string]time.Duration{}, leaving: map[identity.Node]bool{}, twins: map[identity.Node]bool{},
		cannotJoin: map[identity.Node]membership.Reason{}, notRestarted: map[string]bool{},
	}
	c.data = newData(c, seed, NewDataPlan(seed, plan))
	c.shard = newSharding(c, seed, NewShardsPlan(seed, plan))
	c.group = newGrouping(c, seed, NewGroupsPlan(seed, len(plan.Names)))
	for _, role := range c.group.roles {
		c.plan.Singletons = append(c.plan.Singletons, Singleton{Name: groupSingleton + role, Role: role})
	}
	return c
}

func (c *cluster) violate(invariant string, n identity.Node, format string, args ...any) {
	if c.violation == nil {
		c.violation = &Violation{Invariant: invariant, At: c.w.Now(), Node: n, Detail: fmt.Sprintf(format, args...)}
		c.w.Logf("BROKEN: %v", c.violation)
	}
}

func (h *host) violate(invariant, format string, args ...any) {
	h.c.violate(invariant, h.p.Node(), format, args...)
}

// run advances the time by d. It returns false if an invariant is broken before the end.
func (c *cluster) run(d time.Duration) bool {
	return !c.w.Run(d, c.broken) && !c.broken()
}

// undisturbed advances the time without operator actions. It reports whether all invariants hold.
func (c *cluster) undisturbed(d time.Duration) bool {
	c.undisturbedNow = true
	defer func() { c.undisturbedNow = false }()
	return c.run(d)
}

// until advances the time until a condition holds, which is checked four times per second.
func (c *cluster) until(most time.Duration, holds func() bool) bool {
	return c.w.Until(most, 250*time.Millisecond, holds, c.broken)
}

func (c *cluster) broken() bool { return c.violation != nil }

func (c *cluster) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.w.Rand.Int64N(int64(most-least)))
}

func (c *cluster) hit(table, row string) { c.coverage.hit(table, row, 1) }

func (c *cluster) count(h *host) {
	if !h.p.Dead() {
		c.coverage.add(h.m.Counters())
		dropped := h.p.Dropped()
		rows(c.coverage, "link dropped", link.Malformed, link.Reasons-1, dropped[:])
	}
}

// latest returns the living process with a name, or nil. It returns a twin only if no other process
// with the name lives.
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

func (c *cluster) living() []*host { return filter(c.hosts, (*host).alive) }

func (c *cluster) members() []*host {
	return filter(c.hosts, func(h *host) bool { return h.alive() && h.m.Member() })
}

// must panics with an error that only a fault of the simulator causes.
func must[T any](t T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	return t
}

// filter returns the elements for which keep returns true.
func filter[T any](all []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(t T) bool { return !keep(t) })
}

// oldest returns the oldest of the members for which counts returns true, or nil.
func oldest(members []*identity.Member, counts func(*identity.Member) bool) *identity.Member {
	all := filter(members, counts)
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, membership.CompareAge)
}

func (c *cluster) begin() {
	for _, name := range c.names {
		place := c.w.Place(name)
		place.Drift = c.w.Rand.Int64N(2*maxDrift) - maxDrift
		place.Wall = c.between(-time.Minute, time.Minute)
		c.w.After(c.between(0, 4*time.Second), func() { c.join(c.start(name, nil)) })
	}
	c.w.After(5*time.Second, c.supervise)
}

func (c *cluster) join(h *host) {
	h.submit(node.Membership{Input: membership.JoinSeeds{Seeds: c.plan.Seeds}})
}

// supervise restarts ended nodes, as a process manager does.
func (c *cluster) supervise() {
	c.w.After(c.between(500*time.Millisecond, 3*time.Second), c.supervise)
	for _, name := range c.names {
		if !c.restarts && c.w.Rand.IntN(4) > 0 || c.notRestarted[name] || c.latest(name) != nil || c.violation != nil {
			continue
		}
		c.restart(name)
	}
	for _, h := range c.living() { // a joining node may wait for a seed that no longer exists
		if c.restarts && !h.m.Member() && c.w.Now() > h.p.Began()+40*time.Second && c.w.Rand.IntN(5) == 0 {
			c.w.Logf("%v is killed: it does not join", h.p.Node())
			h.kill()
		}
	}
}

// up reports whether a node is a full member in its own view, and not suspended.
func (h *host) up() bool {
	me := h.m.Gossip().Member(h.p.Node())
	return me != nil && me.Status == identity.Up && !h.m.Suspended()
}

func (c *cluster) isSeed(h *host) bool { return slices.Contains(c.plan.Seeds, h.p.Node().Name) }

// lastSeed reports whether a node is the only seed among the members. Without it, no node could join.
func (c *cluster) lastSeed(h *host) bool {
	other := func(o *host) bool { return o != h && c.isSeed(o) }
	return c.isSeed(h) && !slices.ContainsFunc(c.members(), other)
}

// healthySince returns the time since which the node and the network have had no fault.
func (c *cluster) healthySince(h *host) time.Duration {
	if !c.healthy(h) || c.runningFaults > 0 {
		return c.w.Now()
	}
	return max(h.p.Resumed(), c.faultEnded)
}

// restart restarts a node, unless the node would form a second cluster.
func (c *cluster) restart(name string) {
	members := c.members()
	accepts := func(h *host) bool { return h.p.Node().Name != name && c.isSeed(h) && c.healthy(h) && h.up() }
	seed := slices.ContainsFunc(members, accepts) // a seed can accept a joining node
	first := name == c.plan.Seeds[0]
	switch {
	case len(members) == 0:
		c.join(c.start(name, nil))
	case !seed, first && !c.healthyAt(name):
		if c.restarts { // an operator chooses a living member
			h := c.start(name, nil)
			h.submit(node.Membership{Input: membership.JoinNode{Name: members[c.w.Rand.IntN(len(members))].p.Node().Name}})
		}
	default:
		c.join(c.start(name, nil))
	}
}

// healthy reports whether a node sends and receives messages in time.
func (c *cluster) healthy(h *host) bool { return !h.p.Paused() && c.healthyAt(h.p.Node().Name) }

func (c *cluster) healthyAt(name string) bool {
	place, n := c.w.Place(name), &c.w.Network
	return !place.NoUp && !place.NoDown && place.Slow == 0 && c.overload[name] == 0 && !n.Away && !n.Split && !n.Troubled() && n.Loss < 0.05 &&
		n.Delay.Most < 100*time.Millisecond
}

// workload is a load in addition to the membership. It has its own random source, so the membership
// has the same history with and without the load.
type workload struct {
	c     *cluster
	w     *env.Env
	rand  *rand.Rand
	quiet bool // starts no more actions
}

func newWorkload(c *cluster, seed, salt uint64) workload {
	return workload{c: c, w: c.w, rand: rand.New(rand.NewPCG(seed, salt))} //nolint:gosec // must be repeatable
}

// later calls f repeatedly, at random intervals around a duration, until the workload is quiet.
func (a *workload) later(about time.Duration, f func()) {
	a.w.After(a.between(about/4, about*7/4), func() {
		if !a.quiet && a.c.violation == nil {
			f()
			a.later(about, f)
		}
	})
}

func (a *workload) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.rand.Int64N(int64(most-least)))
}

func (a *workload) hit(table, row string) { a.c.hit(table, row) }

// converge waits until why returns no obstacle.
func (c *cluster) converge(invariant string, most time.Duration, why func() string) bool {
	if !c.until(most, func() bool { return why() == "" }) {
		c.violate(invariant, c.hosts[0].p.Node(), "after %v: %s", most, why())
		return false
	}
	c.hit("checked", invariant)
	return true
}

// maxFaultPhase is the maximum duration of the fault phase.
const maxFaultPhase = 20 * time.Minute

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

// Run simulates a seed, with the number of nodes of NewPlan. It calls trace with each event as text,
// unless trace is nil.
func Run(seed uint64, nodes int, trace func(at time.Duration, text string)) Result {
	plan := NewPlan(seed, nodes)
	c := newCluster(seed, plan)
	c.w.Trace = trace
	c.w.Logf("%v", plan)
	c.w.Logf("data: %v", c.data.plan)
	c.w.Logf("sharding: %v", c.shard.plan)
	c.w.Logf("groups: %+v", c.group.plan)
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

// trouble is the state of a disk or a journal that may fail or be slow for a while.
type trouble struct{ failing, slow bool }

// begin starts a trouble at random and returns its duration. The previous trouble must have ended.
func (t *trouble) begin(a *workload, name string) time.Duration {
	t.failing = a.rand.IntN(2) == 0
	t.slow = !t.failing || a.rand.IntN(3) == 0
	took := a.between(time.Second, 12*time.Second)
	a.w.Logf("%s fails %t, is slow %t, for %v", name, t.failing, t.slow, took)
	a.w.After(took, func() { *t = trouble{} })
	return took
}

func (c *cluster) live() {
	c.begin()
	c.data.begin()
	c.shard.begin()
	c.group.begin()
	if !c.converge("comes-up", 2*time.Minute, c.unsettled) {
		return
	}
	begun := c.w.Now()
	for c.violation == nil && (c.faults < c.plan.Faults || c.w.Now() < begun+c.plan.Least) {
		if c.w.Now() > begun+maxFaultPhase { // most faults are not possible without the first seed
			c.violate("comes-together", c.hosts[0].p.Node(), "after %v only %d faults were possible: %s", c.w.Now()-begun, c.faults, c.unsettled())
		}
		c.injectFault()
		c.run(c.between(500*time.Millisecond, 20*time.Second))
	}
	c.heal()
	c.run(2 * c.plan.LeaseCall) // pending lease calls are answered and take effect
	if !c.converge("comes-together", 4*time.Minute, c.unsettled) {
		return
	}
	c.shard.quiesce()
	c.group.quiet = true
	if c.violation == nil {
		c.shard.finish()
	}
	if c.violation == nil {
		c.group.finish()
	}
	c.data.quiesce()
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

// heal ends all faults and resumes all nodes.
func (c *cluster) heal() {
	c.w.Logf("all faults end")
	c.w.Network.Heal()
	c.store.Heal()
	clear(c.overload)
	clear(c.notRestarted)
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
		if h.shards.m.Drained() || h.shards.wrongSetting != "" {
			h.shards.restart()
		}
	}
	c.faultEnded = c.w.Now()
}

func (c *cluster) shutDown() {
	c.w.Logf("all nodes are shut down")
	c.shuttingDown = true
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
		c.violate("shuts-down", c.hosts[0].p.Node(), "not all members are ready for shutdown")
		return
	}
	for _, h := range c.living() {
		h.submit(node.Membership{Input: membership.Leave{Node: h.p.Node()}})
	}
	if !c.until(time.Minute, func() bool { return len(c.living()) == 0 }) {
		c.violate("shuts-down", c.hosts[0].p.Node(), "%d nodes do not stop", len(c.living()))
	}
}

// Many simulates n seeds from first on, in parallel, with the number of nodes of NewPlan. It calls
// done with each result, one at a time and in any order. It stops when the context ends.
func Many(ctx context.Context, first, n uint64, nodes, parallel int, done func(Result)) {
	var mu sync.Mutex
	var running sync.WaitGroup
	slots := make(chan struct{}, max(1, parallel))
	for seed := first; seed < first+n && ctx.Err() == nil; seed++ {
		slots <- struct{}{}
		running.Go(func() {
			r := Run(seed, nodes, nil)
			mu.Lock()
			done(r)
			mu.Unlock()
			<-slots
		})
	}
	running.Wait()
}
