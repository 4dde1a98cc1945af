// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// Effects are what is to be done after a step, in the order of the fields.
type Effects struct {
	// Notes of the coordinator are for the log and the counters.
	Notes []coordinator.Note
	// Malformed are frames that are passed over.
	Malformed []Malformed
	// Refused are messages that reach nobody. Their senders are told.
	Refused []Refusal
	// RememberCall are questions to the store of remembered entities.
	Remember []RememberCall
	// Actions are for entities on this node, in this order.
	Actions []Action
	// Ended are shards of which nothing runs any more on this node. No answer to what they asked is of use.
	Ended []ShardRun
	// Load, AddShards and Save are for the store of the coordinator, see coordinator.Effects. 0 and nil are none.
	Load      uint64
	AddShards *coordinator.AddShards
	Save      *coordinator.Save
	// Ask and Rebalance are for the strategy.
	Ask       *coordinator.AskStrategy
	Rebalance *coordinator.AskRebalance
	// Send are frames for other nodes, in this order, at most once. They leave after the actions are done: a frame may say that a
	// message stands in the mailbox of its entity.
	Send []Outgoing
	// CoordinatorStopped says that this node has no coordinator any more.
	CoordinatorStopped bool
	// Stopped says that nothing of the region runs any more. The machine still has to answer coordinators which don't know
	// yet, for as long as the node is a member.
	Stopped bool
}

// Malformed is a frame that can't be read.
type Malformed struct {
	From identity.Node
	Err  error
}

// Refusal is a message that reaches nobody.
type Refusal struct {
	Shard   Shard
	Message Message
	Reason  Reason
}

// Action is something to be done with an incarnation of an entity of a run of a shard.
type Action struct {
	ShardRun

	Kind        shard.ActionKind
	Entity      string
	Incarnation uint64  // from 1, rising in the run
	Message     Message // of Pass
	Idle        bool    // of Stop: see shard.Action
}

// RememberCall is a question of a run of a shard to the store of remembered entities: which ones are, or to store Update.
type RememberCall struct {
	ShardRun

	Update *shard.Update // nil: to load
}

// Outgoing is a frame to be sent to a node.
type Outgoing struct {
	To   identity.Node
	Kind Kind
	// Data is the frame, but for a message of a sender on this node: see Encoded.
	Data []byte
	// Message is the one that is passed on, if there is one.
	Message Message
	packet  region.Packet
}

// Encoded returns the frame, given the encoding of Message.Local if that is set.
func (o Outgoing) Encoded(body []byte) []byte {
	if o.Data != nil {
		return o.Data
	}
	o.packet.Body = body
	return region.AppendPacket(nil, o.packet)
}

// Reason says why a message is refused.
type Reason uint8

const (
	// BufferFull says that too many messages wait.
	BufferFull Reason = 1 + iota
	// NotHome says that it met two regions that are not the home of the shard.
	NotHome
	// HandedOff says that the shard moved before the message was there.
	HandedOff
	// Stopped says that the region has stopped.
	Stopped
	// ShardFailed says that the shard failed, or was ended by force.
	ShardFailed
	// NoShard says that there is no shard of this number.
	NoShard
	// Abandoned says that nobody waits for it any more. Its sender is not told.
	Abandoned
)

func (r Reason) String() string {
	switch r {
	case BufferFull:
		return "buffer full"
	case NotHome:
		return "not home"
	case HandedOff:
		return "handed off"
	case Stopped:
		return "region stopped"
	case ShardFailed:
		return "shard failed"
	case NoShard:
		return "no such shard"
	case Abandoned:
		return "given up"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

func reasonOfRegion(r region.Reason) Reason {
	switch r {
	case region.BufferFull:
		return BufferFull
	case region.NoHome:
		return NotHome
	case region.HandedOff:
		return HandedOff
	case region.Abandoned:
		return Abandoned
	case region.RegionStopped:
	}
	return Stopped
}

func reasonOfShard(r shard.Reason) Reason {
	switch r {
	case shard.BufferFull:
		return BufferFull
	case shard.HandedOff:
		return HandedOff
	case shard.Failed:
	}
	return ShardFailed
}

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

// StartCoordinator says that this node has the coordinator from now on.
type StartCoordinator struct{}

// StopCoordinator says that another node is to have the coordinator. If this node has a region, that gives its shards away before, unless it is
// to be now. Effects.CoordinatorStopped follows.
type StopCoordinator struct{ Now bool }

// CoordinatorReply is that of the store or the strategy to a question of the coordinator: Loaded, LoadFailed, Saved, SaveFailed, ShardsAdded,
// Placed or Rebalanced. There must be one answer to each.
type CoordinatorReply struct{ coordinator.Input }

// Rebalance asks the coordinator to ask its strategy at once.
type Rebalance struct{}

// ShardInput is what the host of entities, or the store of remembered ones, has to say to a run of a shard: Started, Ended, Passivate, Busy,
// Loaded, LoadFailed, Updated or UpdateFailed.
type ShardInput struct {
	ShardRun
	shard.Input
}

// Drop says that nobody waits any more for messages that Buffered has named, by their tokens. They are refused.
type Drop struct{ Tokens []uint64 }

// Leave gives all shards away, and stops the region then, unless that is to stay: see region.Leave.
type Leave struct{ KeepRouting bool }

// Undrain takes back a Leave that stays: see region.Undrain.
type Undrain struct{}

// Stop ends the region at once, with all its entities, and the coordinator.
type Stop struct{}

func (Members) input()          {}
func (Send) input()             {}
func (Received) input()         {}
func (StartCoordinator) input() {}
func (StopCoordinator) input()  {}
func (CoordinatorReply) input() {}
func (Rebalance) input()        {}
func (ShardInput) input()       {}
func (Drop) input()             {}
func (Leave) input()            {}
func (Undrain) input()          {}
func (Stop) input()             {}

// ShardRun is a shard on this node, from its start to its end.
type ShardRun struct {
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
