// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import "fmt"

// Drop is why a message was dropped.
type Drop uint8

// The reasons.
const (
	DropMalformed   Drop = iota // it can't be decoded
	DropOther                   // it is for another incarnation
	DropStranger                // its sender is no member
	DropUnreachable             // its sender is unreachable, as this node finds
	DropQuarantined             // its sender is quarantined
	DropExpired                 // it was too old when it was handled
	DropUnknown                 // its sender does not know this node
	DropEarly                   // this node is no member yet, or no more
	DropUnexpected              // nothing waits for it
	DropRemoved                 // its sender was removed
	// Drops is one more than the last.
	Drops
)

func (d Drop) String() string {
	names := []string{"malformed", "other", "stranger", "unreachable", "quarantined", "expired", "unknown", "early", "unexpected", "removed"}
	if int(d) >= len(names) {
		return fmt.Sprintf("drop(%d)", uint8(d))
	}
	return names[d]
}

// Timeout is something that was waited for in vain.
type Timeout uint8

// The time-outs.
const (
	TimeoutSeeds         Timeout = iota // no seed has let a node in
	TimeoutJoin                         // no Welcome has come
	TimeoutJoining                      // no cluster was found in all
	TimeoutFirstResponse                // a monitored member has never answered
	TimeoutHeartbeat                    // a member became unreachable
	TimeoutName                         // an old incarnation has not answered
	TimeoutEcho                         // the node does not hear itself
	TimeoutSuspend                      // and has not for long
	TimeoutUndecided                    // nobody has decided about who can't be reached
	TimeoutDoubt                        // nobody has vouched for the node, which was away
	TimeoutConvergence                  // Joining members became WeaklyUp
	TimeoutLate                         // the node itself was paused
	// Timeouts is one more than the last.
	Timeouts
)

func (t Timeout) String() string {
	names := []string{"seeds", "join", "joining", "first-response", "heartbeat", "name", "echo", "suspend", "undecided", "doubt", "convergence", "late"}
	if int(t) >= len(names) {
		return fmt.Sprintf("timeout(%d)", uint8(t))
	}
	return names[t]
}

// Counters are what a machine has counted since it was made.
type Counters struct {
	// Sent and Received count messages. The index is a Kind, such as KindHeartbeat.
	Sent, Received [Kinds]uint64
	// Dropped counts messages that were not handled. The index is a Drop, such as DropExpired.
	Dropped [Drops]uint64
	// TimedOut counts what was waited for in vain. The index is a Timeout, such as TimeoutHeartbeat.
	TimedOut [Timeouts]uint64
	// Gossip counts what a received gossip was, compared with what the node knew. The index is an
	// Order, such as Concurrent.
	Gossip [Concurrent + 1]uint64
	// Became counts the statuses that the node has seen members take. The index is a Status.
	Became [ReadyForShutdown + 1]uint64
	// ClockSize is the number of entries of the clock, SeenBy that of members that
	// have seen what the node knows.
	ClockSize, SeenBy int
}
