// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"math"

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
