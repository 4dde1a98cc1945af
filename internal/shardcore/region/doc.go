// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package region brings messages to the shards of an entity type, wherever they are, and hosts those that the coordinator
// gives to this node. It is values and pure functions.
//
// A Machine is the region, or the proxy, of one node. It knows messages by tokens; whoever drives it has what they stand for.
// With the coordinator it speaks the protocol of package coordinator, with other regions in frames, which need a
// link that keeps their order:
//
//	local sender --> region --Forward--> region of the home --> shard
//	                    |                    |
//	                    | <----NotHome------ | it doesn't host the shard: the home is asked for again
//	                    | -----Flush-------> |
//	                    | <----Flushed------ | all that came before stands in the shard
//
// What is for a shard whose home is not known waits in a buffer, in its order. A region that was told to forget a home, or that
// learns of another one, flushes the path to the one before until it is sure that all it sent there has arrived: only
// then it acknowledges, and only then it sends to another home. So no message overtakes another one of the same sender,
// and none is lost, as long as no link or node is.
//
// The home of a shard goes on taking what others forward until HandOff comes. A message that comes later is
// passed on once, and refused if it meets another region that is not the home.
//
// What others sent waits and travels apart from what senders on this node did, so regions that took each other for the home don't
// wait for each other for ever. A region that leaves stops when nothing is under way from it any more. It does not wait for what nobody waits
// for, nor for homes when no coordinator answers.
package region
