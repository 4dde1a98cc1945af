// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// data is the simulated replicated data of a cluster, and the external record of it: requests,
// answers, and which replicator holds what.
type data struct {
	workload

	plan   DataPlan
	all    []*replicator // all that ever existed
	byNode map[identity.Node]*replicator
	disks  map[string]*disk // by name of the node
	views  map[string]*view

	keys     []*datum // all that ever existed
	byKey    map[string]*datum
	current  map[kind]*datum // the key in use for each kind
	requests uint64          // number of the last request
	acks     uint64          // number of the last acknowledgement or answer
	serial   int             // source of unique names
	held     []*holders      // sets of replicators that held the same data at some time
	looks    int
	pruned   map[identity.Node]bool // removed nodes whose history was taken over
}

func newData(c *cluster, seed uint64, plan DataPlan) *data {
	return &data{
		workload: newWorkload(c, seed, 0xda7a), plan: plan, byNode: map[identity.Node]*replicator{}, disks: map[string]*disk{}, views: map[string]*view{},
		byKey: map[string]*datum{}, current: map[kind]*datum{}, pruned: map[identity.Node]bool{},
	}
}

func (d *data) begin() {
	d.later(d.plan.Pace, d.work)
	d.later(4*time.Second, d.look)
	d.later(20*time.Second, d.diskTrouble)
}

// view is the set of nodes that count in a quorum, as one of them sees it.
type view struct {
	nodes []identity.Node // sorted
	gone  map[*view]int   // number of its nodes that are missing in another view
}

func (v *view) missingIn(other *view) int {
	n, known := v.gone[other]
	if !known {
		for _, m := range v.nodes {
			if _, found := slices.BinarySearchFunc(other.nodes, m, identity.Node.Compare); !found {
				n++
			}
		}
		v.gone[other] = n
	}
	return n
}

