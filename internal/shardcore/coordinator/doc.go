// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package coordinator decides which region of an entity type hosts each shard of the cluster. It
// has no clock, goroutine or I/O.
//
// A Machine is the coordinator. Each entity type has one at a time, on the oldest node. Its inputs
// are the messages of regions and the members of the cluster; its outputs are effects, which the
// caller performs in order:
//
//	         stored: its term      terminated regions are known
//	Loading --> Claiming --> Settling ------------------------------> Active --> Ended
//
// Its durable data is a State, which is computed from Events. One Change is stored at a time.
// Requests that arrive during a save are decided together, in their order, and stored as the next
// change. A decision is not sent to any region before it is stored. A change whose save fails or
// times out may still be stored. The coordinator then loads the state, compares it with the change,
// and stores the same change again until the result is known.
//
// Before the strategy allocates shards, the coordinator probes all regions. A region that does not
// respond in time counts as unreachable.
//
// Terms fence a coordinator. Each coordinator first stores a term that is higher than all previous
// terms, and all its messages carry this term. A region that has seen a higher term replies Fenced,
// and the store rejects a change that is not based on its content. In both cases the coordinator
// ends.
//
// A round moves shards:
//
//	coordinator          regions and proxies           home
//	    | --BeginHandOff--> forget the home,             |
//	    |                   flush sent messages ------>  |
//	    | <-BeginHandOffAck-                             |
//	    | -------------------HandOff-------------------> | stops all entities
//	    | <------------------Stopped-------------------- |
//	  stores the deallocation, gets a new home from the strategy, stores it
//	    | --Host--> new home       --Homes--> all requesters
//
// Each message of this protocol is repeated until it is answered, and the answer carries the round
// of the message. For each shard, a region accepts only messages with the highest term and round,
// so late and repeated messages have no effect.
//
// Fold.Replay reads stored histories that two coordinators wrote at once, that were imported, or
// that were written before terms existed. It derives a consistent state and reports its repairs.
//
// Messages, events and states have their own encodings, which never change. A state takes at most 3
// bytes for a shard. A region takes 12 bytes and the part of its name that differs from the
// previous name.
package coordinator
