// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"
)

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
