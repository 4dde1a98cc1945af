// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/refold-io/refold/identity"
)

// LeastShards keeps the same number of shards on all regions. It decides upon a whole round of moves at a
// time, and upon the next one when all of them are done.
type LeastShards struct {
	// AbsoluteLimit is how many shards are moved in a round at most. Defaults to 20.
	AbsoluteLimit int
	// RelativeLimit is how many are moved in a round at most, as a share of all. Defaults to
	// 0.1. One may always be moved.
	RelativeLimit float64
}

// Validate returns an error that matches ErrInvalid and names each field that is
// wrong.
func (s LeastShards) Validate() error {
	var errs []error
	if s.AbsoluteLimit < 0 {
		errs = append(errs, fmt.Errorf("%w: LeastShards.AbsoluteLimit is %d, less than 0", ErrInvalid, s.AbsoluteLimit))
	}
	if !(s.RelativeLimit >= 0 && s.RelativeLimit <= 1) { // as it is, NaN is wrong too
		errs = append(errs, fmt.Errorf("%w: LeastShards.RelativeLimit is %v, it must be from 0 to 1", ErrInvalid, s.RelativeLimit))
	}
	return errors.Join(errs...)
}

// Allocate returns the best region.
func (LeastShards) Allocate(v View, _ Request) (identity.Node, bool) { return v.Best() }

// limit is how many of n shards may be moved in a round.
func (s LeastShards) limit(n int) int {
	share := cmp.Or(s.RelativeLimit, 0.1) * float64(n)
	// 0.29 of 100 is a little less than 29 in floating point.
	return max(1, min(int(math.Floor(share+1e-9)), cmp.Or(s.AbsoluteLimit, 20)))
}

// Rebalance returns the shards that should move. First, regions give up what they have
// beyond their part, rounded up. If there is no such region, those that are at least one short of it
// get one from each that isn't.
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
	limit := s.limit(n)
	var chosen []Shard
	for _, r := range regions {
		chosen = append(chosen, r.Shards[:max(0, len(r.Shards)-part)]...)
	}
	if len(chosen) > 0 {
		return chosen[:min(limit, len(chosen))]
	}
	missing := 0
	for _, r := range regions {
		missing += max(0, part-1-len(r.Shards))
	}
	for _, r := range regions {
		if len(r.Shards) >= part && len(chosen) < min(missing, limit) {
			chosen = append(chosen, r.Shards[0])
		}
	}
	return chosen
}
