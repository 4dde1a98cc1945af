// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package sharding spreads entities over the nodes of a cluster: each of them lives once, on the
// node that hosts its shard, and moves when nodes come and go.
//
//	region, err := sharding.Start(ctx, node, AccountType(), sharding.Options{Runtime: rt, State: sharding.JournalState(journal, snapshots)})
//	balance, err := eventsourcing.Ask(ctx, region.Ref("42"), Lookup{})
//
//	      node a                      node b                        node c
//	+-----------------+         +-----------------+           +-----------------+
//	| Ref("42")       |         |                 |           | Ref("42")       |
//	|    |            | command |                 |  command  |    |            |
//	| region ---------+---------+-> region <------+-----------+- proxy          |
//	|    ^            |         |      |          |           |                 |
//	|    | where is   |         |      v          |  answer   |                 |
//	|    | shard 7?   |         | shard 7 [42] ---+-----------+-> caller        |
//	|    v            |         |      [43] [61]  |           |                 |
//	| coordinator     |         |                 |           |                 |
//	|    | decides    |         |                 |           |                 |
//	+----+------------+         +-----------------+           +-----------------+
//	     v
//	  CoordinatorStore
//
// An entity belongs to a shard by its ID. The coordinator, a cluster singleton, gives each shard a home and remembers that
// durably. Regions ask for homes once; commands wait meanwhile, and go straight to the home then. A proxy does the same and
// hosts nothing.
//
// # Guarantees
//
//   - An entity lives on one node at a time, as long as the cluster does not split: see package downing.
//   - The commands of a sender to an entity through one region arrive in order, also when the shard moves.
//   - A planned move loses nothing: a rebalance, a node that leaves. When a node dies, what was on its way to it is lost, and callers get an
//     error that matches eventsourcing.ErrOutcomeUnknown.
//   - Nothing is sent twice. A command that was refused says so: see ErrHandOff and the others, and eventsourcing.NotDone.
//
// # Caveats
//
// Shards, ShardOf, the role and the stores of a type must be the same on all nodes: a region that has others is refused, see ErrMismatch. Every
// node with the role must Start the type: the oldest of them runs the coordinator. An Ask needs a deadline, since the network may lose the answer. Commands and answers of other nodes
// are copies, those of the own node are not.
//
// An entity that nobody needs leaves memory, if it has nothing to do: see Options.Passivation. When its shard moves it stops behind the
// commands that it has, and is ended by force if that takes too long. Deliveries that are not confirmed and deadlines go on when it is
// there again, which is with the next command or, with Options.Remember, at once.
//
// # Failures
//
// An entity that can't be made or refolded, or that panics, is supervised by its host: whoever waits is told, and it is tried again after a
// pause that grows, between Options.Host.MinBackoff and MaxBackoff. A remembered one that has ended all the same comes back after
// Options.RestartBackoff. One that a handler or a journal holds up is ended by force when its shard moves, five seconds before
// Options.HandOffTimeout: commands that it had not begun to handle are refused with ErrHandOff, and those whose events are on their way
// to the journal have an unknown outcome. A handler that never returns keeps its shard where it is,
// and its node's shutdown waits the whole phase.
//
// # Looking at it
//
// Region.State has what the region of a node runs and what waits, Region.Statistics how many entities all regions have and who has not
// said so in time, Region.CurrentRegions who is registered with the coordinator. Region.Drain gives the shards of a node away while it goes on
// to reach entities. NewHealth is for probes, and Admin for operators, who use "refold shards".
//
// # Stores
//
// The coordinator of an entity type keeps what it decides in a CoordinatorStore: in a journal, or in
// replicated data. Both give the same fences, by other means:
//
//	                    JournalState                          ReplicatedState
//	a change is         events, appended where the number     a state under the clock (term, number),
//	                    of the last one is as expected        written to a majority
//	a term begins       with such an event                    with a claim on a majority, behind which the state
//	                                                          is read again
//	an older            finds another number than it          finds a higher claim on the majority that it reads
//	coordinator         expects                               behind each write
//	unknown outcomes    a fence takes the number              what is found is written back to a majority
//	all nodes stop      nothing is lost                       the state is lost, and begins empty
//
// Which entities ran is kept by a RememberStore, so that they run again when their shard moves or
// the cluster restarts: in the journal by JournalEntities, where an owner that was replaced can't write any
// more, or in replicated data by ReplicatedEntities, where it can.
//
// Package shardingtest checks stores of one's own.
package sharding
