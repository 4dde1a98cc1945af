// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"slices"

	"github.com/refold-io/refold/identity"
)

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
