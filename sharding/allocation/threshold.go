// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
)

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
