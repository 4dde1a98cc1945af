// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package rolling simulates a large cluster that hosts sharded entities while its nodes are started anew with a new version of the
// application, one after the other.
//
//	result := rolling.Restart{Seed: 1, Nodes: 500, Shards: 5000}.Run()
//
// Who decides where shards are is what really runs: each node has a machine of package internal/shardcore with its region, its shards,
// and the coordinator while it has that, all by default; and the strategy is the one that is the default. Frames between nodes are
// encoded and take 1 to 5 ms, and none is lost. The coordinator's store is a journal that refuses what is not based on what it holds.
//
// Membership is a model, as hundreds of real nodes that gossip for hours of simulated time take hours: there is one list of
// members, which goes on from one status to the next as it would, and each node hears of each change after a time of its own. What follows on a change
// waits until all have heard of it. The singleton that has the coordinator is handed over as the node that has it is Exiting, to the oldest member that stays.
//
// After each step of a node: a shard has one owner at most, and it is one that was stored as its home before; an entity lives once; a command comes once.
package rolling
