// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/refold-io/refold/identity"
)

// points is how many points each region has on the ring.
const points = 10

// Hashing puts the regions on a ring, and each shard on the region that follows its
// hash. When a region comes or goes only its part of the shards moves. Regions are placed by the name of
// their node, so one that restarts has its old place, and shards of the same number are on the same node
// for all entity types.
//
// It keeps the ring, so each entity type has one of its own. It is not safe for
// concurrent use.
type Hashing struct {
	// Limit is how many shards are moved in a round at most. Defaults to 0: any number.
	Limit int

	nodes []identity.Node
	ring  []point
}

type point struct {
	hash uint64
	node identity.Node
}

// Validate returns an error that matches ErrInvalid if the limit is wrong.
func (h *Hashing) Validate() error {
	if h.Limit < 0 {
		return fmt.Errorf("%w: Hashing.Limit is %d, less than 0", ErrInvalid, h.Limit)
	}
	return nil
}

// Allocate returns the region whose place on the ring the shard is at. Those that may not
// host shards are not on it.
func (h *Hashing) Allocate(v View, request Request) (identity.Node, bool) {
	h.place(&v)
	return h.owner(request.Shard)
}

// Rebalance returns the shards that are not where the ring has them, by region and
// the order of allocation.
func (h *Hashing) Rebalance(v View) []Shard {
	if !v.GoodTime() {
		return nil
	}
	h.place(&v)
	var chosen []Shard
	for _, r := range v.Regions {
		for _, s := range r.Shards {
			owner, ok := h.owner(s)
			if !ok || owner == r.Node || v.moving(s) {
				continue
			}
			if chosen = append(chosen, s); len(chosen) == h.Limit {
				return chosen
			}
		}
	}
	return chosen
}

// place makes the ring, if the regions are other ones than before.
func (h *Hashing) place(v *View) {
	found := v.candidates()
	nodes := make([]identity.Node, 0, len(found))
	for _, c := range found {
		if c.class != unfit {
			nodes = append(nodes, c.region.Node)
		}
	}
	if h.ring != nil && slices.Equal(nodes, h.nodes) {
		return
	}
	h.nodes, h.ring = nodes, make([]point, 0, len(nodes)*points)
	for _, n := range nodes {
		place := hashText(n.Name)
		for i := range uint64(points) {
			h.ring = append(h.ring, point{mix(place + i), n})
		}
	}
	slices.SortFunc(h.ring, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), a.node.Compare(b.node))
	})
}

func (h *Hashing) owner(s Shard) (identity.Node, bool) {
	if len(h.ring) == 0 {
		return identity.Node{}, false
	}
	at := mix(uint64(s))
	i, _ := slices.BinarySearchFunc(h.ring, at, func(p point, at uint64) int { return cmp.Compare(p.hash, at) })
	return h.ring[i%len(h.ring)].node, true
}

// hashText is FNV-1a, mixed: names that differ in their last byte only are far
// apart.
func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// mix spreads the bits of a number over all of the result, one to one.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
