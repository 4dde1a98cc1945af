// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package sim simulates clusters: many machines of package internal/node, which are what
// really runs, in a world of package internal/sim/env, which is not. A number, the seed, says
// all that happens: how many nodes there are, how they decide who survives, what fails
// and when. The same seed is the same story, to the last byte.
//
//	result := sim.Run(seed, sim.Options{})
//	if result.Violation != nil { ... } // an invariant that was broken, where and when
//
// After every step of a node the invariants are checked that concern a node; those that
// concern all of them are checked when they may have changed. In the end all is healed, and
// the nodes have to come to one cluster again that hosts all it should.
//
//	make sim               some seeds
//	make sim SEEDS=2000    more of them
//	make sim SEED=123      one of them, with all that happens
//
// # What may happen
//
// Frames are lost, late, doubled and overtaken; a node loses its link to the broker in one direction
// or both, whether it notices or not; single nodes don't hear each other; the broker
// is split in two or goes away; nodes are paused, killed and started again; their clocks run
// differently, and on the wall they jump; leases are answered late or never, and a request
// lands when nobody waits for it any more. Members leave, join, and are downed by operators.
//
// # Replicated data
//
// Each node runs a replicator as well (package internal/node/replica), with a disk that is slow or fails,
// and survives the node. Clients change and read counters, sets, maps and registers at any node and level.
// A ledger says who has asked for what and what was answered, and the simulator looks into all nodes: as many as an answer
// says have what was written, on disk if it is durable; reads see what was acknowledged before wherever the
// replicas that were written and those that are read must meet; a register that one process writes is linearizable where
// reads are repaired. In the end all hold the same, and that is what was asked for.
//
// # Sharded entities
//
// Each node hosts shards of an entity type as well (package internal/shardcore); some nodes have a proxy. The coordinator is a singleton like
// others, and keeps its state in replicated data (package internal/shardcore/register), or in a journal that fails, is slow, and stores late what
// it has not answered. Clients send at least 10,000 numbered commands to entities, which store them in the journal, fenced, and answer. Shards are
// rebalanced for no reason, nodes are drained, which may be taken back, or started anew one after the other, one of them with other settings than
// the others, and now and then there are two coordinators. Which entities run is remembered in the journal, in replicated data, or not at all.
// After each step: an entity lives once and a shard has one owner, coordinators say what is stored, regions heed no lower term, who has other
// settings is refused, and the commands of a region to an entity arrive in order, none twice. In the end each command was delivered, refused, or is
// lost with a node that has ended or a link that has reported a gap; what was acknowledged is stored once, all asks are answered, and what is
// remembered runs. In one of eight seeds nothing happens but planned moves, some of them while what others have to say to a node that leaves takes
// long; and then no command is lost or refused, who leaves is rid of its shards in time, and what was remembered is found again. Only who leaves,
// and finds no coordinator, since there is none, refuses what it does not know a home for, after as long as package sharding waits; whoever waits
// for the answer is told.
//
// # What may not
//
// Some things the protocol does not promise, and so they don't happen here: the network is not cut along another line
// while members decide about the first, for a node that changes sides then may be counted on both; the first seed is
// not started while it can't reach another seed that is a member, for then it founds a cluster, as it should; nobody
// downs a living member that can't hear of it; a node with other settings does not get the coordinator, which would
// refuse all others; and where a lease says who survives, no node is paused and the broker does not go away while the
// network is cut: the winner does not keep the lease for ever.
package sim
