// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

// Reason says why something was dropped. The zero value is no reason.
type Reason uint8

const (
	// Malformed is a frame that can't be decoded, or contradicts itself.
	Malformed Reason = iota + 1
	// Version is a frame of a version that is not known.
	Version
	// Forged is a frame whose envelope names another sender than its way here
	// proves.
	Forged
	// WrongReceiver is a frame for another incarnation.
	WrongReceiver
	// WrongLane is a frame that came on another lane than it was sent on.
	WrongLane
	// Quarantined is a frame from a quarantined incarnation, or a message to one.
	Quarantined
	// Stale is a frame of an earlier life of the link.
	Stale
	// Old is a frame whose number is not above the last one: a duplicate, or one
	// that was overtaken.
	Old
	// OverCredit is a frame for which the receiver has no room.
	OverCredit
	// TooLarge is a message beyond the limit.
	TooLarge
	// TooManyPeers is a frame from one peer more than there may be.
	TooManyPeers
	// Incomplete is a part of a message of which another part was lost.
	Incomplete
	// UnknownType is a message of a type that this version does not know.
	UnknownType
	// Forgotten is a message that was queued for a peer when that was forgotten.
	Forgotten
	// NoHandler is a message of a kind that nobody handles.
	NoHandler
	// LateReply is a reply that nobody waits for.
	LateReply
	// Undecompressed is a message that can't be decompressed, or not within the
	// limit.
	Undecompressed
	// Panicked is a message whose handler panicked.
	Panicked
	// Unsent is a frame that the carrier did not take.
	Unsent
	// Closing is a message that was waiting when the transport was closed.
	Closing
	// Overload is a frame for which there is no room because of what all peers
	// together have sent.
	Overload

	// Reasons is one more than the last reason.
	Reasons
)

// String returns the reason in snake case, as for a metric.
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

// Kind says what a message is about. It is chosen by those who speak to each
// other; the numbers of this module stand in package transport.
type Kind uint16

// Type is what a message is to the link.
type Type uint8

const (
	// Tell is a message of its own.
	Tell Type = 1
	// Request is a message that is answered by a Reply with the same
	// correlation number.
	Request Type = 2
	// Reply answers a Request. Its kind is a status.
	Reply Type = 3
)

// What only machines say to each other.
const (
	continuation Type = 4 // more of the message that the previous frame began
	grant        Type = 5 // kind: the lane, correlation: its epoch, payload: the limit
	notice       Type = 6 // correlation: the UID that is quarantined
)

// Message is what is sent and delivered.
type Message struct {
	Type Type
	Kind Kind
	// Correlation ties a Reply to its Request. It is 0 for the others.
	Correlation uint64
	// Compressed is kept for the receiver: the payload is compressed.
	Compressed bool
	Payload    []byte
}

// perMessage is what a message costs besides its payload, in bytes of credit.
// It stands for the memory around it, and keeps empty messages from being free.
const perMessage = 64

func cost(payload int) int { return payload + perMessage }

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
