// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Kinds of messages in addition to those of package membership, which are lower.
const (
	// KindSingleton is a message between managers and proxies of a singleton.
	KindSingleton membership.Kind = 40
	// KindForwarded is a message of a proxy to an instance. The shell sends and receives it; the
	// machines do not.
	KindForwarded membership.Kind = 41
)

// Input is an input of the machine.
type Input interface{ input() }

// Membership is an input of package membership, except Received and ExitingDone.
type Membership struct{ membership.Input }

// Received is a received message of a kind below KindForwarded. The transport has authenticated
// From.Name as its sender.
type Received struct {
	From identity.Node
	// To is the destination of the message: this incarnation, or its name with UID 0.
	To   identity.Node
	Kind membership.Kind
	// Arrived is the time of arrival on the clock of the machine. 0 means now.
	Arrived time.Duration
	// Data is the encoded message. The machine keeps it; it must not be modified.
	Data []byte
}

// Exit reports that the node can now hand over its singletons. It is the reply to the Life event
// Exits.
type Exit struct{}

// InstanceEnded reports that an instance has ended, whether or not it was asked to stop.
type InstanceEnded struct{ Instance Instance }

// LeaseAnswer answers a LeaseOp that acquires a lease: see splitbrain.LeaseAnswer. Owner is in the
// format of identity.Node.String, "" if unknown.
type LeaseAnswer struct {
	Lease string
	Held  bool
	Owner string
}

// LeaseReleased answers a LeaseOp that releases a lease: see splitbrain.LeaseReleased.
type LeaseReleased struct {
	Lease string
	Done  bool
}

// LeaseLost reports the loss of a held lease.
type LeaseLost struct{ Lease string }

// Forward is a message for the instance of a singleton. A proxy for the singleton must exist. The
// machine has only the number of the message; the caller keeps the message.
type Forward struct {
	Singleton string
	Message   uint64
}

func (Membership) input()    {}
func (Received) input()      {}
func (Exit) input()          {}
func (InstanceEnded) input() {}
func (LeaseAnswer) input()   {}
func (LeaseReleased) input() {}
func (LeaseLost) input()     {}
func (Forward) input()       {}

// Effects are the results of a step. The shell carries them out in the order of the fields.
type Effects struct {
	// Log, Quarantine, Events and Life are those of the membership.
	Log        []membership.Line
	Quarantine []identity.Node
	// Stop asks these instances to end. InstanceEnded reports the end of each.
	Stop []Instance
	// Leases are lease operations to start, in the name of this node. Each is answered. Operations
	// on one lease run one after another.
	Leases []LeaseOp
	Start  []Instance
	// Send are messages for the control lane, in order. Each is sent at most once.
	Send []membership.Send
	// Forward are messages to instances on this or other nodes, in order. Each is sent at most
	// once.
	Forward []Forwarded
	// Dropped are messages for which a proxy had no room.
	Dropped []Forward
	Events  []membership.Event
	Life    []membership.Life
}

// Instance is one run of a singleton on this node.
type Instance struct {
	Singleton string
	Nr        uint64
}

// LeaseOp is an operation on a lease.
type LeaseOp struct {
	Lease string
	// If Release is set, the operation releases the lease and LeaseReleased is the answer.
	// Otherwise the operation acquires the lease and LeaseAnswer is the answer. The answer comes at
	// once if the lease is held. LeaseLost reports a later loss, but not before the answer.
	Release bool
}

// Forwarded is a message for an instance on a node.
type Forwarded struct {
	Forward

	To identity.Node
}
