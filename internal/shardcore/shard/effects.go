// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
)

// Effects are the results of a step. The driver applies them in the order of the fields.
type Effects struct {
	// Refused are messages that are not delivered. Report each to its sender.
	Refused []Refusal
	// Load requests the remembered entities. Reply with Loaded or LoadFailed.
	Load bool
	// Update requests to store which entities run. Reply with Updated or UpdateFailed.
	Update *Update
	// Actions apply to entities, in this order.
	Actions []Action
	// Done is the reason for which the shard ended, 0 if it continues. Nothing of it runs any more.
	Done Reason
}

// Update lists the entities that started and stopped. No entity is in both lists.
type Update struct {
	ID               uint64
	Started, Stopped []string
}

// ActionKind is the kind of an action.
type ActionKind uint8

const (
	// Start starts a new incarnation. It accepts messages at once.
	Start ActionKind = 1 + iota
	// Pass appends a message to the mailbox of the incarnation.
	Pass
	// Stop asks an incarnation to stop after its messages.
	Stop
	// Kill ends an incarnation by force. Its messages fail.
	Kill
)

func (k ActionKind) String() string {
	if texts := [...]string{"none", "start", "pass", "stop", "kill"}; int(k) < len(texts) {
		return texts[k]
	}
	return fmt.Sprintf("action(%d)", uint8(k))
}

// Action is a request to an incarnation of an entity.
type Action struct {
	Kind        ActionKind
	Entity      string
	Incarnation uint64 // from 1, rising in the shard
	Token       uint64 // of Pass
	// Idle is set on Stop if the entity is only idle. If it has something to do, it may stay; reply
	// with Busy then.
	Idle bool
}

// Refusal is a message that is not delivered.
type Refusal struct {
	Entity string
	Token  uint64
	Reason Reason
}

// Reason is why a message is refused by a region or a shard, or why a shard ended. The numbers are
// sent to other nodes and never change.
type Reason uint8

const (
	// BufferFull reports that too many messages wait.
	BufferFull Reason = 1 + iota
	// NotHome reports that the message reached two regions that do not host the shard.
	NotHome
	// HandedOff reports that the shard moves.
	HandedOff
	// Stopped reports that the region has stopped.
	Stopped
	// Failed reports that the store of remembered entities failed, or that the shard was stopped by
	// force.
	Failed
	// NoShard reports that the number of the shard is too high.
	NoShard
	// Abandoned reports that the caller has given up. It gets no reply.
	Abandoned
)

func (r Reason) String() string {
	texts := [...]string{"none", "buffer full", "not home", "handed off", "region stopped", "shard failed", "no such shard", "given up"}
	if int(r) < len(texts) {
		return texts[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Input is an event for the machine.
type Input interface{ input() }

// Loaded replies to Load with the remembered entities. Each Load gets exactly one reply, Loaded or
// LoadFailed.
type Loaded struct{ Entities []string }

// LoadFailed replies to Load.
type LoadFailed struct{}

// Deliver is a message for an entity.
type Deliver struct {
	Entity string
	Token  uint64
}

// Started reports that an entity is ready, which frees its start slot.
type Started struct {
	Entity      string
	Incarnation uint64
}

// Ended reports that nothing of an incarnation runs any more. It follows each Start eventually,
// also a failed one.
type Ended struct {
	Entity      string
	Incarnation uint64
}

// Passivate is the request of an entity to be stopped. It loses no message.
type Passivate struct {
	Entity      string
	Incarnation uint64
}

// Busy reports that an idle incarnation stays because it has something to do.
type Busy struct {
	Entity      string
	Incarnation uint64
}

// Updated reports that an update is durable.
type Updated struct{ ID uint64 }

// UpdateFailed reports that an update failed. It may have been stored nevertheless.
type UpdateFailed struct{ ID uint64 }

// HandOff stops the shard. No message follows it.
type HandOff struct{}

// Abort ends the shard at once because the node has lost it. Waiting messages are refused with
// Failed.
type Abort struct{}

// Recover starts up to Number remembered entities, if Config.RecoverOnRequest is set.
type Recover struct{ Number int }

// Limits changes Config.Entities and Config.Starts when the number of shards of the region changes.
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
