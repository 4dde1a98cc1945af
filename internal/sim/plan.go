// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/splitbrain"
)

// maxDrift is by how many millionths a clock is wrong at most.
const maxDrift = 500

// spares is how many nodes join later.
const spares = 2

// Singleton is one that all nodes take part in.
type Singleton struct {
	Name  string
	Lease bool
	Role  string
}

// Plan is what is chosen before a simulation begins.
type Plan struct {
	Names      []string // of the nodes at the beginning
	Seeds      []string
	Config     node.Config // without what differs from node to node
	Singletons []Singleton
	// LeaseTimeout is that of the store, LeaseCall how long a node waits for an answer.
	LeaseTimeout, LeaseCall time.Duration
	// Faults is how many things go wrong, Least how long that takes at the least.
	Faults int
	Least  time.Duration
	// Shutdown says that the whole cluster is shut down in the end.
	Shutdown bool
}

// NewPlan chooses what a seed stands for.
func NewPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x91a7)) //nolint:gosec // it has to be repeatable
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
	for _, i := range r.Perm(n) {
		p.Names = append(p.Names, fmt.Sprintf("n%02d", i))
	}
	p.Seeds = p.Names[:1+r.IntN(3)]
	if len(p.Seeds) == 1 { // whoever is its only seed can never come back
		p.Seeds = p.Names[:2]
	}
	p.Config = node.Config{Cluster: "sim", Downing: chooseDowning(r, n)}
	return p
}

func chooseDowning(r *rand.Rand, n int) splitbrain.Settings {
	var s splitbrain.Settings
	if r.IntN(3) > 0 {
		switch { // what suits the size
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
		s.Strategy = splitbrain.KeepMajority
	case k < 60:
		s.Strategy, s.QuorumSize = splitbrain.StaticQuorum, (n+spares)/2+1
	case k < 75:
		s.Strategy, s.KeepLoneOldest = splitbrain.KeepOldest, r.IntN(2) == 0
	case k < 82:
		s.Strategy = splitbrain.DownAll
	default:
		s.Strategy, s.ReleaseAfter = splitbrain.LeaseMajority, 2*s.StableAfter
	}
	return s
}

// String says what is special about the plan.
func (p Plan) String() string {
	d := p.Config.Downing
	return fmt.Sprintf("%d nodes, seeds %v, %s, stable after %v, %d faults", len(p.Names), p.Seeds, d.Strategy, d.StableAfter, p.Faults)
}

// Size is how much has happened in some seeds.
type Size struct {
	// Least and Most are the smallest and the largest number of nodes that a seed has begun with.
	Least, Most int
	// Took, Faults and Messages, to entities, are the least of any seed.
	Took             time.Duration
	Faults, Messages int
	// Journal and Replicated are how many seeds had the coordinator's state in the one and in the other.
	Journal, Replicated int
}

// Size returns that of one seed.
func (r *Result) Size() Size {
	n := len(r.Plan.Names)
	s := Size{Least: n, Most: n, Took: r.Took, Faults: r.Faults, Messages: r.Messages, Journal: 1}
	if r.Replicated {
		s.Journal, s.Replicated = 0, 1
	}
	return s
}

// Add adds that of other seeds.
func (s *Size) Add(other Size) {
	if s.Journal+s.Replicated == 0 {
		*s = other
		return
	}
	s.Least, s.Most = min(s.Least, other.Least), max(s.Most, other.Most)
	s.Took, s.Faults, s.Messages = min(s.Took, other.Took), min(s.Faults, other.Faults), min(s.Messages, other.Messages)
	s.Journal, s.Replicated = s.Journal+other.Journal, s.Replicated+other.Replicated
}

// Enough reports whether each of the seeds was as large as a seed has to be, unless it broke an invariant before.
func (s *Size) Enough() bool {
	return s.Least >= 3 && s.Most <= 25 && s.Took >= 120*time.Second && s.Faults >= 8 && s.Messages >= enoughMessages
}

func (s *Size) String() string {
	return fmt.Sprintf("%d to %d nodes, each seed at least %v, %d faults and %d messages to entities; the coordinator's state in a journal in %d seeds, in replicated data in %d",
		s.Least, s.Most, s.Took.Round(time.Second), s.Faults, s.Messages, s.Journal, s.Replicated)
}
