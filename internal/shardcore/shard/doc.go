// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard keeps the entities of one shard: it starts them when a message comes for them, and stops them when nobody
// needs them or the shard moves. It is values and pure functions.
//
// A Machine is told what happens in the shard, and answers with effects, in their order. It knows messages by tokens; whoever
// drives it has what they stand for.
//
//	             message          a slot is free             asked to, idle, too many
//	not there ----------> queued ---------------> active ------------------------------> passivating
//	    ^                                           |                                        |
//	    '-------------------------------------------'----------------------------------------'
//	                    it ended                      it ended: again from the start if messages came meanwhile
//
// An entity that nobody needs may have something to do, such as a message that it sends until it is confirmed. It goes on then, and is asked
// again later.
//
// What comes for an entity that can't take it yet waits in its buffer and reaches it in order; no message of an
// earlier time overtakes it. All buffers of a shard share one limit.
//
// Remembered entities are stored as started before they get their first message, and as stopped after a passivation. One
// update is stored at a time, with all that has come together meanwhile. An entity that ends by itself is started again after
// a while, or with the next message. A store that fails, or that another owner has written to, fails the
// shard: all that runs is ended.
//
// For a hand-off each entity is asked to stop behind all that has come for it before. What doesn't stop in time is
// ended by force, and what had still been waiting then is refused with HandedOff. The shard is done
// when nothing of it runs, never before.
package shard
