// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import "github.com/refold-io/refold/identity"

// External allocates shards to homes that a program defines: a map that is fixed when the type is
// started, and equal on all nodes. To move shards at run time, write a sharding.Strategy whose
// methods read the desired homes and call External.
type External struct {
	// Desired is the name of the node for each shard. Other shards stay on their region, and start
	// on the region that requests them first. The map is immutable.
	Desired map[Shard]string
}

// Allocate returns the region on the desired node. If there is none, or if that region must not
// host shards, it returns the requester. It returns false if the requester must not host shards
// either.
func (e External) Allocate(v View, request Request) (identity.Node, bool) {
	if n, ok := e.region(&v, request.Shard); ok {
		return n, true
	}
	return request.Requester, v.MayHost(request.Requester)
}

// Rebalance returns the shards whose desired region exists and that are on another region. They are
// sorted by region, and within a region by the order of allocation.
func (e External) Rebalance(v View) []Shard {
	var chosen []Shard
	for _, r := range v.Regions {
		for _, s := range r.Shards {
			if n, ok := e.region(&v, s); ok && n != r.Node && !v.moving(s) && !v.pinned(s) {
				chosen = append(chosen, s)
			}
		}
	}
	return chosen
}

// region returns the region on the desired node of a shard. If two incarnations of the node are
// registered, it returns the one that may host shards.
func (e External) region(v *View, s Shard) (identity.Node, bool) {
	name, desired := e.Desired[s]
	if !desired {
		return identity.Node{}, false
	}
	i, _ := Find(v.Regions, identity.Node{Name: name})
	for ; i < len(v.Regions) && v.Regions[i].Node.Name == name; i++ {
		if v.MayHost(v.Regions[i].Node) {
			return v.Regions[i].Node, true
		}
	}
	return identity.Node{}, false
}
