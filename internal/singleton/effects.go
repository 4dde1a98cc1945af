// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Input is what a manager is told.
type Input interface{ input() }

// Members are all members of the cluster, sorted by node. The slice is immutable, and
// taken for the same as the one before if it begins at the same place and is as long.
type Members []membership.Member

// Received is a message from another manager.
type Received struct {
	From    identity.Node
	Message Message
}

// InstanceEnded says that an instance is gone, whether or not it was asked to stop.
type InstanceEnded struct{ Instance uint64 }

// LeaseAnswer answers AskLease. There must be exactly one for each. An error is not
// held.
type LeaseAnswer struct{ Held bool }

// LeaseReleased answers ReleaseLease, also if that failed.
type LeaseReleased struct{}

// LeaseLost says that the lease, which was held, is no longer.
type LeaseLost struct{}

// SelfExiting says that the node is in that phase of its shutdown in which it gives
// away what it hosts.
type SelfExiting struct{}

// Suspend says that the node has been cut off for so long that others may take
// over: the instance is stopped and none is started.
type Suspend struct{}

// Resume ends Suspend. It must be sure that the node still is a member.
type Resume struct{}

// Link says whether the node hears itself through the network. While it does not, no instance is
// started: this node can't know what became of it. It does at first.
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

// Effects are what a manager wants done, in the order of the fields.
type Effects struct {
	// Notes are for the log and the counters.
	Notes []Note
	// Stop: ask this instance to end, and tell with InstanceEnded when it has. 0 is none.
	Stop uint64
	// ReleaseLease: release the lease and answer with LeaseReleased. Operations on the lease
	// are carried out one after the other.
	ReleaseLease bool
	// AskLease: acquire the lease in the name of this node and answer with LeaseAnswer. That it is
	// lost is told with LeaseLost, not before the answer.
	AskLease bool
	// Start: start this instance. 0 is none.
	Start uint64
	// Send: messages to the managers of other nodes.
	Send []Outgoing
	// ExitDone: as far as this singleton is concerned, the node may exit.
	ExitDone bool
	// Ended: the manager does nothing any more.
	Ended bool
}

// Outgoing is a message to be sent.
type Outgoing struct {
	To      identity.Node
	Message Message
}

// NoteKind tells the notes apart.
type NoteKind uint8

const (
	// Became says that the manager is in another state.
	Became NoteKind = 1 + iota
	// Ignored says that a message was not heeded: it is from a node that has no say in
	// this, or late.
	Ignored
	// Stuck says that the manager starts over, since nobody answered.
	Stuck
)

func (k NoteKind) String() string {
	switch k {
	case Became:
		return "became"
	case Ignored:
		return "ignored"
	case Stuck:
		return "stuck"
	}
	return fmt.Sprintf("note(%d)", uint8(k))
}

// Note tells an operator what a manager did, and why.
type Note struct {
	Kind NoteKind
	// State is the one that it is in, From the one before, of Became.
	State, From State
	// Peer and Message are what was ignored, or who did not answer.
	Peer    identity.Node
	Message Kind
}

// State is where a manager stands.
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
	switch s {
	case Start:
		return "start"
	case Younger:
		return "younger"
	case BecomingOldest:
		return "becoming oldest"
	case AcquiringLease:
		return "acquiring lease"
	case Oldest:
		return "oldest"
	case WasOldest:
		return "was oldest"
	case HandingOver:
		return "handing over"
	case Stopping:
		return "stopping"
	case End:
		return "end"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}
