// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// Input is an input of a manager.
type Input interface{ input() }

// Members are all members of the cluster, sorted by node. The slice is immutable. A slice with the
// same start and length is taken as unchanged.
type Members []identity.Member

// Received is a message from another manager.
type Received struct {
	From    identity.Node
	Message Message
}

// InstanceEnded reports that an instance has ended, whether or not it was asked to stop.
type InstanceEnded struct{ Instance uint64 }

// LeaseAnswer answers AskLease. There must be exactly one for each. After an error the lease is not
// held.
type LeaseAnswer struct{ Held bool }

// LeaseReleased answers ReleaseLease, even if the release failed.
type LeaseReleased struct{}

// LeaseLost reports the loss of the held lease.
type LeaseLost struct{}

// SelfExiting reports that the shutdown of the node has reached the phase in which it hands over
// its singletons.
type SelfExiting struct{}

// Suspend reports that other nodes may take over, because the node was disconnected for too long:
// the instance is stopped and none is started.
type Suspend struct{}

// Resume ends Suspend. The node must still be a member.
type Resume struct{}

// Link reports whether the node receives its own heartbeats through the network. While it does not,
// no instance is started, because the node may have been downed. The initial state is connected.
type Link struct{ Up bool }

func (Members) input()       {}
func (Received) input()      {}
func (InstanceEnded) input() {}
func (LeaseAnswer) input()   {}
func (LeaseReleased) input() {}
func (LeaseLost) input()     {}
func (SelfExiting) input()   {}
func (Suspend) input()       {}
func (Resume) input()        {}
func (Link) input()          {}

// Effects are the effects of a manager, in the order of the fields.
type Effects struct {
	// Notes are for the log and the counters.
	Notes []Note
	// Stop asks this instance to end. InstanceEnded reports its end. 0 is none.
	Stop uint64
	// ReleaseLease releases the lease. LeaseReleased is the answer. Operations on the lease run one
	// after another.
	ReleaseLease bool
	// AskLease acquires the lease in the name of this node. LeaseAnswer is the answer. LeaseLost
	// reports its loss, not before the answer.
	AskLease bool
	// Start starts this instance. 0 is none.
	Start uint64
	// Send are messages to the managers of other nodes.
	Send []Outgoing
	// ExitDone reports that this singleton does not prevent the node from exiting any more.
	ExitDone bool
	// Ended reports that the manager has ended.
	Ended bool
}

// Outgoing is a message to send.
type Outgoing struct {
	To      identity.Node
	Message Message
}

// NoteKind is the kind of a note.
type NoteKind uint8

const (
	// Became means that the manager has changed its state.
	Became NoteKind = 1 + iota
	// Ignored means that a message was ignored, because its sender is not part of the hand-over or
	// because it was late.
	Ignored
	// Stuck means that the manager restarts, because it received no reply.
	Stuck
)

func (k NoteKind) String() string {
	return enum.Name(k, "note", "", "became", "ignored", "stuck")
}

// Note describes an action of a manager.
type Note struct {
	Kind NoteKind
	// State and From are the new and the old state, in Became.
	State, From State
	// Peer and Message are the ignored message, or the peer that did not reply.
	Peer    identity.Node
	Message Kind
}

// State is the state of a manager.
type State uint8

// The states. A manager begins in Start and ends in End.
const (
	Start State = 1 + iota
	Younger
	BecomingOldest
	AcquiringLease
	Oldest
	WasOldest
	HandingOver
	Stopping
	End
)

func (s State) String() string {
	return enum.Name(s, "state",
		"", "start", "younger", "becoming oldest", "acquiring lease", "oldest", "was oldest", "handing over",
		"stopping", "end")
}
