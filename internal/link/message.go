// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import "github.com/refold-io/refold/internal/enum"

// Kind is the subject of a message. The communicating packages choose it; package transport assigns
// their ranges.
type Kind uint16

// Type is the role of a message on the link.
type Type uint8

const (
	// Tell is a one-way message.
	Tell Type = 1
	// Request is a message that expects a Reply with the same correlation number.
	Request Type = 2
	// Reply answers a Request. Its kind is a status.
	Reply Type = 3
)

// Types that machines use among themselves.
const (
	continuation Type = 4 // the next part of the message that the previous frame began
	grant        Type = 5 // kind: the lane, correlation: its epoch, payload: the offset up to which the receiver may send
	notice       Type = 6 // correlation: the UID of the quarantined incarnation
)

// Message is one message, sent or delivered.
type Message struct {
	Type Type
	Kind Kind
	// Correlation is equal in a Request and its Reply. It is 0 in other messages.
	Correlation uint64
	// Compressed marks a compressed payload. Links do not interpret it.
	Compressed bool
	Payload    []byte
}

// messageOverhead is the cost of a message in addition to its payload, in bytes of credit. It
// accounts for the memory of the message's bookkeeping, so that empty messages are not free.
const messageOverhead = 64

func cost(payload int) int { return payload + messageOverhead }

// Lane is one of the parallel paths between two nodes; see transport.Lane.
type Lane uint8

// The lanes.
const (
	Control Lane = iota
	Data
	Bulk

	// Lanes is the number of lanes.
	Lanes = 3
)

// String returns "control", "data" or "bulk".
func (l Lane) String() string {
	return enum.Name(l, "lane", "control", "data", "bulk")
}

// Credited reports whether a sender needs credit on the lane.
func (l Lane) Credited() bool { return l == Data || l == Bulk }

// Reason is the reason for dropping a frame or a message. transport.Reason documents the values. The
// zero value is no reason.
type Reason uint8

// The reasons, in the order of their names in String.
const (
	Malformed Reason = iota + 1
	Version
	Forged
	WrongReceiver
	WrongLane
	Quarantined
	Stale
	Old
	OverCredit
	TooLarge
	TooManyPeers
	Incomplete
	UnknownType
	Forgotten
	NoHandler
	LateReply
	Undecompressed
	Panicked
	Unsent
	Closing
	Overload

	// Reasons is the number of reasons, including the zero value.
	Reasons
)

// String returns the reason in snake case, as metrics use it.
func (r Reason) String() string {
	return enum.Name(r, "reason",
		"none", "malformed", "version", "forged", "wrong_receiver", "wrong_lane", "quarantined", "stale", "old",
		"over_credit", "too_large", "too_many_peers", "incomplete", "unknown_type", "forgotten",
		"no_handler", "late_reply", "undecompressed", "panicked", "unsent", "closing", "overload", "none")
}
