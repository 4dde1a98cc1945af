// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// Effects are the results of a step. The shell carries them out in the order of the fields.
type Effects struct {
	// Log are log lines.
	Log []Line
	// Quarantine are nodes with which no more messages may be exchanged on any lane, except the
	// messages in Send.
	Quarantine []identity.Node
	// Send are messages for the control lane, in order. Each is sent at most once.
	Send []Send
	// Events are events to publish in order. A subscriber receives all or none of them.
	Events []Event
	// Life are changes of the state of this node, in order. They are reported after all other
	// effects.
	Life []Life
}

// Send is a message to a node, or to a name if the UID is 0.
type Send struct {
	To   identity.Node
	Kind Kind
	// Data is the encoded message. It is shared and must not be modified.
	Data []byte
}

// Level is the level of a log line.
type Level uint8

// The levels of a log.
const (
	Debug Level = 1 + iota
	Info
	Warn
	Error
)

// Line is a log line. The shell adds the key "node" with this node. A line about another node has
// that node under the key "member", or under the key for its role.
type Line struct {
	Level   Level
	Message string
	Attrs   []Attr
}

// Attr is an attribute of a log line.
type Attr struct {
	Key   string
	Value any
}

// Event is a change of the cluster as this node sees it.
type Event struct {
	Kind EventKind
	// Member is nil in events that are not about a member.
	Member   *identity.Member
	Previous identity.Status
	// Node is the new leader.
	Node identity.Node
	Role string
}

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events, in the order in which the events of one change are published.
// cluster.EventKind documents them.
const (
	TombstonesChanged EventKind = 1 + iota
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
	MemberUnreachable
	MemberReachable
	LeaderChanged
	RoleLeaderChanged
	SeenChanged
	ReachabilityChanged
)

func (k EventKind) String() string {
	return enum.Name(k, "event",
		"", "tombstones-changed", "shutting-down", "removed", "joined", "weakly-up", "up",
		"preparing-for-shutdown", "ready-for-shutdown", "left", "exited", "downed", "unreachable",
		"reachable", "leader", "role-leader", "seen-changed", "reachability-changed")
}

// Life is a change of the state of this node.
type Life struct {
	Kind LifeKind
	// Reason is the reason of Stopped.
	Reason Reason
	// Detail has the owner of the name, or the settings that differ.
	Detail string
}

// LifeKind is the kind of a Life.
type LifeKind uint8

// The states of a node.
const (
	// Joined: the node is a member.
	Joined LifeKind = 1 + iota
	// BecameUp: the node is Up. It is reported once.
	BecameUp
	// Exits: the node has to hand over its singletons and shards, then send ExitingDone.
	Exits
	// Downed: other members have downed the node. It must stop hosting at once; Stopped follows.
	Downed
	// Disconnected: the node does not receive its own heartbeats. It suspects no other node.
	Disconnected
	// Suspended: the node must stop hosting at once, because other nodes may start its singletons
	// and shards.
	Suspended
	// Connected: the node receives its own heartbeats.
	Connected
	// Resumed: the node may host again.
	Resumed
	// Stopped: the membership has ended permanently.
	Stopped
)

func (k LifeKind) String() string {
	return enum.Name(k, "life",
		"", "joined", "became-up", "exits", "downed", "disconnected", "suspended", "connected", "resumed",
		"stopped")
}

// Reason is the reason why the membership ended.
type Reason uint8

// The reasons for the end of a membership.
const (
	// Asked: by Shutdown.
	Asked Reason = 1 + iota
	// Left: the node has left the cluster.
	Left
	// WasDowned: other members have downed the node.
	WasDowned
	// NameTaken: another incarnation with the name of this node is alive.
	NameTaken
	// Incompatible: the settings of this node differ from those of the cluster.
	Incompatible
	// Unsuccessful: no cluster was found in time.
	Unsuccessful
)

func (r Reason) String() string {
	return enum.Name(r, "reason",
		"", "asked", "left", "downed", "name in use", "incompatible configuration",
		"cluster join unsuccessful")
}

// Input is an input of the machine.
type Input interface{ input() }

// Received is a received message. The transport has authenticated From.Name as its sender.
type Received struct {
	From identity.Node
	// To is the destination of the message: this incarnation, or its name with UID 0.
	To identity.Node
	// Arrived is the time of arrival on the clock of the machine. 0 means now.
	Arrived time.Duration
	// Data is the encoded message. The machine keeps it; it must not be modified.
	Data []byte
}

// JoinSeeds starts joining through seeds. The order of the seeds is the same on all nodes. If the
// first seed finds no cluster, it founds one.
type JoinSeeds struct{ Seeds []string }

// JoinNode starts joining through one node, which may be the node itself.
type JoinNode struct{ Name string }

// Leave lets a member leave. A UID of 0 matches any node with the name.
type Leave struct{ Node identity.Node }

// DownNode declares a member dead. A UID of 0 matches any node with the name.
type DownNode struct{ Node identity.Node }

// PrepareForShutdown announces that the whole cluster is about to stop.
type PrepareForShutdown struct{}

// ExitingDone reports that the hand-over before the removal of this node is done.
type ExitingDone struct{}

// Quarantine reports that messages to a node can no longer be delivered.
type Quarantine struct{ Node identity.Node }

// LinkLost reports that the connection to the broker is lost.
type LinkLost struct{}

// LinkRestored reports that the connection to the broker is restored.
type LinkRestored struct{}

// SetVersion sets the pending version.
type SetVersion struct{ Version identity.Version }

// Shutdown ends the membership of this node without notifying other members.
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
