// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// Effects are the results of a step. The driver applies them in the order of the fields.
type Effects struct {
	// Notes of the coordinator are for the log.
	Notes []coordinator.Note
	// Malformed are frames that were ignored.
	Malformed []Malformed
	// Refused are messages that are not delivered. Report each to its sender.
	Refused []Refusal
	// Remember are calls of the store of remembered entities, Index those of the store of the index.
	Remember []RememberCall
	Index    []IndexCall
	// Leases are calls for the leases of shards.
	Leases []LeaseCall
	// Actions apply to entities on this node, in this order.
	Actions []Action
	// Indexed are entities that waited for the index and are in it.
	Indexed []IndexedEntity
	// Ended are the shards that have completely ended on this node. Replies to their calls have no
	// effect.
	Ended []ShardRun
	// Load, AddShards and Save are calls of the coordinator's store, see coordinator.Effects. 0 and
	// nil mean none.
	Load      uint64
	AddShards *coordinator.AddShards
	Save      *coordinator.Save
	// CheckTerm, unless 0, requests the highest term that is claimed in the coordinator's store.
	// Reply with TermChecked, unless the call fails.
	CheckTerm uint64
	// Ask and Rebalance are calls of the strategy.
	Ask       *coordinator.AskStrategy
	Rebalance *coordinator.AskRebalance
	// Send are frames for other nodes, in this order, sent at most once. The driver sends them after it has performed the actions, because a frame may report that a message is in the mailbox of its entity.
	Send []Outgoing
	// CoordinatorStopped reports that this node no longer runs a coordinator: it was stopped by
	// StopCoordinator, or with the region.
	CoordinatorStopped bool
	// Restarted reports that the node is no longer suspended and that the next instance of the
	// region runs.
	Restarted bool
	// Stopped reports that the region has ended and does not start again. Each later step reports
	// it again. The machine still replies to coordinators as long as the node is a member.
	Stopped bool
}

// Malformed is a frame that cannot be decoded.
type Malformed struct {
	From identity.Node
	Err  error
}

// Refusal is a message that is not delivered.
type Refusal struct {
	Shard   Shard
	Message Message
	Reason  Reason
}

// Action is a request to an incarnation of an entity.
type Action struct {
	ShardRun
	shard.Action

	Message Message // message of Pass
}

// RememberCall is a call of the store of remembered entities for a run of a shard. The call loads the entities, or stores Update.
type RememberCall struct {
	ShardRun

	Update *shard.Update // nil to load
}

// LeaseCall acquires or releases the lease of a run of a shard. The calls of a shard are carried out
// one after the other. The reply is a ShardInput.
type LeaseCall struct {
	ShardRun

	Release bool
}

// IndexCall is a call of the store of the index for a run of a shard.
type IndexCall struct {
	ShardRun
	shard.IndexCall
}

// IndexedEntity is an entity in the index.
type IndexedEntity struct {
	ShardRun

	Entity string
}

// Outgoing is a frame for a node.
type Outgoing struct {
	To   identity.Node
	Kind Kind
	// Data is the frame, nil for a message of a local sender: see Encoded.
	Data []byte
	// Message is the message in the frame, if any.
	Message Message
	packet  region.Packet
}

// Encoded returns the frame. If Message.Local is set, body is its encoding.
func (o Outgoing) Encoded(body []byte) []byte {
	if o.Data != nil {
		return o.Data
	}
	o.packet.Body = body
	return region.AppendPacket(nil, o.packet)
}

// Reason is why a message is refused: see package shard.
type Reason = shard.Reason

// The values of Reason.
const (
	BufferFull  = shard.BufferFull
	NotHome     = shard.NotHome
	HandedOff   = shard.HandedOff
	Stopped     = shard.Stopped
	ShardFailed = shard.Failed
	NoShard     = shard.NoShard
	Abandoned   = shard.Abandoned
)

// Shard is the number of a shard.
type Shard = coordinator.Shard

// Message is a message for an entity.
type Message struct {
	Entity string
	// Local is the message of a local sender. The machine does not use it.
	Local any
	// Body is the encoded message of another node.
	Body []byte
	// Decoded is Forwarded.Decoded. The machine does not use it.
	Decoded any
}

// Input is an event for the machine.
type Input interface{ input() }

