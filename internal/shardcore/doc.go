// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package shardcore is the pure state machine of one entity type on one node. It composes the
// region or proxy, its shards, and the coordinator while this node runs it. The shell in package
// sharding and the simulations drive it.
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
//	     refusals   frames    notes     coordinator   load, save,    start, pass,
//	                                    stopped       ask            stop, kill
//
// The host of the entities is outside. The machine requests the host to start an incarnation of an
// entity, to append a message to its mailbox, to stop it after its messages, or to kill it. The
// host reports when an incarnation is ready, has ended, or requests passivation. Every start is
// eventually followed by an end.
//
// Messages are values of the driver. The driver encodes the messages of local senders when they are
// sent to another node. Messages of other nodes are bytes.
package shardcore
