// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package allocation is the arithmetic of where shards live: which region gets a new shard,
// and which shards should move. It is values and pure functions.
//
// A coordinator describes what it knows as a View: the regions with their shards in the order in which
// these were allocated, and the members of the cluster. A strategy answers two questions:
//
//	region, ok := strategy.Allocate(view, request)  // where does this shard go?
//	shards := strategy.Rebalance(view)              // which ones should be given up and allocated again?
//
//	LeastShards   as many everywhere; so many at a time that limits allow. The default
//	Threshold     moves when the fullest and the best region differ by more than a threshold
//	*Hashing      a ring of the regions; a shard of the same number is on the same node for all types
//	External      where a program said
//
// New shards go to the best region: one that can be reached before one that can't, one that stays before
// one that leaves, one with a newer version of the application before an older one (so that a rolling
// upgrade moves each shard once), fewer shards before more, and then by node. So nothing depends on the
// order in which regions came. Regions of members that are Down or Exiting get nothing: they would
// never start it. Those of members that are not known, not Up yet, or without the role get nothing either.
//
// Shards are moved at good times only: when all regions run the same version, all members can be reached,
// and nobody is about to join, or the whole cluster to stop.
//
// What is here must be the same on all nodes that may run the coordinator, or each new coordinator moves
// shards back.
package allocation
