// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

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

// Lane is one of the parallel paths between two nodes. Lanes do not wait for each other, and there
// is no order between them.
type Lane uint8

const (
	// Control is for membership and heartbeats. It has its own connection and no credit: a receiver
	// without room drops its frames.
	Control Lane = iota
	// Data is for messages between entities, and for requests and replies.
	Data
	// Bulk is for large messages that can wait: gossip of replicated data, state transfers.
	Bulk

	// Lanes is the number of lanes.
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

// Reason is the reason for dropping a frame or a message. The zero value is no reason.
type Reason uint8

const (
	// Malformed is a frame that cannot be decoded, or that contradicts itself.
	Malformed Reason = iota + 1
	// Version is a frame of an unknown version.
	Version
	// Forged is a frame whose header names another sender than the carrier does.
	Forged
	// WrongReceiver is a frame for another incarnation.
	WrongReceiver
	// WrongLane is a frame that arrived on another lane than the one in its header.
	WrongLane
	// Quarantined is a frame from a quarantined incarnation, or a message to one.
	Quarantined
	// Stale is a frame of an earlier epoch of the link.
	Stale
	// Old is a frame whose sequence number is not above the last one: a duplicate, or a frame that
	// a later one overtook.
	Old
	// OverCredit is a frame that exceeds the window of its link.
	OverCredit
	// TooLarge is a message beyond the size limit.
	TooLarge
	// TooManyPeers is a frame from a new peer when the number of peers is at its limit.
	TooManyPeers
	// Incomplete is a part of a message of which another part was lost.
	Incomplete
	// UnknownType is a message of a type that this version does not support.
	UnknownType
	// Forgotten is a message that was queued for a peer when the peer was forgotten.
	Forgotten
	// NoHandler is a message of a kind without a handler.
	NoHandler
	// LateReply is a reply to a request that is no longer open.
	LateReply
	// Undecompressed is a message that cannot be decompressed, or exceeds the limit after
	// decompression.
	Undecompressed
	// Panicked is a message whose handler panicked.
	Panicked
	// Unsent is a frame that the carrier failed to send.
	Unsent
	// Closing is a message that was queued when the transport was closed.
	Closing
	// Overload is a frame that exceeds the limit for all peers together.
	Overload

	// Reasons is the number of reasons, including the zero value.
	Reasons
)

// String returns the reason in snake case, as metrics use it.
func (r Reason) String() string {
	switch r {
	case Malformed:
		return "malformed"
	case Version:
		return "version"
	case Forged:
		return "forged"
	case WrongReceiver:
		return "wrong_receiver"
	case WrongLane:
		return "wrong_lane"
	case Quarantined:
		return "quarantined"
	case Stale:
		return "stale"
	case Old:
		return "old"
	case OverCredit:
		return "over_credit"
	case TooLarge:
		return "too_large"
	case TooManyPeers:
		return "too_many_peers"
	case Incomplete:
		return "incomplete"
	case UnknownType:
		return "unknown_type"
	case Forgotten:
		return "forgotten"
	case NoHandler:
		return "no_handler"
	case LateReply:
		return "late_reply"
	case Undecompressed:
		return "undecompressed"
	case Panicked:
		return "panicked"
	case Unsent:
		return "unsent"
	case Closing:
		return "closing"
	case Overload:
		return "overload"
	case Reasons:
	}
	return "none"
}
