// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import "github.com/refold-io/refold/internal/enum"

// Status is the state of a member in its life cycle:
//
//	Joining -> WeaklyUp -> Up -> PreparingForShutdown -> ReadyForShutdown -> Leaving -> Exiting -> Down -> Removed
//
// A member may skip states; see CanBecome. Reachability is not part of the status.
type Status uint8

// The numbers are those of the wire format and never change.
const (
	// Joining: some members have seen the new node, but not yet all.
	Joining Status = 1 + iota
	// WeaklyUp: the node joins while the members cannot agree on it. The node does not count in
	// quorums and hosts no singletons and no shards.
	WeaklyUp
	// Up: a full member.
	Up
	// Leaving: the member was asked to leave.
	Leaving
	// Exiting: all members have seen that the member leaves. It hands over its singletons and
	// shards.
	Exiting
	// Down: the cluster has decided that the member is dead.
	Down
	// Removed: no longer a member. This status occurs in events only, never in gossip.
	Removed
	// PreparingForShutdown: the whole cluster is about to stop.
	PreparingForShutdown
	// ReadyForShutdown: all members have seen that the whole cluster is about to stop.
	ReadyForShutdown
)

func (s Status) String() string {
	return enum.Name(s, "status",
		"", "joining", "weakly-up", "up", "leaving", "exiting", "down", "removed", "preparing-for-shutdown",
		"ready-for-shutdown")
}

// CanBecome reports whether the life cycle allows a change from s to next.
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