// view returns the nodes that count for a level, according to the membership of the node.
func (d *data) view(r *replicator, l replication.Level) *view {
	self := r.h.p.Node()
	nodes := []identity.Node{self}
	for _, m := range r.h.m.Gossip().Members() {
		switch {
		case m.Node == self && (m.Status == identity.Joining || m.Status == identity.WeaklyUp) && (l.Kind == replication.Majority || l.Kind == replication.MajorityPlus):
			nodes = slices.DeleteFunc(nodes, func(n identity.Node) bool { return n == self }) // not part of a majority yet
		case m.Node == self:
		case m.Status == identity.Exiting && (l.Kind == replication.All || l.Kind == replication.MajorityPlus):
		case m.Status == identity.Up, m.Status == identity.Leaving, m.Status == identity.Exiting:
			nodes = append(nodes, m.Node)
		}
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	var name strings.Builder
	for _, n := range nodes {
		name.WriteString(n.String())
		name.WriteByte(' ')
	}
	v := d.views[name.String()]
	if v == nil {
		v = &view{nodes: nodes, gone: map[*view]int{}}
		d.views[name.String()] = v
	}
	return v
}

// needed returns how many of n replicas a level requires. It is computed independently of the
// protocol.
func needed(l replication.Level, n int) int {
	majority := n/2 + 1
	switch l.Kind {
	case replication.Count:
		return l.N
	case replication.All:
		return n
	case replication.MajorityPlus:
		majority += l.N
	case replication.Local:
		return 1
	case replication.Majority:
	}
	return min(max(majority, l.MinCap), n)
}

// living returns the replicators of living nodes that have loaded their disks.
func (d *data) living() []*replicator {
	return filter(d.all, (*replicator).serves)
}

// holders returns the living replicators that hold data: those of members, and those that have
// received requests. Without members there are none: data of a node that never joined, from the
// disk of another process of its name, may be pruned by nodes that form a cluster without it.
func (d *data) holders() []*replicator {
	member := func(r *replicator) bool { return r.h.m.Member() }
	all := slices.DeleteFunc(d.living(), func(r *replicator) bool { return !member(r) && !r.wrote })
	if !slices.ContainsFunc(all, member) {
		return nil
	}
	return all
}

// DataPlan is the configuration of replicated data in a simulation.
type DataPlan struct {
	// Config is the common part of the configurations of all replicators.
	Config replication.Config
	// Pace is the approximate time between two actions of a client.
	Pace time.Duration
	// Durable reports that some keys are stored on disk.
	Durable bool
	// Pruned reports that removed nodes are pruned soon. Otherwise nothing is pruned during the
	// simulation, and all data on disks must be present at the end.
	Pruned bool
	// DurablePruned extends Pruned to durable keys.
	DurablePruned bool
	// Forgotten reports that markers of pruning expire soon and that clocks do not jump.
	Forgotten bool
	// Large reports that some values exceed the maximum size of a message.
	Large bool
}

// NewDataPlan returns the plan of a seed.
func NewDataPlan(seed uint64, plan Plan) DataPlan {
	r := rand.New(rand.NewPCG(seed, 0xda7a91a7)) //nolint:gosec // it has to be repeatable
	p := DataPlan{Pace: 600 * time.Millisecond, Durable: r.IntN(4) > 0, Pruned: r.IntN(5) > 1}
	c := &p.Config
	// must be reproducible
	c.PruneInterval, c.MarkerTTL, c.DurableMarkerTTL = -1, 1_000*time.Hour, 1_000*time.Hour
	if p.Pruned {
		c.PruneInterval, c.PruneAfter = 4*time.Second, 9*time.Second
		if p.DurablePruned = r.IntN(3) == 0; p.DurablePruned {
			c.DurablePruneAfter = c.PruneAfter
		}
		if p.Forgotten = r.IntN(8) == 0; p.Forgotten {
			c.MarkerTTL = forgottenAfter
		}
	}
	if p.Durable {
		c.Durable = []string{"durable/*"}
	}
	if r.IntN(3) == 0 {
		c.Expire = map[string]time.Duration{"lease/*": 15 * time.Second}
	}
	switch r.IntN(10) {
	case 0:
		c.DisableDeltas = true
	case 1, 2:
		c.MaxDeltaOps = 2 + r.IntN(8)
	case 3:
		c.MaxLog = 2 + r.IntN(6)
	case 4:
		c.GossipInterval, c.NotifyInterval, c.DeltaInterval = time.Second, 200*time.Millisecond, 100*time.Millisecond
	}
	if len(plan.Names) > 10 && r.IntN(2) == 0 { // in large clusters, where changes are sent to a slice at a time, some changes have to be dropped
		c.MaxLog = 2 + r.IntN(6)
	}
	if r.IntN(40) == 0 {
		p.Large = true
		c.MaxEntry, c.MaxMessage = 60<<10, 64<<10
	}
	return p
}

func (p DataPlan) prunes(k *datum) bool { return p.Pruned && (!k.durable || p.DurablePruned) }

// forgottenAfter exceeds the time that a living member can be without contact to the others.
const forgottenAfter = 200 * time.Second

// String describes the plan.
func (p DataPlan) String() string {
	return fmt.Sprintf("durable %t, pruned %t, durable ones %t, forgotten %t, large %t, deltas %t", p.Durable, p.Pruned, p.DurablePruned, p.Forgotten, p.Large, !p.Config.DisableDeltas)
}

// count adds the counters of a replicator at its end.
func (d *data) count(r *replicator) {
	d.mustHappen()
	n, c := r.m.Counters(), d.c.coverage
	rows(c, "data message", replication.KindWrite, replication.Kinds-1, n.Received[:])
	rows(c, "data dropped", 0, replication.Drops-1, n.Dropped[:])
	for row, n := range map[string]uint64{
		"compared": n.Compared, "equal": n.Equal, "delta applied": n.DeltasApplied, "delta known": n.DeltasKnown, "delta behind a gap": n.DeltasGap,
		"delta as a whole value": n.DeltasAsStates, "delta dropped": n.DeltasDropped, "merged": n.Merged, "known": n.Known, "second wave": n.SecondWaves,
		"read repaired here": n.Repaired, "pruning begun": n.Initiated, "pruned": n.Pruned, "marker forgotten": n.Cleared, "expired": n.Expired,
	} {
		c.hit("data", row, n)
	}
}

// mustHappen are the rows of the coverage counters.
func (d *data) mustHappen() {
	for table, rows := range map[string][]string{
		"read":    {"done", "not found", "deleted", "timed out", "too few replicas", "stopped"},
		"update":  {"done", "deleted", "timed out", "too few replicas", "store failed", "stopped"},
		"delete":  {"done", "deleted", "timed out"},
		"event":   {"changed", "deleted", "expired"},
		"disk":    {"loaded", "loaded records", "failed", "written", "written at the end", "in use", "store failed"},
		"promise": {"members fixed", "members joined", "members left", "members joined and left"},
		"checked": {
			"acknowledged writes", "acknowledged writes on disk", "acknowledged writes of nodes that are gone", "acknowledged durable writes of nodes that are gone",
			"own writes", "reads that have to see writes", "reads of registers", "repaired reads", "writes when a node is pruned",
			"elements added and removed by two", "sums that are known", "converges", "prunes", "records",
		},
		"data": {"asked while loading", "stray message", "lost with its last replica", "all who had something have ended", "pruned while who had it was away"},
	} {
		d.c.coverage.expect(table, rows...)
	}
}
