// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// State is what a coordinator knows for good: the regions and which shards they host. It is
// immutable; the zero value is empty. What it returns must not be modified.
type State struct {
	term    uint64
	holder  identity.Node
	regions []allocation.Region // sorted by node
	proxies []identity.Node     // sorted
	homes   []uint16            // by shard, up to the highest that has a home: which of the regions that is, from 1; 0 is none
	shards  int
}

// Term is the term of the last coordinator. 0 is none.
func (s State) Term() uint64 { return s.term }

// Holder is the node of the last coordinator.
func (s State) Holder() identity.Node { return s.holder }

// Regions are the regions with their shards, in the order of allocation, sorted by node.
func (s State) Regions() []allocation.Region { return s.regions }

// Proxies are the nodes that only send, sorted.
func (s State) Proxies() []identity.Node { return s.proxies }

// Shards is how many shards have a home.
func (s State) Shards() int { return s.shards }

// Home returns the region that hosts a shard.
func (s State) Home(shard Shard) (identity.Node, bool) {
	if int(shard) >= len(s.homes) {
		return identity.Node{}, false
	}
	nr := s.homes[shard]
	if nr == 0 {
		return identity.Node{}, false
	}
	return s.regions[nr-1].Node, true
}

// Region returns the shards of a region.
func (s State) Region(n identity.Node) ([]Shard, bool) {
	i, found := allocation.Find(s.regions, n)
	if !found {
		return nil, false
	}
	return s.regions[i].Shards, true
}

// HasProxy reports whether a node is registered as a proxy.
func (s State) HasProxy(n identity.Node) bool { return has(s.proxies, n) }

// Equal reports whether two states are the same, the order of allocation included.
func (s State) Equal(other State) bool {
	return s.term == other.term && s.holder == other.holder && slices.Equal(s.proxies, other.proxies) &&
		slices.EqualFunc(s.regions, other.regions, func(a, b allocation.Region) bool {
			return a.Node == b.Node && slices.Equal(a.Shards, b.Shards)
		})
}

// Apply returns the state after events. The error says which of them can't be.
func (s State) Apply(events ...Event) (State, error) {
	f := NewFold(s)
	for _, e := range events {
		if err := f.Apply(e); err != nil {
			return State{}, err
		}
	}
	return f.state, nil
}

func has(nodes []identity.Node, n identity.Node) bool {
	_, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	return found
}

func with(nodes []identity.Node, n identity.Node) []identity.Node {
	i, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	if found {
		return nodes
	}
	return slices.Insert(nodes, i, n)
}

func without(nodes []identity.Node, n identity.Node) []identity.Node {
	i, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	if !found {
		return nodes
	}
	return slices.Delete(nodes, i, i+1)
}
