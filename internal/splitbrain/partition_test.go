// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// partition is a cluster that is cut into two sides: the members as each side sees them, and
// whether each node is on the first side.
type partition struct {
	first, second []identity.Member
	isFirst       []bool
}

func (c *partition) String() string {
	s := ""
	for i := range c.first {
		s += fmt.Sprintf("%s %v/%v@%d first=%t, ", c.first[i].Node.Name, c.first[i].Status, c.second[i].Status, c.first[i].UpNumber, c.isFirst[i])
	}
	return s
}

// view returns the view of one side, and the node that decides for it.
func (c *partition) view(first bool) (splitbrain.View, identity.Node) {
	v := splitbrain.View{Leader: true, Members: c.first}
	if !first {
		v.Members = c.second
	}
	var self identity.Node
	for i := range v.Members {
		m := &v.Members[i]
		if c.isFirst[i] != first {
			v.Unreachable = append(v.Unreachable, m.Node)
			continue
		}
		v.Seen = append(v.Seen, m.Node)
		if self.IsZero() && (m.Status == identity.Up || m.Status == identity.Leaving || m.Status == identity.WeaklyUp) {
			self = m.Node
		}
	}
	v.Reachability = observed(v)
	return v, self
}

// survives reports whether a member of a side survives the decision of that side. The leader of the
// side is its first member that may decide. A side without such a member takes no decision. It gets
// no such member later: the unreachable members block every change of status.
func (c *partition) survives(t *testing.T, s splitbrain.Settings, first, lease bool) bool {
	t.Helper()
	v, self := c.view(first)
	if self.IsZero() || len(v.Unreachable) == 0 {
		return false
	}
	r, err := splitbrain.New(self, s)
	if err != nil {
		t.Fatal(err)
	}
	r.Step(0, v)
	out := r.Tick(time.Minute)
	if s.Strategy == downing.LeaseMajority {
		if !out.AskLease && len(out.Down) == 0 {
			out = r.Tick(2 * time.Minute)
		}
		if out.AskLease {
			out = r.Step(2*time.Minute, splitbrain.LeaseAnswer{Held: lease})
		}
	}
	for _, n := range v.Seen {
		i := slices.IndexFunc(v.Members, func(m identity.Member) bool { return m.Node == n })
		switch v.Members[i].Status {
		case identity.Down, identity.Exiting, identity.Removed:
			continue
		case identity.Joining, identity.WeaklyUp, identity.Up, identity.Leaving, identity.PreparingForShutdown, identity.ReadyForShutdown:
		}
		if !slices.Contains(out.Down, n) {
			return true
		}
	}
	return false
}

func strategies(members int) []splitbrain.Settings {
	s := []splitbrain.Settings{
		{Strategy: downing.KeepMajority},
		{Strategy: downing.KeepMajority, Role: "r"},
		{Strategy: downing.KeepOldest},
		{Strategy: downing.KeepOldest, KeepLoneOldest: true},
		{Strategy: downing.KeepOldest, Role: "r"},
		{Strategy: downing.LeaseMajority},
		{Strategy: downing.DownAll},
	}
	for q := 1; q <= members; q++ {
		s = append(s, splitbrain.Settings{Strategy: downing.StaticQuorum, QuorumSize: q})
	}
	for i := range s {
		// The clock of this test advances in minutes.
		s[i].StableAfter, s[i].DownAllWhenUnstable = time.Minute, -1
	}
	return s
}

// check reports whether at least one side downs itself. With a lease, the first side gets the
// lease.
func (c *partition) check(t *testing.T, s splitbrain.Settings) bool {
	t.Helper()
	if s.Strategy == downing.LeaseMajority {
		return !c.survives(t, s, true, true) || !c.survives(t, s, false, false)
	}
	return !c.survives(t, s, true, false) || !c.survives(t, s, false, false)
}

// eachPartition calls f with all clusters of a number of members with the given statuses, and all
// ways to cut each into two sides. The order of ages is the order of nodes. Other orders add no
// case, because each member is on each side with each status.
func eachPartition(members int, statuses []identity.Status, f func(c *partition)) {
	total := 1
	for range members {
		total *= len(statuses)
	}
	stride := 1
	if total > 50 {
		stride = effort.Count(5, 1, 1) // divides no number of statuses, so that each member still has each status
	}
	for code := 0; code < total; code += stride {
		c := &partition{isFirst: make([]bool, members)}
		for i, rest := 0, code; i < members; i, rest = i+1, rest/len(statuses) {
			c.first = append(c.first, aged(i, statuses[rest%len(statuses)], i%3 == 1))
		}
		c.second = c.first
		for sides := 1; sides < 1<<members-1; sides++ {
			for i := range members {
				c.isFirst[i] = sides>>i&1 == 1
			}
			f(c)
		}
	}
}

