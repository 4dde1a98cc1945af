// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package shardcore composes what one node runs of one entity type into one machine, as values and pure functions: the region, or
// the proxy, its shards, and the coordinator while this node has it. The shell in package sharding and the simulations drive
// it and nothing else.
//
//	     senders    frames   members   singleton   store, strategy   entities
//	        |          |         |          |            |              |
//	+-------v----------v---------v----------v------------v--------------v------+
//	|  Machine          region.Machine <----> coordinator.Machine              |
//	|                     |       ^                                            |
//	|        start, pass, |       | done                                       |
//	|        hand off     v       |                                            |
//	|                   shard.Machine *                                        |
//	+-------+----------+---------+----------+------------+--------------+------+
//	        |          |         |          |            |              |
//	     refusals   frames    notes     dismissed     load, save,    start, pass,
//	                                                  ask            stop, kill
//
// What hosts entities is outside. It is told to start an incarnation of an entity, to put a message behind all others of it, to stop it
// behind them, or to end it by force, and says when it is ready, has ended, or wants to be stopped. It must not lose track: each
// start is followed by an end at last.
//
// Messages are what the caller makes of them: values of a sender on this node, which the caller encodes when they are to be sent to
// another one, and bytes that came from there.
package shardcore
