// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// Effects are the results of a step. The driver applies them in the order of the fields.
type Effects struct {
	// Refused are messages that are not delivered. Report each to its sender.
	Refused []shard.Refusal
	// Actions apply to shards on this node, in this order.
	Actions []Action
	// Frames go to other regions, in this order.
	Frames []OutgoingFrame
	// Messages go to the coordinator, or to all nodes that may run it. This node may be among them.
	Messages []OutgoingMessage
	// CheckTerm, unless 0, is a term that the store may not have. Load the claimed term, and reply
	// with TermChecked if that succeeds.
	CheckTerm uint64
	// Stopped reports that the region has completely ended. The machine still replies to
	// coordinators that have not received this information.
	Stopped bool
}

// ActionKind is the kind of an action.
type ActionKind uint8

// ShardDone follows HandOff and Abort.
const (
	Start   ActionKind = 1 + iota // starts a shard
	Pass                          // passes a message to a shard
	HandOff                       // stops a shard after all messages passed to it
	Abort                         // stops a shard by force
)

func (k ActionKind) String() string {
	return enum.Name(k, "action", "none", "start", "pass", "hand off", "abort")
}

// Action is a request to a shard.
type Action struct {
	Kind       ActionKind
	Shard      Shard
	Generation uint64 // starts at 1 and increases within the region
	Token      uint64 // message of Pass
}

// FrameKind is the kind of a frame.
type FrameKind uint8

const (
	// Forward contains a message.
	Forward FrameKind = 1 + iota
	// NotHome reports that the sender of the frame received a message for a shard that it does not
	// host.
	NotHome
	// Flush requests a reply when everything sent before, for some shards, has reached them. It is
	// repeated.
	Flush
	// Flushed is the reply to Flush.
	Flushed
)

func (k FrameKind) String() string {
	return enum.Name(k, "frame", "none", "forward", "not home", "flush", "flushed")
}

// Frame is a message between regions. It is immutable.
type Frame struct {
	Kind  FrameKind
	Shard Shard  // shard of Forward and NotHome
	Token uint64 // message of Forward; each region uses its own tokens
	// Hop of a Forward is 1 if a region that is not the home has relayed the message, otherwise 0.
	// Hop of a Flush is the hop of the flushed path.
	Hop int
	// Instance is the instance of the requesting region, of Flush and Flushed.
	Instance uint64
	// ID is the number of a Flush and of its Flushed.
	ID uint64
	// Shards of a Flush are the flushed shards. Shards of a Flushed are the shards whose messages
	// wait on a node that does not host them.
	Shards []Shard
}

// OutgoingFrame is a frame with its receiver.
type OutgoingFrame struct {
	To    identity.Node
	Frame Frame
}

// OutgoingMessage is a message to a coordinator with its receiver.
type OutgoingMessage struct {
	To      identity.Node
	Message coordinator.Message
}

// Shard is the number of a shard.
type Shard = coordinator.Shard

// Input is an event for the machine.
type Input interface{ input() }

// Members is the membership, sorted by node. It is the first input, and repeated after each change.
// It is immutable.
type Members struct{ Members []identity.Member }

// CoordinatorMessage is a message of a coordinator.
type CoordinatorMessage struct {
	From    identity.Node
	Message coordinator.Message
}

// TermChecked replies to CheckTerm. Stored is the highest claimed term in the store.
type TermChecked struct{ Term, Stored uint64 }

// Send is a message of a local sender.
type Send struct {
	Shard Shard
	Token uint64
}

// FrameReceived is a frame of another region. The frames of one region arrive in order.
type FrameReceived struct {
	From  identity.Node
	Frame Frame
}

// ShardDone reports that a shard has completely ended.
type ShardDone struct {
	Shard      Shard
	Generation uint64
}

// Drop reports messages whose callers no longer wait. Messages that are still in a buffer are
// refused. See Machine.Tokens.
type Drop struct{ Tokens []uint64 }

// Leave hands off all shards. The region stops after that.
type Leave struct {
	// KeepRouting lets the region continue to route messages after the hand-offs. A later Leave
	// without it stops the region.
	KeepRouting bool
}

// Undrain cancels a Leave with KeepRouting: the region accepts shards again. Shards that have not
// moved stay.
type Undrain struct{}

// ReportLoad sends the load of the node to the coordinator, if the region is registered. A report
// that is lost is not repeated.
type ReportLoad struct{ Load *coordinator.Load }

// Stop stops the region and its shards by force.
type Stop struct{}

func (Members) input()            {}
func (CoordinatorMessage) input() {}
func (TermChecked) input()        {}
func (Send) input()               {}
func (FrameReceived) input()      {}
func (ShardDone) input()          {}
func (Drop) input()               {}
func (Leave) input()              {}
func (Undrain) input()            {}
func (ReportLoad) input()         {}
func (Stop) input()               {}
