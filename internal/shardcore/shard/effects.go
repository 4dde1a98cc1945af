// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import "fmt"

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
