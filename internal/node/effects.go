// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Kind says which machine a message is for. Kinds are those of the transport.
type Kind uint16

// Below KindSingleton a kind is one of package membership, with the same number.
const (
	// KindSingleton is a message between managers and proxies of a singleton.
	KindSingleton Kind = 40
	// KindForwarded is a message that a proxy passes on to an instance. The shell carries
	// it; no machine sees it.
	KindForwarded Kind = 41
)

// Input is something that happened to a node.
type Input interface{ input() }

// Membership is an input of package membership, but for Received and ExitingDone.
type Membership struct{ membership.Input }

// Received is a message of a kind below KindForwarded that came in. The transport has
// made sure that From.Name is who sent it.
type Received struct {
	From identity.Node
	// To is what the message was sent to: this incarnation, or its name, with UID 0.
	To   identity.Node
	Kind Kind
	// Arrived is when, on the same clock as now. 0 is now.
	Arrived time.Duration
	// Data is the encoded message. The machine keeps it; it must not be modified.
	Data []byte
}

// Exit says that all that this node had to do before it gives away its singletons is done. It
// follows Life Exits.
type Exit struct{}

// InstanceEnded says that an instance is gone, whether or not it was asked to stop.
type InstanceEnded struct{ Instance Instance }

// LeaseAnswer answers a LeaseOp that acquires. There must be exactly one for each. An
// error is not held.
type LeaseAnswer struct {
	Lease string
	Held  bool
	// Owner is who has it instead, as a node prints itself. It is "" if that is not known.
	Owner string
}

// LeaseReleased answers a LeaseOp that releases. Done is false if the lease may still be
// held.
type LeaseReleased struct {
	Lease string
	Done  bool
}

// LeaseLost says that a lease, which was held, is no longer.
type LeaseLost struct{ Lease string }

// Forward is a message for the instance of a singleton, wherever it is. There must be a proxy for it.
// The machine knows the message by a number only; the caller keeps it.
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

// Effects are what is to be done after a step, in the order of the fields.
type Effects struct {
	// Log is to be written to the log.
	Log []membership.Line
	// Quarantine are nodes from which and to which nothing must be carried any
	// more, on any lane, but for what Send holds.
	Quarantine []identity.Node
	// Stop: ask these instances to end, and tell with InstanceEnded when each has.
	Stop []Instance
	// Leases are operations to begin, each in the name of this node, and to answer. Those on one lease are
	// carried out one after the other.
	Leases []LeaseOp
	// Start: start these instances.
	Start []Instance
	// Send is to be sent on the control lane, in order, at most once.
	Send []Send
	// Forward is to be sent to instances on other nodes, or to this one's own, in order, at most once.
	Forward []Forwarded
	// Dropped reach nobody: messages that a proxy had no more room for.
	Dropped []Forward
	// Events are to be published in order, to each subscriber all or none.
	Events []membership.Event
	// Life is what became of the node itself, in order, after all else was carried
	// out.
	Life []membership.Life
}

// Instance is one run of a singleton on this node.
type Instance struct {
	Singleton string
	Nr        uint64
}

// LeaseOp is an operation on a lease.
type LeaseOp struct {
	Lease string
	// Release says that the lease is to be released, answered by LeaseReleased. Otherwise it is to
	// be acquired, answered by LeaseAnswer; at once, if Lease.Check says that it is held. That
	// it is lost is told with LeaseLost, not before the answer.
	Release bool
}

// Send is a message to a node, or to a name if the UID is 0.
type Send struct {
	To   identity.Node
	Kind Kind
	// Data is the encoded message. It is shared and must not be modified.
	Data []byte
}

// Forwarded is a message for the instance of a singleton on a node.
type Forwarded struct {
	Forward

	To identity.Node
}
