// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package sim simulates clusters: many machines of package internal/node, which production runs as
// well, in the simulated environment of package internal/sim/env. A seed determines the whole
// simulation: the number of nodes, the downing strategy, the faults and their times. The same seed
// gives the same events, to the last byte.
//
//	result := sim.Run(seed, 0, nil)
//	if result.Violation != nil { ... } // names the broken invariant, the node and the time
//
// The simulator checks the invariants of a node after each of its steps, and the invariants of the
// cluster when an event may have broken them. At the end the simulator repairs all faults. The nodes
// then have to form one cluster again, with all singletons, shards and data.
//
//	make sim               some seeds
//	make sim SEEDS=2000    more seeds
//	make sim SEED=123      one seed, with all its events
//
// With -nodes of internal/sim/run, the clusters have this number of nodes, and default settings of
// downing.
//
// # Faults
//
// Frames are lost, delayed, duplicated and reordered. A node loses its link to the broker in one or
// both directions, and may not notice the loss. A pair of nodes loses its connection. The broker is
// split in two or fails. Nodes are paused, killed and restarted. Clocks drift, and wall clocks
// jump. Lease requests are answered late or never, and may take effect after their timeout. Members
// leave, join, and are downed by operators. Nodes leave before they are Up, and members crash after
// they have accepted a node. Strangers, removed nodes and members send forged messages and frames.
// Some seeds have small buffers. With lease-majority, the owner of the lease does not always lead.
//
// # Replicated data
//
// Each node runs a replicator as well. Its disk is slow or fails, and survives the node. Clients
// update and read counters, sets, maps and registers at any node and consistency level. A history
// records each request and its answer. The simulator compares the history with the data of all
// nodes and checks these rules:
//
//   - An acknowledged write is on as many nodes as its level requires, and on disk if the key is
//     durable.
//   - A read returns each acknowledged write whose replicas overlap with the replicas of the read.
//   - A register with one writer is linearizable where reads repair.
//
// At the end all nodes have equal data that matches the requests.
//
// # Sharded entities
//
// Each node also hosts shards of an entity type; some nodes have a proxy. The coordinator is a
// singleton. Its state is in replicated data, or in a journal. The journal fails, is slow, and may
// store an append although the answer is lost. Clients send at least 10,000 numbered commands to
// entities. The entities store the commands in the journal, fenced, and reply. Shards are
// rebalanced at random, by their number or by a load that nodes report. An operator moves shards to
// nodes and releases them. Nodes are drained, and a drain may be undone. Nodes are also restarted one
// after the other, one of them with different settings. Sometimes two coordinators run. Running
// entities are remembered in the journal, in replicated data, or not at all.
//
// The simulator checks these rules after each step:
//
// - An entity runs once, and a shard has one owner.
// - Coordinators send only stored decisions. Regions accept no lower term.
// - A node with different settings is refused.
// - The commands of a region to an entity arrive in order and at most once.
// - A pinned shard stays on its node unless the node leaves or is drained.
//
// At the end it checks these rules:
//
//   - Each command was delivered or refused, or was lost with a node that ended or a link that
//     reported a gap.
//   - Acknowledged commands are stored once, and all asks are answered.
//   - Remembered entities run.
//   - Pinned shards are on their nodes, if these nodes can host them.
//
// In one of eight seeds only planned moves happen, some of them while messages to the leaving node
// are slow. In these seeds no command is lost or refused, a leaving node hands off its shards in
// time, and remembered entities start again. There is one exception. If a node leaves while no
// coordinator runs, the node refuses the commands for shards without a known home after the timeout
// of package sharding. The callers of these commands receive the error.
//
// In half of the seeds, shards have one or two standbys: nodes follow the journal, some of them slowly.
// In a quarter of the seeds moves begin at once, and in a quarter each shard needs a lease, but not
// where only planned moves happen: with either option, a planned move may refuse commands. The
// simulator also checks these rules:
//
//   - A shard whose home was removed does not go to a node that has applied less of the journal than a
//     standby that responds.
//   - Only the home of a shard delivers commands. At the end each shard has its standbys on other nodes.
//   - An entity starts only while its node holds the lease of the shard.
//
// The standby itself is a model, because package eventsourcing has no state machine for it. Whether a
// recovery applies the events that a standby lacks is tested there.
//
// # Groups
//
// In half of the seeds, all nodes run one or two groups of package sharding: some ordinary, some
// exclusive, some for the nodes with a role, some with a number of instances that depends on the
// number of nodes or on the load. Operators change the number. The simulator checks these rules:
//
//   - An exclusive instance runs once. A node runs each instance at most once.
//   - Tables of one version are equal, and no node goes back to an earlier table.
//   - A coordinator makes a table only if the membership has converged and all members with the role
//     have the table before.
//   - A node that leaves, by itself or on request, has no instances and is in no table.
//
// At the end all nodes have equal tables, and each instance runs once, where the tables say.
//
// # Excluded faults
//
// The protocol does not promise to survive these faults, so the simulation excludes them:
//
//   - The network is not cut along a second line while members decide about the first cut, because
//     both sides may count a node that changes sides.
//   - The first seed does not start while it cannot reach another seed that is a member, because it
//     would correctly form a second cluster.
//   - A living member is not downed while it cannot receive the notice.
//   - A node with different settings does not get the coordinator, because this coordinator would
//     refuse all other nodes.
//   - A member sends no forged messages with which it becomes the coordinator or the oldest member,
//     or downs other members: see docs/security.md.
//   - With lease-majority, no node is paused and the broker does not fail during a cut, because the
//     lease would expire.
package sim
