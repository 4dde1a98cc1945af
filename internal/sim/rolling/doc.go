// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package rolling simulates a large cluster that hosts sharded entities while its nodes restart one
// after the other with a new version of the application.
//
//	result := rolling.Restart{Seed: 1, Nodes: 500, Shards: 5000}.Run()
//
// Sharding is the real implementation: each node has a machine of package internal/shardcore with
// its region, its shards, and the coordinator while the node runs it, with default settings and the
// default strategy. Frames between nodes are encoded, take 1 to 5 ms, and are never lost. The
// coordinator's store is a journal with conditional appends.
//
// Membership is a model, because hundreds of simulated gossiping nodes would need hours: there is
// one list of members, which changes status as in reality, and each node learns each change after
// its own delay. The consequences of a change wait until all nodes have learned it. The singleton
// with the coordinator moves to the oldest staying member when its node is Exiting.
//
// After each step of a node these rules are checked: a shard has at most one owner, which was
// stored as its home before; an entity runs once; a command is delivered once.
package rolling
