// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import "fmt"

// Status is where a member stands in its life. Being unreachable is no status:
// it is what others think of a member.
type Status uint8

// The numbers are those of the encoding and never change.
const (
	// Joining: known to some, not yet to all.
	Joining Status = 1 + iota
	// WeaklyUp: joining while the members can't agree. It counts in no quorum and
	// hosts no singleton and no shards.
	WeaklyUp
	// Up: a full member.
	Up
	// Leaving: asked to go.
	Leaving
	// Exiting: all know that it goes; it hands over what it hosts.
	Exiting
	// Down: decided to be dead.
	Down
	// Removed: no member any more. It stands in events, never in a gossip.
	Removed
	// PreparingForShutdown: the whole cluster is about to stop.
	PreparingForShutdown
	// ReadyForShutdown: all know that the whole cluster is about to stop.
	ReadyForShutdown
)

func (s Status) String() string {
	switch s {
	case Joining:
		return "joining"
	case WeaklyUp:
		return "weakly-up"
	case Up:
		return "up"
	case Leaving:
		return "leaving"
	case Exiting:
		return "exiting"
	case Down:
		return "down"
	case Removed:
		return "removed"
	case PreparingForShutdown:
		return "preparing-for-shutdown"
	case ReadyForShutdown:
		return "ready-for-shutdown"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// CanBecome reports whether a member may go from one status to another.
func (s Status) CanBecome(next Status) bool {
	switch s {
	case Joining:
		return next == WeaklyUp || next == Up || next == Leaving || next == Down || next == Removed
	case WeaklyUp:
		return next == Up || next == Leaving || next == Down || next == Removed
	case Up:
		return next == Leaving || next == Down || next == Removed || next == PreparingForShutdown
	case PreparingForShutdown:
		return next == ReadyForShutdown || next == Leaving || next == Down || next == Removed
	case ReadyForShutdown:
		return next == Leaving || next == Down || next == Removed
	case Leaving:
		return next == Exiting || next == Down || next == Removed
	case Exiting:
		return next == Down || next == Removed
	case Down:
		return next == Removed
	case Removed:
	}
	return false
}

// rank orders the statuses for a merge of what two nodes know: the higher one
// happened later. A member can only become one of a higher rank, or a merge would take back what
// was decided.
func (s Status) rank() int {
	switch s {
	case Joining:
		return 1
	case WeaklyUp:
		return 2
	case Up:
		return 3
	case PreparingForShutdown:
		return 4
	case ReadyForShutdown:
		return 5
	case Leaving:
		return 6
	case Exiting:
		return 7
	case Down:
		return 8
	case Removed:
		return 9
	}
	return 0
}

// settled reports whether a member with this status must have seen a gossip for
// the members to agree on it.
func (s Status) settled() bool {
	return s == Up || s == Leaving || s == PreparingForShutdown || s == ReadyForShutdown
}

// dead reports whether nobody waits for a member with this status.
func (s Status) dead() bool { return s == Down || s == Exiting }
