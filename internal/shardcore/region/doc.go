// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package region is the pure state machine of a region. A region routes messages to the shards of
// an entity type, and hosts the shards that the coordinator allocates to its node.
//
// A Machine is the region or the proxy of one node. It identifies messages by tokens; the caller of
// the Machine stores the messages themselves. The Machine exchanges messages with the coordinator
// (package coordinator), and frames with other regions over links that keep their order:
//
//	local sender --> region --Forward--> region of the home --> shard
//	                    |                    |
//	                    | <----NotHome------ | the shard is not hosted here: request its home again
//	                    | -----Flush-------> |
//	                    | <----Flushed------ | everything sent before has reached the shard
//
// Messages for a shard without a known home wait in a buffer, in order. When the coordinator
// withdraws a home, or names another one, the region flushes the path to the old home. The region
// acknowledges the change and sends to the new home only after everything that it sent before has
// arrived. Hence no message overtakes an earlier message of the same sender, and no message is lost
// as long as no link and no node fails.
//
// The home of a shard accepts forwarded messages until HandOff. A message that arrives later is
// relayed once. If the second region is not the home either, it refuses the message.
//
// Relayed messages wait and travel separately from messages of local senders. If they shared a
// queue, two regions that each consider the other one the home could wait for each other forever. A
// leaving region stops when none of its messages is in flight. It does not wait for abandoned
// messages. While no coordinator replies, it does not wait for unknown homes either.
package region
