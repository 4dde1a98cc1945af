// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package region is the pure state machine of a region: it routes messages to the shards of an
// entity type, and hosts the shards that the coordinator allocates to its node.
//
// A Machine is the region or the proxy of one node. It identifies messages by tokens; its driver
// holds the messages. It exchanges messages with the coordinator (package coordinator), and frames
// with other regions, over links that keep their order:
//
//	local sender --> region --Forward--> region of the home --> shard
//	                    |                    |
//	                    | <----NotHome------ | the shard is not hosted here: request its home again
//	                    | -----Flush-------> |
//	                    | <----Flushed------ | everything sent before has reached the shard
//
// Messages for a shard without a known home wait in a buffer, in order. When the coordinator tells
// a region to forget a home, or names another one, the region flushes the path to the old home: it
// acknowledges, and sends to another home, only after everything sent before has arrived. Hence no
// message overtakes an earlier one of the same sender, and none is lost as long as no link and no
// node fails.
//
// The home of a shard accepts forwarded messages until HandOff. A later message is relayed once,
// and refused by the second region that is not the home.
//
// Relayed messages wait and travel apart from messages of local senders, so that two regions that
// take each other for the home do not wait for each other forever. A leaving region stops when none
// of its messages is in flight. It does not wait for abandoned messages, nor for homes while no
// coordinator replies.
package region
