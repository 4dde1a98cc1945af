// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "github.com/refold-io/refold/internal/link"

// Reason says why something was dropped. The zero value is no reason.
type Reason = link.Reason

// The reasons, which are the indexes of [Stats].Dropped.
const (
	DropMalformed      = link.Malformed      // a frame that can't be decoded, or contradicts itself
	DropVersion        = link.Version        // a frame of a version that is not known
	DropForged         = link.Forged         // a frame whose envelope names another sender than its way here proves
	DropWrongReceiver  = link.WrongReceiver  // a frame for another incarnation
	DropWrongLane      = link.WrongLane      // a frame that came on another lane than it was sent on
	DropQuarantined    = link.Quarantined    // a frame from a quarantined incarnation, or a message to one
	DropStale          = link.Stale          // a frame of an earlier life of the link
	DropOld            = link.Old            // a frame that came twice, or was overtaken
	DropOverCredit     = link.OverCredit     // a frame that the sender had no credit for
	DropTooLarge       = link.TooLarge       // a message beyond the limit
	DropTooManyPeers   = link.TooManyPeers   // a frame from one peer more than there may be
	DropIncomplete     = link.Incomplete     // a part of a message of which another part was lost
	DropUnknownType    = link.UnknownType    // a message of a type that this version does not know
	DropForgotten      = link.Forgotten      // a message that was queued for a peer when that was forgotten
	DropNoHandler      = link.NoHandler      // a message of a kind that nobody handles
	DropLateReply      = link.LateReply      // a reply that nobody waits for
	DropUndecompressed = link.Undecompressed // a message that can't be decompressed, or not within the limit
	DropPanicked       = link.Panicked       // a message whose handler panicked
	DropUnsent         = link.Unsent         // a frame that the carrier did not take
	DropClosing        = link.Closing        // a message that was waiting when the transport was closed
	DropOverload       = link.Overload       // a frame for which all peers together have left no room

	// Reasons is one more than the last reason.
	Reasons = link.Reasons
)
