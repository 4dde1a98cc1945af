// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Event is a change of what a node knows of its cluster.
type Event struct {
	Kind EventKind
	// State is all that is known, of Snapshot. It is nil in other events.
	State *State
	// Member is whom it is about, in events about members.
	Member Member
	// Previous is the status before, of MemberRemoved.
	Previous Status
	// Leader is the new one of LeaderChanged and RoleLeaderChanged, the zero node if there is none.
	Leader identity.Node
	// Role is that of RoleLeaderChanged.
	Role string
}

// EventKind says what an event is.
type EventKind uint8

// The events, in the order in which those of one change come.
const (
	// Snapshot is all that is known. It comes first, and again to a reader that was too slow.
	Snapshot EventKind = 1 + iota
	// TombstonesChanged is for those who keep something for each removed node.
	TombstonesChanged
	// ShuttingDown says that this node is no member any more. A MemberRemoved for each member follows.
	ShuttingDown
	MemberRemoved
	MemberJoined
	MemberWeaklyUp
	MemberUp
	MemberPreparing
	MemberReady
	MemberLeft
	MemberExited
	MemberDowned
	// MemberUnreachable and MemberReachable are never about the node itself.
	MemberUnreachable
	MemberReachable
	LeaderChanged
	RoleLeaderChanged
	// SeenChanged and ReachabilityChanged say that Node.State has news about these.
	SeenChanged
	ReachabilityChanged
	// Disconnected says that this node does not hear itself through the network: it judges nobody.
	Disconnected
	// Suspended says that it must stop hosting at once, since others may begin to.
	Suspended
	// Connected says that it hears itself again.
	Connected
	// Resumed says that it may host again.
	Resumed
)

// The kinds of the machine's events stand together, in their order.
const (
	firstOfMachine = TombstonesChanged
	lastOfMachine  = ReachabilityChanged
)

func (k EventKind) String() string {
	switch k {
	case Snapshot:
		return "snapshot"
	case Disconnected:
		return "disconnected"
	case Suspended:
		return "suspended"
	case Connected:
		return "connected"
	case Resumed:
		return "resumed"
	default:
		if k < firstOfMachine || k > lastOfMachine {
			return fmt.Sprintf("event(%d)", uint8(k))
		}
		return membership.EventKind(k - firstOfMachine + EventKind(membership.TombstonesChanged)).String()
	}
}

// String returns the kind and whom it is about, as in "up a:1#9f2c".
func (e Event) String() string {
	switch {
	case e.Kind == LeaderChanged:
		return fmt.Sprintf("leader %v", e.Leader)
	case e.Kind == RoleLeaderChanged:
		return fmt.Sprintf("role-leader %s %v", e.Role, e.Leader)
	case !e.Member.Node.IsZero():
		return fmt.Sprintf("%v %v", e.Kind, e.Member.Node)
	case e.Kind == Snapshot && e.State != nil:
		return fmt.Sprintf("snapshot of %d members", len(e.State.Members))
	}
	return e.Kind.String()
}

// kindOf returns the kind of an event of the machine.
func kindOf(k membership.EventKind) EventKind {
	return EventKind(k) - EventKind(membership.TombstonesChanged) + firstOfMachine
}

// eventOf returns an event of the machine.
func eventOf(e membership.Event) Event {
	out := Event{
		Kind:     kindOf(e.Kind),
		Previous: e.Previous, Leader: e.Node, Role: e.Role,
	}
	if e.Member != nil {
		out.Member = *e.Member
	}
	return out
}

// eventsOf returns what became of the node itself.
func eventsOf(life []membership.Life) (events []Event) {
	for _, l := range life {
		switch l.Kind {
		case membership.Disconnected:
			events = append(events, Event{Kind: Disconnected})
		case membership.Suspended:
			events = append(events, Event{Kind: Suspended})
		case membership.Connected:
			events = append(events, Event{Kind: Connected})
		case membership.Resumed:
			events = append(events, Event{Kind: Resumed})
		case membership.Joined, membership.BecameUp, membership.Exits, membership.Downed, membership.Stopped:
		}
	}
	return events
}
