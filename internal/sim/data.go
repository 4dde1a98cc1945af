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
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/replication"
)

// data is the replicated data of a cluster, and what is known about it from outside: what was
// asked for, what was answered, and who holds what.
type data struct {
	workload

	plan   DataPlan
	all    []*replicator // there ever were
	byNode map[identity.Node]*replicator
	disks  map[string]*disk // by name of the node
	views  map[string]*view

	keys     []*datum // there ever were
	byKey    map[string]*datum
	current  map[kind]*datum // that is written
	requests uint64          // the last one
	acks     uint64          // the last acknowledgement or answer
	serial   int             // of what is unique
	held     []*holders      // what all had at times
	looks    int
	pruned   map[identity.Node]bool // of whom somebody has taken over what was left
}

func newData(c *cluster, seed uint64, plan DataPlan) *data {
	return &data{
		workload: newWorkload(c, seed, 0xda7a), plan: plan, byNode: map[identity.Node]*replicator{}, disks: map[string]*disk{}, views: map[string]*view{},
		byKey: map[string]*datum{}, current: map[kind]*datum{}, pruned: map[identity.Node]bool{},
	}
}

// begin lets clients work.
func (d *data) begin() {
	d.later(d.plan.Pace, d.work)
	d.later(4*time.Second, d.look)
	d.later(20*time.Second, d.diskTrouble)
}

// view is who counts in a quorum, in the eyes of one of them.
type view struct {
	nodes []identity.Node // sorted
	gone  map[*view]int   // how many of them are not in another one
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

// view returns who counts for a level, as the node's membership says.
func (d *data) view(r *replicator, l replication.Level) *view {
	self := r.h.p.Node()
	nodes := []identity.Node{self}
	for _, m := range r.h.m.Gossip().Members() {
		switch {
		case m.Node == self && (m.Status == membership.Joining || m.Status == membership.WeaklyUp) && (l.Kind == replication.Majority || l.Kind == replication.MajorityPlus):
			nodes = slices.DeleteFunc(nodes, func(n identity.Node) bool { return n == self }) // it is no part of a majority yet
		case m.Node == self:
		case m.Status == membership.Exiting && (l.Kind == replication.All || l.Kind == replication.MajorityPlus):
		case m.Status == membership.Up, m.Status == membership.Leaving, m.Status == membership.Exiting:
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

// needed is how many of n replicas a level asks for, counted in another way than the protocol does.
func needed(l replication.Level, n int) int {
	majority := 1
	for 2*majority <= n {
		majority++
	}
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
	if majority < l.MinCap {
		majority = l.MinCap
	}
	if majority > n {
		majority = n
	}
	return majority
}

// living returns the replicators of living nodes that have loaded what is on their disks.
func (d *data) living() []*replicator {
	var living []*replicator
	for _, r := range d.all {
		if r.serves() {
			living = append(living, r)
		}
	}
	return living
}

// holders returns those of them that hold data: members, and who was told to change something. While there are no members there are none: what
// somebody has who never came in, from the disk of another process of its name, may be pruned by those that come together without it.
func (d *data) holders() []*replicator {
	member := func(r *replicator) bool { return r.h.m.Member() }
	all := slices.DeleteFunc(d.living(), func(r *replicator) bool { return !member(r) && !r.wrote })
	if !slices.ContainsFunc(all, member) {
		return nil
	}
	return all
}

// DataPlan is what is chosen about replicated data before a simulation begins.
type DataPlan struct {
	// Config is that of all replicators, without what differs from node to node.
	Config replication.Config
	// Pace is about how often a client does something.
	Pace time.Duration
	// Durable says that some keys are kept on disk.
	Durable bool
	// Pruned says that nodes that have left are pruned soon; else it does not come to that, and
	// all that is on a disk has to be there in the end.
	Pruned bool
	// DurablePruned says that this goes for durable keys too.
	DurablePruned bool
	// Forgotten says that markers of pruning are soon forgotten, and nobody hears of clocks
	// that jump.
	Forgotten bool
	// Large says that there are values larger than a message.
	Large bool
}

// NewDataPlan chooses what a seed stands for.
func NewDataPlan(seed uint64, plan Plan) DataPlan {
	r := rand.New(rand.NewPCG(seed, 0xda7a91a7)) //nolint:gosec // it has to be repeatable
	p := DataPlan{Pace: 600 * time.Millisecond, Durable: r.IntN(4) > 0, Pruned: r.IntN(5) > 1}
	c := &p.Config
	// A clock on the wall may jump by half a day.
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
	if len(plan.Names) > 10 && r.IntN(2) == 0 { // where not all are told at once, some changes have to be dropped
		c.MaxLog = 2 + r.IntN(6)
	}
	if r.IntN(40) == 0 {
		p.Large = true
		c.MaxEntry, c.MaxMessage = 60<<10, 64<<10
	}
	return p
}

// prunes reports whether what nodes have left is moved in a key.
func (p DataPlan) prunes(k *datum) bool { return p.Pruned && (!k.durable || p.DurablePruned) }

// forgottenAfter is longer than any living member is without news of the others.
const forgottenAfter = 200 * time.Second

// String says what is special about the plan.
func (p DataPlan) String() string {
	return fmt.Sprintf("durable %t, pruned %t, durable ones %t, forgotten %t, large %t, deltas %t", p.Durable, p.Pruned, p.DurablePruned, p.Forgotten, p.Large, !p.Config.DisableDeltas)
}

// count adds what a replicator has counted, once, in the end.
func (d *data) count(r *replicator) {
	d.mustHappen()
	n, c := r.m.Protocol().Counters(), d.c.coverage
	for k := replication.KindWrite; k < replication.Kinds; k++ {
		c.hit("data message", k.String(), n.Received[k])
	}
	for k := range replication.Drops {
		c.hit("data dropped", k.String(), n.Dropped[k])
	}
	for row, n := range map[string]uint64{
		"compared": n.Compared, "equal": n.Equal, "delta applied": n.DeltasApplied, "delta known": n.DeltasKnown, "delta behind a gap": n.DeltasGap,
		"delta as a whole value": n.DeltasAsStates, "delta dropped": n.DeltasDropped, "merged": n.Merged, "known": n.Known, "second wave": n.SecondWaves,
		"read repaired here": n.Repaired, "pruning begun": n.Initiated, "pruned": n.Pruned, "marker forgotten": n.Cleared, "expired": n.Expired,
	} {
		c.hit("data", row, n)
	}
}

// mustHappen are the rows of what is counted when it happens.
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
		for _, row := range rows {
			d.c.coverage.hit(table, row, 0)
		}
	}
}
