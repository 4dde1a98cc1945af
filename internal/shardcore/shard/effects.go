// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import "github.com/refold-io/refold/internal/enum"

// Effects are the results of a step. The driver applies them in the order of the fields.
type Effects struct {
	// Refused are messages that are not delivered. Report each to its sender.
	Refused []Refusal
	// Acquire requests the lease of the shard. Reply with LeaseHeld or LeaseDenied. Release requests
	// to release it; reply with LeaseReleased. Carry out the requests of a shard one after the other.
	Acquire, Release bool
	// Load requests the remembered entities. Reply with Loaded or LoadFailed.
	Load bool
	// Update, unless nil, requests to store a change of the remembered entities. Reply with Updated
	// or UpdateFailed.
	Update *Update
	// Index, unless nil, is a call of the store of the index. Reply with IndexLoaded, IndexUpdated or
	// IndexFailed.
	Index *IndexCall
	// Actions apply to entities, in this order.
	Actions []Action
	// Indexed are entities that are in the index and waited for it. They may continue.
	Indexed []string
	// Done is the reason why the shard ended, or 0 if it continues. When it is set, all entities of
	// the shard have ended.
	Done Reason
}

// Update lists the entities that started and stopped. No entity is in both lists.
type Update struct {
	ID               uint64
	Started, Stopped []string
}

// IndexCall is a call of the store of the index: it loads the index, or stores Update. The ID of the
// update is not used.
type IndexCall struct {
	ID     uint64
	Update *Update // nil to load
}

// ActionKind is the kind of an action.
type ActionKind uint8

// The kinds of actions.
const (
	Start ActionKind = 1 + iota // starts a new incarnation, which accepts messages at once
	Pass                        // appends a message to the mailbox of the incarnation
	Stop                        // requests an incarnation to stop after its messages
	Kill                        // ends an incarnation by force; its messages fail
)

func (k ActionKind) String() string {
	return enum.Name(k, "action", "none", "start", "pass", "stop", "kill")
}

// Action is a request to an incarnation of an entity.
type Action struct {
	Kind        ActionKind
	Entity      string
	Incarnation uint64 // starts at 1 and increases within the shard
	Token       uint64 // message of Pass
	// Idle marks a Stop that is requested only because the entity is idle. If the entity has work
	// to do, it may ignore the request; reply with Busy in that case.
	Idle bool
	// Indexed marks a Start of an entity that is in the index.
	Indexed bool
}

// Refusal is a message that is not delivered.
type Refusal struct {
	Token  uint64
	Reason Reason
}

// Reason is the reason why a region or a shard refused a message, or why a shard ended. The numbers
// are sent to other nodes and never change.
type Reason uint8

// The reasons.
const (
	BufferFull Reason = 1 + iota // too many messages wait
	NotHome                      // the message reached two regions that do not host the shard
	HandedOff                    // the shard moves
	Stopped                      // the region has stopped
	Failed                       // the store of remembered entities failed, or the shard was stopped by force
	NoShard                      // the number of the shard is too high
	Abandoned                    // the caller no longer waits; it gets no reply
)

func (r Reason) String() string {
	return enum.Name(r, "reason", "none", "buffer full", "not home", "handed off", "region stopped", "shard failed", "no such shard", "abandoned")
}

// Input is an event for the machine.
type Input interface{ input() }

// LeaseHeld replies to Acquire that the node holds the lease. LeaseLost may follow.
type LeaseHeld struct{}

// LeaseDenied replies to Acquire that another owner holds the lease, or that the outcome is unknown.
type LeaseDenied struct{}

// LeaseLost reports that the node no longer holds the lease.
type LeaseLost struct{}

// LeaseReleased replies to Release, also if the release failed.
type LeaseReleased struct{}

// Loaded replies to Load with the remembered entities. Each Load gets exactly one reply, Loaded or
// LoadFailed.
type Loaded struct{ Entities []string }

// LoadFailed replies to Load that the remembered entities could not be read.
type LoadFailed struct{}

// Deliver is a message for an entity.
type Deliver struct {
	Entity string
	Token  uint64
}

// Run is an incarnation of an entity.
type Run struct {
	Entity      string
	Incarnation uint64
}

// Reports about an incarnation of an entity.
type (
	// Started reports that the entity is ready, which frees its start slot.
	Started Run
	// Ended reports that all code of the incarnation has ended. Each Start is eventually followed
	// by one Ended, even if the start failed.
	Ended Run
	// Passivate reports that the entity has requested to be stopped. No message is lost.
	Passivate Run
	// Busy reports that the incarnation does not stop because it has work to do.
	Busy Run
)

// Updated reports that an update is durable.
type Updated struct{ ID uint64 }

// UpdateFailed reports that an update failed. The update may still have been stored.
type UpdateFailed struct{ ID uint64 }

// Reports about pending work of an entity, see Config.Index.
type (
	// PendingWork reports that the entity has or is about to have pending work. It waits until
	// Effects.Indexed contains it.
	PendingWork struct{ Entity string }
	// WorkSettled reports that the entity has no pending work and that all its events are stored. The
	// next work follows a PendingWork.
	WorkSettled struct{ Entity string }
)

// Replies to Effects.Index. Each call gets exactly one.
type (
	// IndexLoaded has the entities of the index.
	IndexLoaded struct {
		ID       uint64
		Entities []string
	}
	// IndexUpdated reports that the update is durable.
	IndexUpdated struct{ ID uint64 }
	// IndexFailed reports that the call failed. An update may still have been stored. Fenced reports
	// that the shard has another owner.
	IndexFailed struct {
		ID     uint64
		Fenced bool
	}
)

// HandOff stops the shard. The driver delivers no message after it.
type HandOff struct{}

// Abort ends the shard at once because the node no longer owns it. Waiting messages are refused
// with Failed.
type Abort struct{}

// Recover starts up to Number remembered entities, if Config.RecoverOnRequest is set.
type Recover struct{ Number int }

// Limits changes Config.Entities and Config.Starts when the number of shards of the region changes.
type Limits struct{ Entities, Starts int }

func (LeaseHeld) input()     {}
func (LeaseDenied) input()   {}
func (LeaseLost) input()     {}
func (LeaseReleased) input() {}
func (Loaded) input()        {}
func (LoadFailed) input()    {}
func (Deliver) input()       {}
func (Started) input()       {}
func (Ended) input()         {}
func (Passivate) input()     {}
func (Busy) input()          {}
func (Updated) input()       {}
func (UpdateFailed) input()  {}
func (HandOff) input()       {}
func (Abort) input()         {}
func (Recover) input()       {}
func (Limits) input()        {}
func (PendingWork) input()   {}
func (WorkSettled) input()   {}
func (IndexLoaded) input()   {}
func (IndexUpdated) input()  {}
func (IndexFailed) input()   {}
