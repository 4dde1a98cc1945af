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
