// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"errors"
	"slices"

	"github.com/refold-io/refold/identity"
)

// View is the input of a strategy. It is immutable.
type View struct {
	// Regions are the registered regions, sorted by node, without those that are leaving or count
	// as terminated.
	Regions []Region
	// Moving are the shards that are being handed off, sorted.
	Moving []Shard
	// Pinned are the shards that an operator has moved to a node, sorted: see sharding.Admin.Move.
	// Rebalance need not return them, because the coordinator does not move them.
	Pinned []Shard
	// Load is the load of the shards, for a strategy whose method ReadsLoad returns true: see
	// ByLoad. It has the shards of regions that have reported their load, and those that have just
	// left such a region. The map is immutable.
	Load map[Shard]ShardLoad
	// Nodes is the load of the nodes whose regions have reported their load several times, for the
	// same strategies. The map is immutable.
	Nodes map[identity.Node]NodeLoad
	// Members are all members of the cluster, sorted by node.
	Members []identity.Member
	// Unreachable are the members that some member cannot reach, sorted.
	Unreachable []identity.Node
	// Role is the role that a member needs to host shards. "" means that no role is needed.
	Role string
}

type candidate struct {
	region *Region
	member *identity.Member
	class  class
}

// class is the suitability of a region, independent of its shards. A smaller class is better.
type class uint8

const (
	fit class = iota
	leaving
	unreachable
	unfit // gets nothing
)

func (v *View) classOf(m *identity.Member) class {
	switch m.Status {
	case identity.Joining, identity.WeaklyUp, identity.Exiting, identity.Down, identity.Removed:
		return unfit
	case identity.Up, identity.Leaving, identity.PreparingForShutdown, identity.ReadyForShutdown:
	}
	switch _, cut := slices.BinarySearchFunc(v.Unreachable, m.Node, identity.Node.Compare); {
	case !m.HasRole(v.Role):
		return unfit
	case cut:
		return unreachable
	case m.Status == identity.Leaving:
		return leaving
	}
	return fit
}

// candidates returns the regions whose member is known, sorted by node.
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

// compare orders candidates, the best first. The order is total, so the result does not depend on
// the sort algorithm.
func (c candidate) compare(other candidate) int {
	return cmp.Or(
		cmp.Compare(c.class, other.class),
		other.member.Version.Compare(c.member.Version),
		cmp.Compare(len(c.region.Shards), len(other.region.Shards)),
		c.region.Node.Compare(other.region.Node),
	)
}

// Suitable returns the regions whose member is known, the best first. The last ones may be regions
// that Best never returns.
func (v *View) Suitable() []Region {
	sorted := v.candidates()
	slices.SortFunc(sorted, candidate.compare)
	regions := make([]Region, len(sorted))
	for i, c := range sorted {
		regions[i] = *c.region
	}
	return regions
}

// Best returns the region that should get the next shard, and false if no region may get one.
func (v *View) Best() (identity.Node, bool) {
	found := v.candidates()
	if len(found) == 0 {
		return identity.Node{}, false
	}
	best := slices.MinFunc(found, candidate.compare)
	return best.region.Node, best.class != unfit
}

// MayHost reports whether a region exists and may get shards.
func (v *View) MayHost(n identity.Node) bool {
	i, found := Find(v.Regions, n)
	if !found {
		return false
	}
	at := View{Regions: v.Regions[i : i+1], Members: v.Members, Unreachable: v.Unreachable, Role: v.Role}
	c := at.candidates()
	return len(c) > 0 && c[0].class != unfit
}

// GoodTime reports whether shards may move: there are regions, all of them run the same version of
// the application, all members are reachable, no member is joining, and the cluster is not shutting
// down.
func (v *View) GoodTime() bool {
	found := v.candidates()
	if len(found) == 0 || len(v.Unreachable) > 0 {
		return false
	}
	for i := range v.Members {
		switch v.Members[i].Status {
		case identity.Joining, identity.WeaklyUp, identity.PreparingForShutdown, identity.ReadyForShutdown:
			return false
		case identity.Up, identity.Leaving, identity.Exiting, identity.Down, identity.Removed:
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

func (v *View) pinned(s Shard) bool {
	_, found := slices.BinarySearch(v.Pinned, s)
	return found
}

// movable returns those of shards that are not pinned.
func (v *View) movable(shards []Shard) []Shard {
	if len(v.Pinned) == 0 {
		return shards
	}
	return slices.DeleteFunc(slices.Clone(shards), v.pinned)
}

// ErrInvalid is matched by the errors about invalid settings.
var ErrInvalid = errors.New("allocation: invalid")

// Shard is the number of a shard, from 0.
type Shard uint32

// Region is a region that may host shards. A node has at most one region of an entity type.
type Region struct {
	Node identity.Node
	// Shards are its shards in the order of allocation.
	Shards []Shard
}

// Request is a request for the home of a shard.
type Request struct {
	Shard Shard
	// Requester is the node whose region needs the shard.
	Requester identity.Node
}

// Find returns the index of a node's region in regions that are sorted by node.
func Find(regions []Region, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(regions, n, func(r Region, n identity.Node) int { return r.Node.Compare(n) })
}

// All allocates several shards, one after the other. The view for each request includes the homes
// of the requests before it. The results are in the order of the requests. A zero node means that
// pick found no region, or an unknown one. The given view is not changed.
func All(v View, requests []Request, pick func(View, Request) (identity.Node, bool)) []identity.Node {
	v.Regions = slices.Clone(v.Regions)
	for i := range v.Regions {
		v.Regions[i].Shards = slices.Clip(v.Regions[i].Shards) // so that an append copies the slice
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
