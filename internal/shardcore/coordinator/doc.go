// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package coordinator decides which region of an entity type hosts which shard, for the whole
// cluster. It is values and pure functions.
//
// A Machine is the coordinator, one at a time for each entity type, on the oldest node. It is told what the regions say and
// who is a member, and answers with effects, in their order:
//
//	         stored: its term      the regions that are left are known
//	Loading --> Claiming --> Settling ----------------------------------> Active --> Ended
//
// What it knows for good is a State, made of Events. One Change is stored at a time; all that was asked for meanwhile is
// decided together, in its order, and stored as the next one. Nobody hears of a decision before it is stored. A save that
// fails or takes too long may have been stored all the same: the coordinator loads, compares, and asks for the
// same change again until it knows.
//
// Before the strategy says where shards go, all regions are asked whether they are there: who does not answer soon counts as unreachable.
//
// Terms fence it. Before anything else it stores a term that is higher than all before, and whatever it says
// has that term. A region that has seen a higher one answers Fenced, the store refuses what is not based on
// what it holds, and on either this coordinator ends.
//
// A shard is moved in a round:
//
//	coordinator          regions and proxies           home
//	    | --BeginHandOff--> forget the home,             |
//	    |                   flush what was sent ------>  |
//	    | <-BeginHandOffAck-                             |
//	    | -------------------HandOff-------------------> | stops all entities
//	    | <------------------Stopped-------------------- |
//	  stores that it has no home, asks the strategy for another one, stores that
//	    | --Host--> new home       --Homes--> all that asked meanwhile
//
// Every message that matters is repeated until it is answered, and each answer names the round that it is
// for. A region heeds, for each shard, the messages of the highest term and round only, so late and
// repeated messages do no harm.
//
// Stored histories that two coordinators wrote at once, imported or from before there were terms, are read by
// Fold.Replay, which finds a state in them that can be, and says what it repaired.
//
// Messages, events and states have encodings of their own, which never change: a state takes at most 3 bytes for a shard, and for a
// region 12 more than what differs in the name from the region before.
package coordinator
