// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package sim simulates clusters: many machines of package internal/node, which production runs as
// well, in the simulated environment of package internal/sim/env. A seed determines the whole
// simulation: the number of nodes, the downing strategy, the faults and their times. The same seed
// gives the same events, to the last byte.
//
//	result := sim.Run(seed, nil)
//
// result.Violation names the broken invariant, the node and the time
//
// Invariants of a node are checked after each of its steps, those of the cluster when they may have
// changed. At the end all faults are repaired. The nodes then have to form one cluster again, with
// all singletons, shards and data.
//
//	make sim               some seeds
//	make sim SEEDS=2000    more seeds
//	make sim SEED=123      one seed, with all its events
//
// # Faults
//
// Frames are lost, delayed, duplicated and reordered. A node loses its link to the broker in one or
// both directions, and may not notice the loss. A pair of nodes loses its connection. The broker is
// split in two or fails. Nodes are paused, killed and restarted. Clocks drift, and wall clocks
// jump. Lease requests are answered late or never, and may take effect after their timeout. Members
// leave, join, and are downed by operators.
//
// # Replicated data
//
// Each node runs a replicator as well, with a disk that is slow or fails, and that survives the
// node. Clients update and read counters, sets, maps and registers at any node and consistency
// level. A history records each request and its answer, and the simulator compares it with the data
// of all nodes: an acknowledged write is on as many nodes as its level requires, and on disk if the
// key is durable; a read returns each acknowledged write whose replicas overlap with its own; a
// register with one writer is linearizable where reads repair. At the end all nodes have equal data
// that matches the requests.
//
// # Sharded entities
//
// Each node also hosts shards of an entity type; some nodes have a proxy. The coordinator is a
// singleton. Its state is in replicated data, or in a journal that fails, is slow, and stores
// appends whose answer was lost. Clients send at least 10,000 numbered commands to entities, which
// store them in the journal, fenced, and reply. Shards are rebalanced at random. Nodes are drained,
// and a drain may be undone. Nodes are also restarted one after the other, one of them with
// different settings. Sometimes two coordinators run. Running entities are remembered in the
// journal, in replicated data, or not at all.
//
// After each step: an entity runs once and a shard has one owner; coordinators send only stored
// decisions; regions accept no lower term; a node with different settings is refused; and the
// commands of a region to an entity arrive in order and at most once. At the end each command was
// delivered or refused, or was lost with a node that ended or a link that reported a gap;
// acknowledged commands are stored once; all asks are answered; and remembered entities run.
//
// In one of eight seeds only planned moves happen, some of them while messages to the leaving node
// are slow. No command is then lost or refused, a leaving node hands off its shards in time, and
// remembered entities start again. There is one exception: if a node leaves while no coordinator
// runs, it refuses the commands for shards without a known home after the timeout of package
// sharding. Their callers get the error.
//
// # Excluded faults
//
// The protocol does not promise to survive these faults, so the simulation excludes them. The
// network is not cut along a second line while members decide about the first, because a node that
// changes sides may be counted on both. The first seed does not start while it cannot reach another
// seed that is a member, because it would correctly form a second cluster. A living member is not
// downed while it cannot receive the notice. A node with different settings does not get the
// coordinator, which would refuse all other nodes. With lease-majority, no node is paused and the
// broker does not fail during a cut, because the lease would expire.
package sim
