// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// Shard is the number of a shard.
type Shard = coordinator.Shard

// Input is what a region is told.
type Input interface{ input() }

// Members says who is in the cluster, sorted by node. It is the first input, and comes again at each change. It is
// immutable.
type Members struct{ Members []membership.Member }

// Said is a message of a coordinator.
type Said struct {
	From    identity.Node
	Message coordinator.Message
}

// Send is a message of a sender on this node.
type Send struct {
	Shard Shard
	Token uint64
}

// Arrived is a frame of another region. The frames of a region come in their order.
type Arrived struct {
	From  identity.Node
	Frame Frame
}

// ShardDone says that nothing of a shard runs any more.
type ShardDone struct {
	Shard      Shard
	Generation uint64
}

// Drop says that nobody waits any more for the messages of these tokens. Those that are still here are refused: they need not be sent, and a region
// that leaves does not wait for them. See Machine.Tokens.
type Drop struct{ Tokens []uint64 }

// Leave asks to give all shards away, and to stop then.
type Leave struct {
	// Stay says that the region does not stop: it hosts nothing more, and goes on sending what this node has to send. A later Leave
	// without it lets it stop.
	Stay bool
}

// Return takes back a Leave that stays: the region hosts shards again, when the coordinator gives it some. Those that have not moved yet stay.
type Return struct{}

// Stop ends the region at once, with all its shards.
type Stop struct{}

func (Members) input()   {}
func (Said) input()      {}
func (Send) input()      {}
func (Arrived) input()   {}
func (ShardDone) input() {}
func (Drop) input()      {}
func (Leave) input()     {}
func (Return) input()    {}
func (Stop) input()      {}