// Members is the membership. It is the first input, and repeated after each change. A node that is
// down or no longer a member ends everything that it hosts.
type Members struct {
	coordinator.Members

	// Suspended is set while the node waits for a decision whether it may continue. The machine
	// stops everything that it hosts and ignores the membership. When Suspended is no longer set,
	// the next instance of the region starts.
	Suspended bool
}

// Send is a message of a local sender. Exactly one result follows: an Action, an Outgoing, or a
// refusal.
type Send struct {
	Shard   Shard
	Message Message
}

// Received is a frame of another node, of kind KindCoordinator or KindRegion. The transport has
// authenticated the sender. Frames of kind KindRegion arrive in order.
type Received struct {
	From identity.Node
	Kind Kind
	// Data is retained and must not be modified.
	Data []byte
}

// Forwarded is a frame of another node with a message, which the driver has decoded.
type Forwarded struct {
	From   identity.Node
	Packet region.Packet
	// Decoded is the message that the driver has decoded from Packet.Body, or nil.
	Decoded any
}

// StartCoordinator requests this node to run the coordinator until StopCoordinator. A region that
// stops by force stops the coordinator, too; after a suspension both are started again.
type StartCoordinator struct{}

// StopCoordinator requests the coordinator to stop, because another node will run it. Unless Now is
// set, a leaving region of this node hands off its shards first. Effects.CoordinatorStopped
// follows.
type StopCoordinator struct{ Now bool }

// CoordinatorReply is the reply of the store or the strategy to a request of the coordinator:
// Loaded, LoadFailed, Saved, SaveFailed, ShardsAdded, HomesChosen or Rebalanced. Each request gets
// one reply.
type CoordinatorReply struct{ coordinator.Input }

// TermChecked is the reply to Effects.CheckTerm. Term is CheckTerm.
type TermChecked region.TermChecked

// SetPin pins a shard or removes its pin, see coordinator.SetPin. It has no effect without a
// coordinator on this node.
type SetPin struct{ coordinator.Pin }

// Rebalance requests the coordinator to call its strategy at once.
type Rebalance struct{}

// ShardInput is an input for a run of a shard from the host of entities, the store of remembered entities or the store of leases: Started, Ended,
// Passivate, Busy, Loaded, LoadFailed, Updated, UpdateFailed, LeaseHeld, LeaseDenied, LeaseLost or
// LeaseReleased. Those of the index are PendingWork, WorkSettled, IndexLoaded,
// IndexUpdated and IndexFailed.
type ShardInput struct {
	ShardRun
	shard.Input
}

// Drop reports messages, by the tokens of Buffered, whose callers no longer wait. They are refused.
type Drop struct{ Tokens []uint64 }

// Leave hands off all shards and then stops the region, unless KeepRouting is set: see
// region.Leave.
type Leave struct{ KeepRouting bool }

// Undrain cancels a Leave with KeepRouting: see region.Undrain.
type Undrain struct{}

// ReportLoad reports the load of the node to the coordinator. The machine adds the messages that
// wait in it and the numbers of entities, and reports only the busiest shards.
type ReportLoad struct{ Load coordinator.Load }

// Stop stops the region, all entities and the coordinator by force.
type Stop struct{}

func (Members) input()          {}
func (Send) input()             {}
func (Received) input()         {}
func (Forwarded) input()        {}
func (StartCoordinator) input() {}
func (StopCoordinator) input()  {}
func (CoordinatorReply) input() {}
func (TermChecked) input()      {}
func (SetPin) input()           {}
func (Rebalance) input()        {}
func (ShardInput) input()       {}
func (Drop) input()             {}
func (Leave) input()            {}
func (Undrain) input()          {}
func (ReportLoad) input()       {}
func (Stop) input()             {}

// ShardRun is a shard on this node, from its start to its end.
type ShardRun struct {
	Shard      Shard
	Generation uint64 // starts at 1 and increases within the region
}

// Kind is the transport kind of a frame.
type Kind uint16

const (
	// KindCoordinator is a message between coordinators and regions. It may be lost, repeated and
	// reordered.
	KindCoordinator Kind = 200
	// KindRegion is a frame between regions. It must keep its order for each pair of nodes.
	KindRegion Kind = 201
)
