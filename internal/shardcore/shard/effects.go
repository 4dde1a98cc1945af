// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
)

// Effects are what a shard wants done, in the order of the fields.
type Effects struct {
	// Refused are messages that reach nobody. Their senders are told.
	Refused []Refusal
	// Load: read which entities are remembered, and answer with Loaded or LoadFailed.
	Load bool
	// Update: store which entities run, and answer with Updated or UpdateFailed.
	Update *Update
	// Actions are for entities, in this order.
	Actions []Action
	// Done says that nothing of the shard runs any more, and why. 0 is that it goes on.
	Done Reason
}

// Update says which entities began and ended to be remembered. No entity is in both.
type Update struct {
	ID               uint64
	Started, Stopped []string
}

// ActionKind tells the actions apart.
type ActionKind uint8

const (
	// Start starts a new incarnation. It takes messages from now on.
	Start ActionKind = 1 + iota
	// Pass puts a message behind all others of the incarnation.
	Pass
	// Stop asks an incarnation to stop, behind all its messages.
	Stop
	// Kill ends an incarnation by force. Its messages fail.
	Kill
)

func (k ActionKind) String() string {
	switch k {
	case Start:
		return "start"
	case Pass:
		return "pass"
	case Stop:
		return "stop"
	case Kill:
		return "kill"
	}
	return fmt.Sprintf("action(%d)", uint8(k))
}

// Action is something to be done with an incarnation of an entity.
type Action struct {
	Kind        ActionKind
	Entity      string
	Incarnation uint64 // from 1, rising in the shard
	Token       uint64 // of Pass
	// Idle says of Stop that nobody needs the incarnation. If it has something to do it may go on, and say so by Busy.
	Idle bool
}

// Refusal is a message that reaches nobody.
type Refusal struct {
	Entity string
	Token  uint64
	Reason Reason
}

// Reason says why a message is refused or a shard is done.
type Reason uint8

const (
	// HandedOff says that the shard moves.
	HandedOff Reason = 1 + iota
	// BufferFull says that too many messages wait.
	BufferFull
	// Failed says that the store of remembered entities failed, or that the shard was aborted.
	Failed
)

func (r Reason) String() string {
	switch r {
	case HandedOff:
		return "handed off"
	case BufferFull:
		return "buffer full"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Input is what a shard is told.
type Input interface{ input() }

// Loaded answers Load with the entities that are remembered. There must be exactly one answer, this or
// LoadFailed.
type Loaded struct{ Entities []string }

// LoadFailed answers Load.
type LoadFailed struct{}

// Deliver is a message for an entity.
type Deliver struct {
	Entity string
	Token  uint64
}

// Started says that an entity is ready, and another one may be started in its place.
type Started struct {
	Entity      string
	Incarnation uint64
}

// Ended says that nothing of an incarnation runs any more. Each Start is followed by one, at last: also one that failed.
type Ended struct {
	Entity      string
	Incarnation uint64
}

// Passivate is the wish of an entity to be stopped. It loses no message.
type Passivate struct {
	Entity      string
	Incarnation uint64
}

// Busy says that an incarnation goes on that was to stop since nobody needs it.
type Busy struct {
	Entity      string
	Incarnation uint64
}

// Updated answers Update: it is durable.
type Updated struct{ ID uint64 }

// UpdateFailed answers Update. It may have been stored all the same.
type UpdateFailed struct{ ID uint64 }

// HandOff stops the shard. No message comes after it.
type HandOff struct{}

// Abort ends the shard at once: the node has lost it. What waits is refused with Failed.
type Abort struct{}

// Recover starts up to so many remembered entities, if Config.RecoverOnRequest.
type Recover struct{ Number int }

// Limits changes Config.Entities and Config.Starts, when the region has more or fewer shards.
type Limits struct{ Entities, Starts int }

func (Loaded) input()       {}
func (LoadFailed) input()   {}
func (Deliver) input()      {}
func (Started) input()      {}
func (Ended) input()        {}
func (Passivate) input()    {}
func (Busy) input()         {}
func (Updated) input()      {}
func (UpdateFailed) input() {}
func (HandOff) input()      {}
func (Abort) input()        {}
func (Recover) input()      {}
func (Limits) input()       {}
