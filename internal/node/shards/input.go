// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// Shard is the number of a shard.
type Shard = coordinator.Shard

// Message is a message for an entity.
type Message struct {
	Entity string
	// Local is the message of a sender on this node. The machine only hands it on.
	Local any
	// Body is the message if it came from another node, as that one has encoded it.
	Body []byte
}

// Input is something that happened to a node.
type Input interface{ input() }

// Members says who is in the cluster. It is the first input, and comes again at each change. A node that was downed, or is no member any more,
// stops all that it hosts.
type Members struct{ coordinator.Members }

// Send is a message of a sender on this node. Exactly one of these follows: an Action or an Outgoing with it, or a refusal.
type Send struct {
	Shard   Shard
	Message Message
}

// Received is a frame of another node, of kind KindCoordinator or KindRegion. The transport has made sure who sent it. Those of kind
// KindRegion come in their order.
type Received struct {
	From identity.Node
	Kind Kind
	// Data is kept, and must not be modified.
	Data []byte
}

// Appoint says that this node has the coordinator from now on.
type Appoint struct{}

// Dismiss says that another node is to have the coordinator. If this node has a region, that gives its shards away before, unless it is
// to be now. Effects.Dismissed follows.
type Dismiss struct{ Now bool }

// Answer is that of the store or the strategy to a question of the coordinator: Loaded, LoadFailed, Saved, SaveFailed, ShardsAdded,
// Placed or Rebalanced. There must be one answer to each.
type Answer struct{ coordinator.Input }

// Rebalance asks the coordinator to ask its strategy at once.
type Rebalance struct{}

// Entities is what the host of entities, or the store of remembered ones, has to say to a run of a shard: Started, Ended, Passivate, Busy,
// Loaded, LoadFailed, Updated or UpdateFailed.
type Entities struct {
	Run
	shard.Input
}

// Drop says that nobody waits any more for messages that Buffered has named, by their tokens. They are refused.
type Drop struct{ Tokens []uint64 }

// Leave gives all shards away, and stops the region then, unless that is to stay: see region.Leave.
type Leave struct{ Stay bool }

// Return takes back a Leave that stays: see region.Return.
type Return struct{}

// Stop ends the region at once, with all its entities, and the coordinator.
type Stop struct{}

func (Members) input()   {}
func (Send) input()      {}
func (Received) input()  {}
func (Appoint) input()   {}
func (Dismiss) input()   {}
func (Answer) input()    {}
func (Rebalance) input() {}
func (Entities) input()  {}
func (Drop) input()      {}
func (Leave) input()     {}
func (Return) input()    {}
func (Stop) input()      {}

// Run is a shard on this node, from its start to its end.
type Run struct {
	Shard      Shard
	Generation uint64 // from 1, rising in the region
}

// Kind is that of a frame, by the numbers of the transport.
type Kind uint16

const (
	// KindCoordinator is what coordinators and regions say to each other. It may be lost, repeated and reordered.
	KindCoordinator Kind = 200
	// KindRegion is what regions say to each other. It must keep its order for each pair of nodes.
	KindRegion Kind = 201
)

// TypeOf returns the name of the entity type that a frame is about, so that it finds its machine. The error matches
// coordinator.ErrMalformed or region.ErrMalformed.
func TypeOf(kind Kind, data []byte) (string, error) {
	if kind == KindRegion {
		return region.PacketType(data)
	}
	return coordinator.MessageType(data)
}
