// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// Effects are what a region wants done, in the order of the fields.
type Effects struct {
	// Refused are messages that reach nobody. Their senders are told.
	Refused []Refusal
	// Actions are for shards on this node, in this order.
	Actions []Action
	// Frames are for other regions, in this order.
	Frames []OutgoingFrame
	// Messages: messages to the coordinator, or to nodes that may have it, this one included.
	Messages []OutgoingMessage
	// Stopped says that the region is done: nothing of it runs. It still has to answer coordinators, which may not have heard of it.
	Stopped bool
}

// ActionKind tells the actions apart.
type ActionKind uint8

const (
	// Start starts a shard.
	Start ActionKind = 1 + iota
	// Pass gives a message to a shard.
	Pass
	// HandOff asks a shard to stop, behind all that was passed to it. ShardDone follows.
	HandOff
	// Abort ends a shard by force. ShardDone follows.
	Abort
)

func (k ActionKind) String() string {
	switch k {
	case Start:
		return "start"
	case Pass:
		return "pass"
	case HandOff:
		return "hand off"
	case Abort:
		return "abort"
	}
	return fmt.Sprintf("action(%d)", uint8(k))
}

// Action is something to be done with a shard.
type Action struct {
	Kind       ActionKind
	Shard      Shard
	Generation uint64 // from 1, rising in the region
	Token      uint64 // of Pass
}

// FrameKind tells the frames apart.
type FrameKind uint8

const (
	// Forward is a message.
	Forward FrameKind = 1 + iota
	// NotHome says that the sender of the frame doesn't host a shard for which it got a message.
	NotHome
	// Flush asks to be told when all that came before, for some shards, stands in them. It is repeated.
	Flush
	// Flushed answers Flush.
	Flushed
)

func (k FrameKind) String() string {
	switch k {
	case Forward:
		return "forward"
	case NotHome:
		return "not home"
	case Flush:
		return "flush"
	case Flushed:
		return "flushed"
	}
	return fmt.Sprintf("frame(%d)", uint8(k))
}

// Frame is what regions say to each other. It is immutable.
type Frame struct {
	Kind  FrameKind
	Shard Shard  // of Forward and NotHome
	Token uint64 // of Forward: each side has its own
	Hop   int    // of Forward: how many regions that were not the home it has met, 0 or 1; of Flush: of the messages that it asks for
	// Instance is that of the region that asks, of Flush and Flushed.
	Instance uint64
	ID       uint64  // of Flush and Flushed
	Shards   []Shard // of Flush; of Flushed those for which something is held where they are not
}

// OutgoingFrame is a frame to be sent.
type OutgoingFrame struct {
	To    identity.Node
	Frame Frame
}

// OutgoingMessage is a message to a coordinator.
type OutgoingMessage struct {
	To      identity.Node
	Message coordinator.Message
}

// Refusal is a message that reaches nobody.
type Refusal struct {
	Shard  Shard
	Token  uint64
	Reason Reason
}

// Reason says why a message is refused.
type Reason uint8

const (
	// BufferFull says that too many messages wait.
	BufferFull Reason = 1 + iota
	// NoHome says that it met two regions that are not the home.
	NoHome
	// HandedOff says that it waited for a shard that moved before it was there.
	HandedOff
	// RegionStopped says that the region has stopped.
	RegionStopped
	// Abandoned says that nobody waits for it any more.
	Abandoned
)

func (r Reason) String() string {
	switch r {
	case BufferFull:
		return "buffer full"
	case NoHome:
		return "not home"
	case HandedOff:
		return "handed off"
	case RegionStopped:
		return "region stopped"
	case Abandoned:
		return "given up"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Shard is the number of a shard.
type Shard = coordinator.Shard

// Input is what a region is told.
type Input interface{ input() }

// Members says who is in the cluster, sorted by node. It is the first input, and comes again at each change. It is
// immutable.
type Members struct{ Members []membership.Member }

// CoordinatorMessage is a message of a coordinator.
type CoordinatorMessage struct {
	From    identity.Node
	Message coordinator.Message
}

// Send is a message of a sender on this node.
type Send struct {
	Shard Shard
	Token uint64
}

// FrameReceived is a frame of another region. The frames of a region come in their order.
type FrameReceived struct {
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
	// KeepRouting says that the region does not stop: it hosts nothing more, and goes on sending what this node has to send. A later Leave
	// without it lets it stop.
	KeepRouting bool
}

// Undrain takes back a Leave that stays: the region hosts shards again, when the coordinator gives it some. Those that have not moved yet stay.
type Undrain struct{}

// Stop ends the region at once, with all its shards.
type Stop struct{}

func (Members) input()            {}
func (CoordinatorMessage) input() {}
func (Send) input()               {}
func (FrameReceived) input()      {}
func (ShardDone) input()          {}
func (Drop) input()               {}
func (Leave) input()              {}
func (Undrain) input()            {}
func (Stop) input()               {}
