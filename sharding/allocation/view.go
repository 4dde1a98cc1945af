// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"errors"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// View is what a strategy decides upon. It is immutable.
type View struct {
	// Regions are those that may be given shards, sorted by node: the ones that are registered, without those
	// that shut down or are taken for dead.
	Regions []Region
	// Moving are the shards that are being handed off, sorted.
	Moving []Shard
	// Members are all members of the cluster, sorted by node.
	Members []membership.Member
	// Unreachable are the members that somebody can't reach, sorted.
	Unreachable []identity.Node
	// Role is what a member must have to host shards. "" is no condition.
	Role string
}

// candidate is a region whose member is known.
type candidate struct {
	region *Region
	member *membership.Member
	class  class
}

// class says how fit a region is, whatever it holds. The smaller, the better.
type class uint8

const (
	fit class = iota
	leaving
	unreachable
	unfit // gets nothing
)

func (v *View) classOf(m *membership.Member) class {
	switch m.Status {
	case membership.Joining, membership.WeaklyUp, membership.Exiting, membership.Down, membership.Removed:
		return unfit
	case membership.Up, membership.Leaving, membership.PreparingForShutdown, membership.ReadyForShutdown:
	}
	switch _, cut := slices.BinarySearchFunc(v.Unreachable, m.Node, identity.Node.Compare); {
	case !m.HasRole(v.Role):
		return unfit
	case cut:
		return unreachable
	case m.Status == membership.Leaving:
		return leaving
	}
	return fit
}

// candidates are the regions whose member is known, sorted by node.
func (v *View) candidates() []candidate {
	found := make([]candidate, 0, len(v.Regions))
	members := v.Members
	for i := range v.Regions {
		r := &v.Regions[i]
		for len(members) > 0 && members[0].Node.Compare(r.Node) < 0 {
			members = members[1:]
		}
		if len(members) > 0 && members[0].Node == r.Node {
			found = append(found, candidate{r, &members[0], v.classOf(&members[0])})
		}
	}
	return found
}

// compare orders candidates, the best first. It is a total order, so that the outcome
// doesn't depend on how it is sorted.
func (c candidate) compare(other candidate) int {
	return cmp.Or(
		cmp.Compare(c.class, other.class),
		other.member.Version.Compare(c.member.Version),
		cmp.Compare(len(c.region.Shards), len(other.region.Shards)),
		c.region.Node.Compare(other.region.Node),
	)
}

// Suitable returns the regions whose member is known, the best first. The last ones may be
// such that Best would never choose.
func (v *View) Suitable() []Region {
	sorted := v.ranked()
	regions := make([]Region, len(sorted))
	for i, c := range sorted {
		regions[i] = *c.region
	}
	return regions
}

func (v *View) ranked() []candidate {
	found := v.candidates()
	slices.SortFunc(found, candidate.compare)
	return found
}

// Best returns the region that should get the next shard. There is none if no region
// may get any.
func (v *View) Best() (identity.Node, bool) {
	found := v.candidates()
	if len(found) == 0 {
		return identity.Node{}, false
	}
	best := slices.MinFunc(found, candidate.compare)
	return best.region.Node, best.class != unfit
}

// MayHost reports whether a region is there, and may be given shards.
func (v *View) MayHost(n identity.Node) bool {
	i, found := Find(v.Regions, n)
	if !found {
		return false
	}
	at := View{Regions: v.Regions[i : i+1], Members: v.Members, Unreachable: v.Unreachable, Role: v.Role}
	c := at.candidates()
	return len(c) > 0 && c[0].class != unfit
}

// GoodTime reports whether shards may be moved: there are regions, all of them run the same
// version of the application, every member can be reached, and nobody is on its way into the cluster, or
// all out of it.
func (v *View) GoodTime() bool {
	found := v.candidates()
	if len(found) == 0 || len(v.Unreachable) > 0 {
		return false
	}
	for i := range v.Members {
		switch v.Members[i].Status {
		case membership.Joining, membership.WeaklyUp, membership.PreparingForShutdown, membership.ReadyForShutdown:
			return false
		case membership.Up, membership.Leaving, membership.Exiting, membership.Down, membership.Removed:
		}
	}
	return !slices.ContainsFunc(found, func(c candidate) bool {
		return c.member.Version.Compare(found[0].member.Version) != 0
	})
}

func (v *View) moving(s Shard) bool {
	_, found := slices.BinarySearch(v.Moving, s)
	return found
}

// ErrInvalid is matched by the errors about settings that can't be.
var ErrInvalid = errors.New("allocation: invalid")

// Shard is the number of a shard, from 0.
type Shard uint32

// Region is a region that may host shards, one on each node.
type Region struct {
	Node identity.Node
	// Shards are those that it has, in the order in which they were allocated.
	Shards []Shard
}

// Request asks for the home of a shard.
type Request struct {
	Shard Shard
	// Requester is the node whose region needs the shard.
	Requester identity.Node
}

// Find returns the index of a region in regions that are sorted by node.
func Find(regions []Region, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(regions, n, func(r Region, n identity.Node) int { return r.Node.Compare(n) })
}

// All allocates several shards, one after the other: each finds those before it in the view.
// The answers stand in the order of the requests; no node says that pick found none, or one that is no region.
// The view is not changed.
func All(v View, requests []Request, pick func(View, Request) (identity.Node, bool)) []identity.Node {
	v.Regions = slices.Clone(v.Regions)
	for i := range v.Regions {
		v.Regions[i].Shards = slices.Clip(v.Regions[i].Shards) // an append copies
	}
	answers := make([]identity.Node, len(requests))
	for k, request := range requests {
		n, ok := pick(v, request)
		if !ok {
			continue
		}
		if i, found := Find(v.Regions, n); found {
			v.Regions[i].Shards = append(v.Regions[i].Shards, request.Shard)
			answers[k] = n
		}
	}
	return answers
}
