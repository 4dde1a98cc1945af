// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"math"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
)

// LeastShards keeps the same number of shards on all regions. It moves shards in rounds. The next
// round begins after all moves of the current round have ended.
type LeastShards struct {
	// AbsoluteLimit is the maximum number of shards that move in a round. Defaults to 20.
	AbsoluteLimit int
	// RelativeLimit is the same limit as a fraction of all shards. Defaults to 0.1. At least one
	// shard may move.
	RelativeLimit float64
}

// Validate returns an error that matches ErrInvalid and names each invalid field.
func (s LeastShards) Validate() error {
	var errs fielderror.Errors
	fielderror.NotNegative(&errs, "LeastShards.AbsoluteLimit", s.AbsoluteLimit)
	if !(s.RelativeLimit >= 0 && s.RelativeLimit <= 1) { // this form of the condition also rejects NaN
		errs.Addf("LeastShards.RelativeLimit", "is %v, it must be from 0 to 1", s.RelativeLimit)
	}
	return errs.Err(ErrInvalid)
}

// Allocate returns the best region.
func (LeastShards) Allocate(v View, _ Request) (identity.Node, bool) { return v.Best() }

// Rebalance returns the shards that should move. The part of a region is the average number of
// shards, rounded up. First, regions lose the shards in excess of their part. If no region has an
// excess, regions with a full part lose one shard each, until every region can have at least its
// part less one.
func (s LeastShards) Rebalance(v View) []Shard {
	if len(v.Moving) > 0 || !v.GoodTime() {
		return nil
	}
	regions := v.Suitable()
	n := 0
	for _, r := range regions {
		n += len(r.Shards)
	}
	if n == 0 {
		return nil
	}
	part := (n + len(regions) - 1) / len(regions)
	// In floating point, 0.29*100 is slightly less than 29. The small addend corrects this.
	share := int(math.Floor(cmp.Or(s.RelativeLimit, 0.1)*float64(n) + 1e-9))
	limit := max(1, min(share, cmp.Or(s.AbsoluteLimit, 20)))
	var chosen []Shard
	for _, r := range regions {
		movable := v.movable(r.Shards)
		chosen = append(chosen, movable[:min(max(0, len(r.Shards)-part), len(movable))]...)
	}
	if len(chosen) > 0 {
		return chosen[:min(limit, len(chosen))]
	}
	missing := 0
	for _, r := range regions {
		missing += max(0, part-1-len(r.Shards))
	}
	for _, r := range regions {
		if movable := v.movable(r.Shards); len(r.Shards) >= part && len(movable) > 0 && len(chosen) < min(missing, limit) {
			chosen = append(chosen, movable[0])
		}
	}
	return chosen
}

// Threshold moves shards from the fullest region when the fullest and the best region differ by
// more than a threshold. It moves a few shards at a time and does not wait until earlier moves have
// ended.
type Threshold struct {
	// Difference is the number of additional shards that the fullest region may have compared with
	// the best region, and the maximum number of shards that one decision moves. Defaults to 1.
	Difference int
	// MaxMoving is the maximum number of shards that move at the same time. Defaults to 3.
	MaxMoving int
}

// Validate returns an error that matches ErrInvalid and names each invalid field.
func (s Threshold) Validate() error {
	var errs fielderror.Errors
	fielderror.NotNegative(&errs, "Threshold.Difference", s.Difference)
	fielderror.NotNegative(&errs, "Threshold.MaxMoving", s.MaxMoving)
	return errs.Err(ErrInvalid)
}

// Allocate returns the best region.
func (Threshold) Allocate(v View, _ Request) (identity.Node, bool) { return v.Best() }

// Rebalance returns the shards that should move, the lowest numbers of the fullest region. Shards
// that are being handed off count only for the best region.
func (s Threshold) Rebalance(v View) []Shard {
	threshold, room := cmp.Or(s.Difference, 1), cmp.Or(s.MaxMoving, 3)-len(v.Moving)
	if room <= 0 || !v.GoodTime() {
		return nil
	}
	regions := v.Suitable()
	var most []Shard
	for _, r := range regions {
		if rest := slices.DeleteFunc(slices.Clone(r.Shards), v.moving); len(rest) > len(most) {
			most = rest
		}
	}
	difference := len(most) - len(regions[0].Shards)
	if difference <= threshold {
		return nil
	}
	movable := v.movable(most)
	slices.Sort(movable)
	return movable[:min(difference-threshold, threshold, room, len(movable))]
}

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
