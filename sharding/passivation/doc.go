// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package passivation decides which entities of a shard are stopped because nobody needs them now.
// It is values and pure functions: no clock, no goroutine, and a fixed amount of work for each message.
//
// A shard keeps an Entities, tells it of each message that it delivers, and stops whom it
// names:
//
//	for _, id := range entities.Touch(now, "42") { passivate(id) }
//	for _, id := range entities.Tick(now) { passivate(id) }
//
// Who is named is forgotten at once. Who ends by itself has to be removed. The order of the names is
// the order in which they were chosen.
//
// By default entities are stopped that got no message for two minutes. With a limit on the number of entities a
// policy chooses who goes when another one comes: the least or most recently used, or the least
// frequently used. A window can be put in front of it, in which newcomers have to prove themselves, and a filter
// behind the window, which lets them in only if they are used more often than whom they would replace:
//
//	        new                  leaves the window         used more often than the victim?
//	entity -----> window (1 %) ----------------------> filter ------------------------> main area
//	                  |  <---- hill climbing moves the border ---->                        | victim
//	                                                      '--> stopped       stopped <-----'
//
// Composite returns the settings that use all of it; it suits most loads: one pass over many entities
// does not push out those that are used all the time.
//
// Only messages through the shard count. Entities that are remembered are never stopped like
// this: use none of it for them.
package passivation
