// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/splitbrain"
)

// maxDrift is the maximum clock drift in parts per million.
const maxDrift = 500

// spares is the number of nodes that join later.
const spares = 2

// Singleton is a singleton that all nodes with the role take part in.
type Singleton struct {
	Name  string
	Lease bool
	Role  string
}

// Plan is the configuration of a simulation.
type Plan struct {
	Names      []string // of the initial nodes
	Seeds      []string
	Config     node.Config // without the fields that differ between nodes
	Singletons []Singleton
	// LeaseTimeout is the timeout of the lease store, LeaseCall that of a node's call.
	LeaseTimeout, LeaseCall time.Duration
	// Faults is the minimum number of faults, Least their minimum duration in total.
	Faults int
	Least  time.Duration
	// Shutdown shuts down the whole cluster at the end.
	Shutdown bool
}

// NewPlan derives a plan from a seed.
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
	if len(p.Seeds) == 1 { // a node that is its only seed could not rejoin
		p.Seeds = p.Names[:2]
	}
	p.Config = node.Config{Cluster: "sim", Downing: chooseDowning(r, n)}
	return p
}

func chooseDowning(r *rand.Rand, n int) splitbrain.Settings {
	var s splitbrain.Settings
	if r.IntN(3) > 0 {
		switch { // suits the size
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
	// Journal and Replicated are the numbers of seeds with the coordinator's state in a journal and
	// in replicated data.
	Journal, Replicated int
}

// Size returns the extent of one simulation.
func (r *Result) Size() Size {
	n := len(r.Plan.Names)
	s := Size{Least: n, Most: n, Took: r.Took, Faults: r.Faults, Messages: r.Messages, Journal: 1}
	if r.Replicated {
		s.Journal, s.Replicated = 0, 1
	}
	return s
}

// Add combines two extents.
func (s *Size) Add(other Size) {
	if s.Journal+s.Replicated == 0 {
		*s = other
		return
	}
	s.Least, s.Most = min(s.Least, other.Least), max(s.Most, other.Most)
	s.Took, s.Faults, s.Messages = min(s.Took, other.Took), min(s.Faults, other.Faults), min(s.Messages, other.Messages)
	s.Journal, s.Replicated = s.Journal+other.Journal, s.Replicated+other.Replicated
}

// Enough reports whether each simulation reached the required extent.
func (s *Size) Enough() bool {
	return s.Least >= 3 && s.Most <= 25 && s.Took >= 120*time.Second && s.Faults >= 8 && s.Messages >= enoughMessages
}

func (s *Size) String() string {
	return fmt.Sprintf("%d to %d nodes, each seed at least %v, %d faults and %d messages to entities; the coordinator's state in a journal in %d seeds, in replicated data in %d",
		s.Least, s.Most, s.Took.Round(time.Second), s.Faults, s.Messages, s.Journal, s.Replicated)
}
