// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

// maxDrift is the maximum clock drift in parts per million.
const maxDrift = 500

const spares = 2

// Singleton is a singleton that all nodes with the role take part in.
type Singleton struct {
	Name  string
	Lease bool
	Role  string
}

// Plan is the configuration of a simulation.
type Plan struct {
	Names      []string // names of the initial nodes
	Seeds      []string
	Config     node.Config // the configuration of all nodes, without the fields that differ between nodes
	Singletons []Singleton
	// LeaseTimeout is the timeout of the lease store, LeaseCall that of a node's call.
	LeaseTimeout, LeaseCall time.Duration
	// Faults is the minimum number of faults, Least their minimum duration in total.
	Faults int
	Least  time.Duration
	// Shutdown shuts down the whole cluster at the end.
	Shutdown bool
}

// NewPlan derives a plan from a seed. If nodes is not 0, it is the initial number of nodes, and all
// downing settings except the strategy are the defaults.
func NewPlan(seed uint64, nodes int) Plan {
	r := rand.New(rand.NewPCG(seed, 0x91a7)) //nolint:gosec // must be repeatable
	p := Plan{
		LeaseTimeout: 15 * time.Second, LeaseCall: 3 * time.Second, Faults: 8 + r.IntN(7), Least: 120 * time.Second, Shutdown: r.IntN(10) == 0,
		Singletons: []Singleton{{Name: "plain"}, {Name: "leased", Lease: true}, {Name: coordination, Role: shardRole}},
	}
	n := 3 + r.IntN(5)
	switch k := r.IntN(100); {
	case k >= 92:
		n = 13 + r.IntN(13)
	case k >= 75:
		n = 8 + r.IntN(5)
	}
	if nodes > 0 {
		n = nodes
	}
	for _, i := range r.Perm(n) {
		p.Names = append(p.Names, fmt.Sprintf("n%02d", i))
	}
	p.Seeds = p.Names[:1+r.IntN(3)]
	if len(p.Seeds) == 1 { // a node that is its only seed could not rejoin
		p.Seeds = p.Names[:2]
	}
	p.Config = node.Config{Cluster: "sim", Downing: chooseDowning(r, n)}
	if nodes > 0 {
		p.Config.Downing.StableAfter, p.Config.Downing.ReleaseAfter = 0, 0
	}
	return p
}

func chooseDowning(r *rand.Rand, n int) splitbrain.Settings {
	var s splitbrain.Settings
	if r.IntN(3) > 0 {
		switch { // longer in larger clusters
		case n <= 5:
			s.StableAfter = 7 * time.Second
		case n <= 10:
			s.StableAfter = 10 * time.Second
		default:
			s.StableAfter = 13 * time.Second
		}
	}
	switch k := r.IntN(100); {
	case k < 40:
		s.Strategy = downing.KeepMajority
	case k < 60:
		s.Strategy, s.QuorumSize = downing.StaticQuorum, (n+spares)/2+1
	case k < 75:
		s.Strategy, s.KeepLoneOldest = downing.KeepOldest, r.IntN(2) == 0
	case k < 82:
		s.Strategy = downing.DownAll
	default:
		s.Strategy, s.ReleaseAfter = downing.LeaseMajority, 2*s.StableAfter
	}
	return s
}

// String describes the plan.
func (p Plan) String() string {
	d := p.Config.Downing
	return fmt.Sprintf("%d nodes, seeds %v, %s, stable after %v, %d faults", len(p.Names), p.Seeds, d.Strategy, d.StableAfter, p.Faults)
}

// Size describes the extent of some simulations.
type Size struct {
	// Least and Most are the smallest and the largest initial number of nodes.
	Least, Most int
	// Took, Faults and Messages (to entities) are the minimum of all seeds.
	Took             time.Duration
	Faults, Messages int
	// Seeds is the number of simulations. In Replicated of them, the coordinator's state is in
	// replicated data, and in the others in a journal.
	Seeds, Replicated int
}

// Add adds a simulation.
func (s *Size) Add(r *Result) {
	n := len(r.Plan.Names)
	if s.Seeds == 0 {
		s.Least, s.Took, s.Faults, s.Messages = n, r.Took, r.Faults, r.Messages
	}
	s.Least, s.Most = min(s.Least, n), max(s.Most, n)
	s.Took, s.Faults, s.Messages = min(s.Took, r.Took), min(s.Faults, r.Faults), min(s.Messages, r.Messages)
	s.Seeds++
	if r.Replicated {
		s.Replicated++
	}
}

// Enough reports whether each simulation reached the required extent.
func (s *Size) Enough() bool {
	return s.Least >= 3 && s.Took >= 120*time.Second && s.Faults >= 8 && s.Messages >= enoughMessages
}

func (s *Size) String() string {
	return fmt.Sprintf("%d to %d nodes, each seed at least %v, %d faults and %d messages to entities; the coordinator's state in a journal in %d seeds, in replicated data in %d",
		s.Least, s.Most, s.Took.Round(time.Second), s.Faults, s.Messages, s.Seeds-s.Replicated, s.Replicated)
}

