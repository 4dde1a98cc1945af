// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import "github.com/refold-io/refold/identity"

// External puts shards where a program said: a map that is fixed when the type is started, and equal on all nodes. To move shards while nodes
// run, write a sharding.Strategy whose methods read the desired places and ask External.
type External struct {
	// Desired is the name of the node that each shard should be on. Shards that are not
	// in it stay where they are, and start where they are first needed. It is immutable.
	Desired map[Shard]string
}

// Allocate returns the region on the desired node, or that of the requester if there is none
// that may host shards. There is none if that one may not either.
func (e External) Allocate(v View, request Request) (identity.Node, bool) {
	if n, ok := e.region(&v, request.Shard); ok {
		return n, true
	}
	return request.Requester, v.MayHost(request.Requester)
}

// Rebalance returns the shards that are on another region than the desired one, if that is
// there, by region and the order of allocation.
func (e External) Rebalance(v View) []Shard {
	var chosen []Shard
	for _, r := range v.Regions {
		for _, s := range r.Shards {
			if n, ok := e.region(&v, s); ok && n != r.Node && !v.moving(s) {
				chosen = append(chosen, s)
			}
		}
	}
	return chosen
}

// region finds the region on the node where a shard should be. Of two incarnations of a
// node, at most one is a member that may host shards for long.
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
