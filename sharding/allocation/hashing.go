// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/hash"
)

// points is the number of points of each region on the ring.
const points = 10

// Hashing places the regions on a hash ring. Each shard belongs to the region that follows the hash
// of the shard number. When a region is added or removed, only shards of this region move. The
// place of a region depends only on the name of its node: a restarted node has its old place, and a
// shard number has the same node for all entity types.
//
// A Hashing keeps its ring, so each entity type needs its own. It is not safe for concurrent use.
type Hashing struct {
	// Limit is the maximum number of shards that move in a round. Defaults to 0: no limit.
	Limit int

	nodes []identity.Node
	ring  []point
}

type point struct {
	hash uint64
	node identity.Node
}

// Validate returns an error that matches ErrInvalid if the limit is invalid.
func (h *Hashing) Validate() error {
	var errs fielderror.Errors
	fielderror.NotNegative(&errs, "Hashing.Limit", h.Limit)
	return errs.Err(ErrInvalid)
}

// Allocate returns the owner of the shard on the ring. The ring contains only regions that may host
// shards.
func (h *Hashing) Allocate(v View, request Request) (identity.Node, bool) {
	h.build(&v)
	return h.owner(request.Shard)
}

// Rebalance returns the shards that are not hosted by their owner. They are sorted by region, and
// within a region by the order of allocation.
func (h *Hashing) Rebalance(v View) []Shard {
	if !v.GoodTime() {
		return nil
	}
	h.build(&v)
	var chosen []Shard
	for _, r := range v.Regions {
		for _, s := range r.Shards {
			owner, ok := h.owner(s)
			if !ok || owner == r.Node || v.moving(s) || v.pinned(s) {
				continue
			}
			if chosen = append(chosen, s); len(chosen) == h.Limit {
				return chosen
			}
		}
	}
	return chosen
}

// build rebuilds the ring if the regions have changed.
func (h *Hashing) build(v *View) {
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
		h64 := fnv.New64a()
		_, _ = h64.Write([]byte(n.Name)) // Write never returns an error
		place := mix(h64.Sum64())        // names that differ only in the last byte are far apart
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

func mix(x uint64) uint64 { return hash.Mix(x + hash.Golden) }
