// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package sharding spreads entities over the nodes of a cluster: each of them lives once, on the
// node that hosts its shard, and moves when nodes come and go.
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
