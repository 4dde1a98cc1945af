// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package rolling contains the tests of rolling restarts: they simulate a cluster that hosts
// sharded entities while its nodes restart one after the other with a new version of the
// application. The cluster is large in make sim-large.
//
// Sharding is the real implementation: each node has a machine of package internal/shardcore with
// its region, its shards, and the coordinator while the node runs it, with default settings and the
// default strategy. Frames between nodes are encoded, take 1 to 5 ms, and are never lost. The
// coordinator's store is a journal with conditional appends.
//
// Membership is a model, because hundreds of simulated gossiping nodes would need hours. The model
// has one list of members. The status of each member changes as in a real cluster, and each node
// learns each change after its own delay. Most steps of a restart wait until all nodes have learned
// the previous change. When the node of the coordinator is Exiting, the coordinator moves to the
// oldest member that stays.
//
// After each step of a node these rules are checked: a shard has at most one owner, which was
// stored as its home before; an entity runs once; a command is delivered once.
package rolling
