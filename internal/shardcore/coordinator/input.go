// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Input is what a coordinator is told.
type Input interface{ input() }

// Members says who is in the cluster. It is the first input, and comes again at each change. Its
// slices are immutable.
type Members struct {
	// Members are all members, sorted by node.
	Members []membership.Member
	// Unreachable are the members that somebody can't reach, sorted.
	Unreachable []identity.Node
	// Removed are those whose removal may be less than the removal margin ago. Those that the coordinator has
	// seen as members, it knows itself.
	Removed []Removal
}

// Removal says when a member was removed.
type Removal struct {
	Node identity.Node
	At   time.Duration
}

// Received is a message.
type Received struct {
	From    identity.Node
	Message Message
}

// Loaded answers Load. There must be exactly one answer, this or LoadFailed.
type Loaded struct {
	ID    uint64
	State State
	// Rev is the number of the last event that is in the state, by the count of the store.
	Rev uint64
	// Remembered are all shards that are remembered, if they are.
	Remembered []Shard
	// Repairs are for the log, as Fold.Repairs has them.
	Repairs  []Repair
	Repaired int
}

// LoadFailed answers Load.
type LoadFailed struct{ ID uint64 }

// Saved answers Save: it is durable.
type Saved struct{ ID uint64 }

// SaveFailed answers Save. It may have been stored all the same, at once or later.
type SaveFailed struct {
	ID uint64
	// Fenced says that it was refused, since there is a higher term.
	Fenced bool
}

// ShardsAdded answers AddShards.
type ShardsAdded struct {
	ID uint64
	// Failed says that they may not have been added.
	Failed bool
}

// Placed answers AskStrategy with a region for each request, in their order. No node is that there
// is none. There must be exactly one answer: a strategy that fails, or takes too long, has found
// none.
type Placed struct {
	ID    uint64
	Homes []identity.Node
}

// Rebalanced answers AskRebalance with the shards that should move. There must be exactly one
// answer: a strategy that fails moves none.
type Rebalanced struct {
	ID     uint64
	Shards []Shard
}

// RebalanceNow asks the strategy at once.
type RebalanceNow struct{}

// Terminate ends the coordinator: another node takes over. If this node has a region, that gives
// away its shards before, as long as there is a coordinator.
type Terminate struct {
	// Now doesn't wait for that.
	Now bool
}

func (Members) input()      {}
func (Received) input()     {}
func (Loaded) input()       {}
func (LoadFailed) input()   {}
func (Saved) input()        {}
func (SaveFailed) input()   {}
func (ShardsAdded) input()  {}
func (Placed) input()       {}
func (Rebalanced) input()   {}
func (RebalanceNow) input() {}
func (Terminate) input()    {}
