// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package allocation has the strategies that allocate shards to regions and choose the shards to
// move. They are pure functions and values.
//
// The coordinator passes its state as a View: the regions with their shards in the order of
// allocation, and the members of the cluster. A strategy has two methods:
//
//	region, ok := strategy.Allocate(view, request)  // the home of a shard
//	shards := strategy.Rebalance(view)              // shards that should be handed off and allocated again
//
//	LeastShards   the same number on all regions; a limited number of moves at a time. The default
//	Threshold     moves when the fullest and the best region differ by more than a threshold
//	*Hashing      a ring of the regions; a shard of the same number is on the same node for all types
//	External      homes that a program defines
//	ByLoad        the same load on all nodes, with few moves
//
// A new shard goes to the best region. These criteria determine the order of the regions; a later
// criterion counts only if all earlier ones are equal:
//
//   - a reachable region before an unreachable one,
//   - a staying region before a leaving one,
//   - a newer version of the application before an older one, so that a rolling upgrade moves each
//     shard once,
//   - fewer shards before more; with ByLoad, less load before more,
//   - the node, so that the order of registration has no influence.
//
// The regions of these members get no shards: Down or Exiting members, which would never start a
// shard; unknown members; members that are not yet Up; and members without the role.
//
// Shards move only at a good time: all regions run the same version, all members are reachable, no
// member is joining, and the cluster is not shutting down.
//
// Strategies and their settings must be equal on all nodes that may run the coordinator. If they
// differ, each new coordinator reverses moves of the previous coordinator.
package allocation
