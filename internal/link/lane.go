// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

// Lane is one of the ways that messages take from node to node. Lanes do not
// wait for each other, and there is no order between them.
type Lane uint8

const (
	// Control is for membership and heartbeats. It has a connection of its own
	// and no credit: what a receiver has no room for is dropped.
	Control Lane = iota
	// Data is for messages between entities, for requests and their replies.
	Data
	// Bulk is for what is large and can wait: gossip of data, transfers.
	Bulk

	// Lanes is how many there are.
	Lanes = 3
)

// String returns "control", "data" or "bulk".
func (l Lane) String() string {
	switch l {
	case Control:
		return "control"
	case Data:
		return "data"
	case Bulk:
		return "bulk"
	}
	return "invalid"
}

// Credited reports whether a sender needs credit on the lane.
func (l Lane) Credited() bool { return l == Data || l == Bulk }