// Coverage counts events by table and row.
type Coverage map[string]map[string]uint64

func (c Coverage) hit(table, row string, n uint64) {
	rows := c[table]
	if rows == nil {
		rows = map[string]uint64{}
		c[table] = rows
	}
	rows[row] += n
}

// Add adds the counts of other.
func (c Coverage) Add(other Coverage) {
	for table, rows := range other {
		for row, n := range rows {
			c.hit(table, row, n)
		}
	}
}

// expect adds rows, so that the missing ones are reported.
func (c Coverage) expect(table string, rows ...string) {
	for _, row := range rows {
		c.hit(table, row, 0)
	}
}

// rows adds the counts of the values of an enumeration from first to last. Without counts it adds
// only the rows, so that the missing ones are reported.
func rows[K interface {
	~uint8
	fmt.Stringer
}](c Coverage, table string, first, last K, counts []uint64) {
	for k := first; k <= last; k++ {
		n := uint64(0)
		if counts != nil {
			n = counts[k]
		}
		c.hit(table, k.String(), n)
	}
}

func (c Coverage) add(n node.Counters) {
	m := &n.Membership
	rows(c, "message", membership.Kind(1), membership.Kinds-1, m.Received[:])
	rows(c, "member", identity.Joining, identity.ReadyForShutdown, m.Became[:])
	rows(c, "time-out", 0, membership.Timeouts-1, m.TimedOut[:])
	rows(c, "dropped", 0, membership.Drops-1, m.Dropped[:])
	rows(c, "gossip", membership.Same, membership.Concurrent, m.Gossip[:])
	rows(c, "downing", splitbrain.Decided, splitbrain.LeftToOwner, n.Downing[:])
	rows(c, "singleton", singleton.Younger, singleton.End, n.Became[:])
	rows(c, "singleton message", singleton.HandOverToMe, singleton.InstanceGone, n.SingletonReceived[:])
	c.hit("singleton", "stuck", n.Stuck)
	c.hit("singleton message", "malformed", n.Malformed)
	c.hit("singleton message", "refused", n.Refused)
	c.hit("singleton message", "ignored", n.Ignored)
	c.hit("lease", "loss reported", n.LeasesLost)
	c.hit("node", "exit timed out", n.ExitTimeouts)
}

// enough is the number of seeds in which each event that is not rare must occur at least once.
const enough = 200

// required returns the number of seeds in which an event must occur at least once. It returns the
// constant never if the event need not occur.
func required(table, row string) uint64 {
	const never = math.MaxUint64
	switch table + ": " + row {
	case "singleton: stuck":
		return 20 * enough // the two oldest nodes leave at the same time, one of them slowly
	case "memory: fenced", "downing: orphaned", "data dropped: " + replication.DropParts.String():
		return 5 * enough
	case "downing: " + splitbrain.Automatic.String(), "downing: " + splitbrain.Outgrown.String():
		return never // the experimental strategy is not simulated, and static quorums are not exceeded
	case "coordinator: " + coordinator.Repaired.String():
		return never // no node writes impossible events
	case "coordinator ended: " + coordinator.Diverged.String():
		return never // no other node writes in its term
	case "refused: " + shardcore.NoShard.String(), "refused: " + shardcore.NotHome.String():
		return never // senders respect the number of shards, and a command rarely meets two regions that are not the home
	case "node: exit timed out", "shard message: retired":
		return never
	case "dropped: " + membership.DropUnknown.String(), "data dropped: " + replication.DropPruned.String(), "data dropped: " + replication.DropTooLarge.String():
		return never // no node sends a welcome to another node, few deltas arrive that late, and the limit of a value is below that of a message
	}
	if table == "link dropped" && !slices.Contains(forgedFrameDrops(), row) {
		return never // the simulator has no handlers, and real frames are valid
	}
	return enough
}

// forgedFrameDrops are the reasons for which links drop forged frames.
func forgedFrameDrops() (rows []string) {
	for _, why := range []link.Reason{link.Malformed, link.Forged, link.WrongReceiver, link.WrongLane, link.TooLarge, link.UnknownType} {
		rows = append(rows, why.String())
	}
	return rows
}

// Missing returns the events that must occur in this number of seeds and did not.
func (c Coverage) Missing(seeds uint64) []string {
	var all []string
	for _, table := range slices.Sorted(maps.Keys(c)) {
		for _, row := range slices.Sorted(maps.Keys(c[table])) {
			if c[table][row] == 0 && seeds >= required(table, row) {
				all = append(all, table+": "+row)
			}
		}
	}
	return all
}

// String returns the tables as text.
func (c Coverage) String() string {
	var s strings.Builder
	for _, table := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintln(&s, table)
		for _, row := range slices.Sorted(maps.Keys(c[table])) {
			fmt.Fprintf(&s, "  %-34s %12d\n", row, c[table][row])
		}
	}
	return s.String()
}
