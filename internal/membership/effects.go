// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
)

// Effects are what is to be done after a step, in the order of the fields.
type Effects struct {
	// Log is to be written to the log.
	Log []Line
	// Quarantine are nodes from which and to which nothing must be carried any
	// more, on any lane, but for what Send holds.
	Quarantine []identity.Node
	// Send is to be sent on the control lane, in order, at most once.
	Send []Send
	// Events are to be published in order, to each subscriber all or none.
	Events []Event
	// Life is what became of the node itself, in order, after all else was carried
	// out.
	Life []Life
}

// Send is a message to a node, or to a name if the UID is 0.
type Send struct {
	To   identity.Node
	Kind Kind
	// Data is the encoded message. It is shared and must not be modified.
	Data []byte
}

// Level is how important a line is.
type Level uint8

// The levels of a log.
const (
	Debug Level = 1 + iota
	Info
	Warn
	Error
)

// Line is a line of the log. The shell adds the key "node", which is who says it: another node that
// a line is about has the key "member", or that of its part.
type Line struct {
	Level   Level
	Message string
	Attrs   []Attr
}

// Attr is a named value of a line.
type Attr struct {
	Key   string
	Value any
}

// Event is a change of what the node knows of the cluster.
type Event struct {
	Kind EventKind
	// Member is whom it is about, in events about members.
	Member *Member
	// Previous is the status before, of MemberRemoved.
	Previous Status
	// Node is the new leader of LeaderChanged and RoleLeaderChanged, the zero node
	// if there is none.
	Node identity.Node
	// Role is that of RoleLeaderChanged.
	Role string
}

// EventKind says what an event is.
type EventKind uint8

// The events, in the order in which those of one change are published.
const (
	// TombstonesChanged is for those who keep something for each removed node.
	TombstonesChanged EventKind = 1 + iota
	// ShuttingDown is followed by a MemberRemoved for each member.
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
	// SeenChanged and ReachabilityChanged are for those who look at a View.
	SeenChanged
	ReachabilityChanged
)

func (k EventKind) String() string {
	names := []string{
		"", "tombstones-changed", "shutting-down", "removed", "joined", "weakly-up", "up", "preparing-for-shutdown", "ready-for-shutdown",
		"left", "exited", "downed", "unreachable", "reachable", "leader", "role-leader", "seen-changed", "reachability-changed",
	}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("event(%d)", uint8(k))
	}
	return names[k]
}

// Life is something that became of the node itself.
type Life struct {
	Kind LifeKind
	// Reason is why it stopped.
	Reason Reason
	// Detail says more about that: who has the name, or which settings differ.
	Detail string
}

// LifeKind says what became of the node.
type LifeKind uint8

// What becomes of a node.
const (
	// Joined: it is a member.
	Joined LifeKind = 1 + iota
	// BecameUp: it is Up. That happens once.
	BecameUp
	// Exits: it has to hand over what it hosts, and then say ExitingDone.
	Exits
	// Downed: others have given it up. It must stop hosting at once; Stopped follows.
	Downed
	// Disconnected: it doesn't hear its own heartbeats, so it judges nobody.
	Disconnected
	// Suspended: it must stop hosting at once, for others may soon start elsewhere
	// what it hosts.
	Suspended
	// Connected: it hears its own heartbeats.
	Connected
	// Resumed: it may host again.
	Resumed
	// Stopped: it is no member any more and never will be.
	Stopped
)

func (k LifeKind) String() string {
	names := []string{"", "joined", "became-up", "exits", "downed", "disconnected", "suspended", "connected", "resumed", "stopped"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("life(%d)", uint8(k))
	}
	return names[k]
}

// Reason is why a node stopped.
type Reason uint8

// Why a node stopped.
const (
	// Asked: by Shutdown.
	Asked Reason = 1 + iota
	// Left: it has left the cluster.
	Left
	// WasDowned: others have given it up.
	WasDowned
	// NameTaken: another incarnation with its name is alive.
	NameTaken
	// Incompatible: its settings differ from those of the cluster.
	Incompatible
	// Unsuccessful: it found no cluster in time.
	Unsuccessful
)

func (r Reason) String() string {
	names := []string{"", "asked", "left", "downed", "name in use", "incompatible configuration", "cluster join unsuccessful"}
	if int(r) >= len(names) {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return names[r]
}

// Input is something that happened to a node.
type Input interface{ input() }

// Received is a message that came in. The carrier has made sure that From.Name
// is who sent it.
type Received struct {
	From identity.Node
	// To is what the message was sent to: this incarnation, or its name, with UID 0.
	To identity.Node
	// Arrived is when, on the same clock as now. 0 is now.
	Arrived time.Duration
	// Data is the encoded message. The machine keeps it; it must not be modified.
	Data []byte
}

// JoinSeeds asks to join a cluster through its seeds, which stand in the same
// order on all nodes. The first of them, if it finds no other, joins itself.
type JoinSeeds struct{ Seeds []string }

// JoinNode asks to join the cluster of a node. That may be the node itself.
type JoinNode struct{ Name string }

// Leave asks that a member leave. Its UID may be 0 for whoever has the name.
type Leave struct{ Node identity.Node }

// DownNode says that a member is dead. Its UID may be 0 for whoever has the name.
type DownNode struct{ Node identity.Node }

// PrepareForShutdown announces that the whole cluster is going to stop.
type PrepareForShutdown struct{}

// ExitingDone says that all that had to be done before this node goes is done.
type ExitingDone struct{}

// Quarantine says that nothing can be delivered to a node any more.
type Quarantine struct{ Node identity.Node }

// LinkLost says that the connection to the broker is gone.
type LinkLost struct{}

// LinkRestored says that there is a connection to the broker again.
type LinkRestored struct{}

// SetVersion supplies the version that was promised.
type SetVersion struct{ Version Version }

// Shutdown ends the membership of this node here, without telling anybody.
type Shutdown struct{}

func (Received) input()           {}
func (JoinSeeds) input()          {}
func (JoinNode) input()           {}
func (Leave) input()              {}
func (DownNode) input()           {}
func (PrepareForShutdown) input() {}
func (ExitingDone) input()        {}
func (Quarantine) input()         {}
func (LinkLost) input()           {}
func (LinkRestored) input()       {}
func (SetVersion) input()         {}
func (Shutdown) input()           {}
