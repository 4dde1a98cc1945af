// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard is the pure state machine of one shard: it starts entities when messages arrive for
// them, and stops them when they are idle or the shard moves.
//
// A Machine identifies messages by tokens; its driver holds the messages.
//
//	            message          start slot          passivation: on request, idle, limit
//	absent ----------> queued ---------------> active ------------------------------> passivating
//	   ^                                         |                                        |
//	   '-----------------------------------------'----------------------------------------'
//	                   ended                       ended: started again if messages wait
//
// An idle entity may have pending work, such as a message that it repeats until it is confirmed.
// Such an entity stays active, and the shard requests it to stop again later.
//
// Messages for an entity that does not run yet wait in its buffer and reach it in order; none
// overtakes an earlier one. All buffers of a shard share one limit.
//
// Remembered entities are stored as started before they get their first message, and as stopped
// after a passivation. One update is stored at a time; it includes everything that has accumulated.
// An entity that ends without a request is started again after a pause, or by the next message. If
// the store fails, or reports another owner, the shard fails and all its entities are killed.
//
// With a lease, messages wait until the node holds the lease. If the lease is lost, all entities are
// killed. The shard is done only after the release of the lease, so that the next home can acquire it
// at once.
//
// With an index, an entity is in it before the entity acknowledges an event that gives it pending
// work. The driver reports such an entity with PendingWork and holds its events until the entity is in
// Indexed; an entity that is in the index already is in Indexed at once. Entities whose work is
// settled are removed later, together with others. All entities of the index are started when the
// shard starts. If the store of the index fails, the entities wait, and the index is loaded again
// before the next update. If the store reports another owner, the shard fails.
//
// For a hand-off, each entity is requested to stop after its messages. Entities that do not stop in
// time are killed, and the messages that still wait are refused with HandedOff. The shard is done
// when none of its entities runs, never before.
package shard