func aged(i int, status identity.Status, role bool) identity.Member {
	m := identity.Member{Node: node(fmt.Sprintf("n%03d", i)), Status: status, UpNumber: int32(i + 1)}
	if status == identity.Joining || status == identity.WeaklyUp {
		m.UpNumber = math.MaxInt32
	}
	if role {
		m.Roles = []string{"r"}
	}
	return m
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	for members, statuses := range map[int][]identity.Status{
		2: {identity.Joining, identity.WeaklyUp, identity.Up, identity.Leaving, identity.Exiting, identity.Down},
		3: {identity.Joining, identity.WeaklyUp, identity.Up, identity.Leaving, identity.Exiting, identity.Down},
		4: {identity.WeaklyUp, identity.Up, identity.Leaving, identity.Down},
		5: {identity.WeaklyUp, identity.Up, identity.Leaving},
		6: {identity.Up, identity.Leaving},
	} {
		for _, s := range strategies(members) {
			t.Run(fmt.Sprintf("%d/%s-%d-%s-%t", members, s.Strategy, s.QuorumSize, s.Role, s.KeepLoneOldest), func(t *testing.T) {
				t.Parallel()
				survived := 0
				eachPartition(members, statuses, func(c *partition) {
					if !c.check(t, s) {
						t.Fatalf("both sides survive: %v", c)
					}
					if c.survives(t, s, true, true) {
						survived++
					}
				})
				// A quorum that is too small for the number of members downs all members. One side
				// of a partition cannot reach a quorum of all members.
				if kept := s.Strategy != downing.DownAll; kept != (survived > 0) && s.Strategy != downing.StaticQuorum {
					t.Errorf("the first side survived %d times, want survival in some case: %t", survived, kept)
				}
			})
		}
	}
}

// At most one side also survives if only one side has received the last change of the leader.
func TestMissedLeaderChange(t *testing.T) {
	t.Parallel()
	statuses := []identity.Status{identity.WeaklyUp, identity.Up, identity.Leaving}
	for _, s := range strategies(4) {
		t.Run(fmt.Sprintf("%s-%d-%s-%t", s.Strategy, s.QuorumSize, s.Role, s.KeepLoneOldest), func(t *testing.T) {
			t.Parallel()
			for members := 2; members <= 5; members++ {
				if s.Strategy == downing.StaticQuorum && members > 2*s.QuorumSize-1 {
					continue // more members than the quorum allows
				}
				eachPartition(members, statuses, func(c *partition) {
					changed := &partition{first: leaderChange(c.first), second: c.first, isFirst: c.isFirst}
					if !changed.check(t, s) {
						t.Fatalf("both sides survive: %v", changed)
					}
				})
			}
		})
	}
}

// leaderChange returns the members after the changes that the leader makes when they have
// converged.
func leaderChange(members []identity.Member) []identity.Member {
	done := slices.Clone(members)
	for i := range done {
		switch done[i].Status {
		case identity.Joining, identity.WeaklyUp:
			done[i].Status, done[i].UpNumber = identity.Up, int32(1000+i)
		case identity.Leaving:
			done[i].Status = identity.Exiting
		case identity.Up, identity.Exiting, identity.Down, identity.Removed, identity.PreparingForShutdown, identity.ReadyForShutdown:
		}
	}
	return done
}

func TestLargePartitions(t *testing.T) {
	t.Parallel()
	for seed := range effort.Count[uint64](15, 40, 400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		members := 7 + rnd.IntN(60)
		c := &partition{}
		for i := range members {
			status := identity.Up
			if rnd.IntN(4) == 0 {
				status = identity.Joining + identity.Status(rnd.IntN(int(identity.Down)))
			}
			c.first = append(c.first, aged(i, status, rnd.IntN(2) == 0))
			c.isFirst = append(c.isFirst, rnd.IntN(2) == 0)
		}
		c.second = c.first
		for _, s := range strategies(members) {
			if !c.check(t, s) {
				t.Errorf("seed %d, %s %d: both sides survive: %v", seed, s.Strategy, s.QuorumSize, c)
			}
			if s.Strategy == downing.StaticQuorum && members > 2*s.QuorumSize-1 {
				continue
			}
			changed := &partition{first: leaderChange(c.first), second: c.first, isFirst: c.isFirst}
			if !changed.check(t, s) {
				t.Errorf("seed %d, %s %d, one side missed the leader: both sides survive: %v", seed, s.Strategy, s.QuorumSize, c)
			}
		}
	}
}
