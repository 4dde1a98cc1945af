// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package sharding distributes the entities of a type over the nodes of a cluster. Each entity runs
// on one node, the home of its shard. Shards move when nodes join and leave.
//
//	accounts, err := sharding.Host(ctx, node, rt, AccountType, sharding.Options{}) // one node: eventsourcing.Host(rt, AccountType)
//	balance, err := eventsourcing.Ask(ctx, accounts.Ref("42"), Lookup{})
//
// A Region implements eventsourcing.Entities, as the entities of a single node do.
//
//	      node a                      node b                        node c
//	+-----------------+         +-----------------+           +-----------------+
//	| Ref("42")       |         |                 |           | Ref("42")       |
//	|    |            | command |                 |  command  |    |            |
//	| region ---------+---------+-> region <------+-----------+- proxy          |
//	|    ^            |         |      |          |           |                 |
//	|    | home of    |         |      v          |   reply   |                 |
//	|    | shard 7?   |         | shard 7 [42] ---+-----------+-> caller        |
//	|    v            |         |      [43] [61]  |           |                 |
//	| coordinator     |         |                 |           |                 |
//	|    |            |         |                 |           |                 |
//	+----+------------+         +-----------------+           +-----------------+
//	     v
//	  CoordinatorStore
//
// The ID of an entity determines its shard. The coordinator is a cluster singleton. It allocates a
// home to each shard and stores its decisions. A region asks the coordinator for a home once and
// holds the commands for the shard until the reply; later commands go directly to the home. A proxy
// does the same and hosts no shards.
//
// StartGroup and StartWorkers run numbered instances of services that are no entities: see Group and
// Workers.
//
// # Guarantees
//
//   - An entity runs on one node at a time, unless the cluster splits: see package downing.
//   - The commands of one sender to one entity through one region arrive in order, also while the
//     shard moves.
//   - A planned move (rebalance, leaving node) loses no command. If a node dies, the commands in
//     transit to it are lost. Their callers get an error that matches
//     eventsourcing.ErrOutcomeUnknown.
//   - No command is sent twice. An error about a refused command means that the command had no
//     effect: see ErrHandOff and the errors next to it, and eventsourcing.NotDone.
//
// # Caveats
//
// Shards, ShardOf, the role and the stores of a type must be the same on all nodes. The coordinator
// rejects a region with other settings: see ErrMismatch. Of the stores it compares only the kind: see
// Options. Every node with the role must call Host for the type, because the oldest of these nodes runs
// the coordinator. An Ask needs a deadline,
// because the network may lose the reply. A command or a reply from another node is a copy. Within
// one node, the sender and the entity share the value.
//
// An idle entity leaves memory if it has no pending work: see Options.Passivation. When its shard
// moves, an entity handles the commands in its mailbox and stops. If that takes too long, it is
// killed. Unconfirmed deliveries and deadlines continue when the entity runs again. An entity with such
// work runs again without a command: see Options.Wake. Other entities run again with their next command,
// or at once with Options.Remember.
//
// # Failures
//
// The host supervises entities. If an entity cannot be created or recovered, or if it panics, its
// callers get the error. The host retries after a pause that grows from Options.Host.MinBackoff to
// MaxBackoff. A remembered entity that ends by itself is started again after Tuning.RestartBackoff.
//
// If a handler or a journal blocks an entity while its shard moves, the entity is killed five
// seconds before the end of Tuning.HandOffTimeout. Commands that it has not begun to handle are
// refused with ErrHandOff. Commands whose events are being written have an unknown outcome. A
// handler that never returns keeps its shard on the node, and the shutdown of the node waits until
// its phase times out.
//
// # Inspection
//
// Region.State returns the state of the region of one node. Region.Statistics returns the entity
// counts of all regions and the regions that did not reply. Region.CurrentRegions returns the
// regions that are registered with the coordinator. Region.Drain moves the shards of a node away
// while the region continues to route commands. NewHealth serves probes. Admin serves operators and
// the command "refold shards".
//
// # Stores
//
// The coordinator of an entity type keeps its decisions in a CoordinatorStore: in a journal, or in
// replicated data. Both fence an older coordinator, by different means:
//
//	                      JournalStores                         ReplicatedStores
//	a change is           events, appended if the last          a state with the clock (term, number),
//	                      sequence number is as expected        written to a majority
//	a term begins         with such an event                    with a claim on a majority; then the state
//	                                                            is read again
//	an older              finds another sequence number than    finds a higher claim on the majority that it
//	coordinator           it expects                            reads after each write
//	unknown outcomes      a fence is appended at the same       the state found is written back to a majority
//	                      sequence number; a late write fails
//	all nodes stop        nothing is lost                       the state is lost and begins empty
//
// A RememberStore keeps the IDs of running entities, so that these entities run again when their
// shard moves or the cluster restarts. JournalStores keep the IDs in the journal, where a replaced
// owner of a shard can no longer write. ReplicatedStores keep them in replicated data, where a
// replaced owner can still write.
//
// Package shardingtest tests other implementations of these stores.
package sharding
