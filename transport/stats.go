// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/link"
)

// LaneStats counts on one lane.
type LaneStats = link.LaneStats

// Stats counts since the transport was opened.
type Stats struct {
	// Lanes has one entry for each Lane.
	Lanes [link.Lanes]LaneStats
	// Dropped counts frames and messages that were dropped. The index is a
	// Reason, such as DropOverCredit.
	Dropped [Reasons]uint64
	// Refused counts messages that were answered with ErrBackpressure for want of
	// room in a link's queue.
	Refused uint64
	// Notices counts the notices to quarantined incarnations.
	Notices uint64
	// EventsLost counts the events that OnEvent was too slow for.
	EventsLost uint64
	// Saved is how many bytes compression has saved.
	Saved uint64
	// AdminRequests counts what operators asked, AdminRefused how much of that was
	// refused because it was too large, or for want of room.
	AdminRequests, AdminRefused uint64
	// Peers is how many incarnations there are links with, Requests how many
	// requests are open.
	Peers, Requests int
}

// Stats returns the counters.
func (t *Transport) Stats() Stats {
	t.mu.Lock()
	s := t.machine.Stats()
	asked, refused := t.admin.asked, t.admin.refused
	t.mu.Unlock()
	for why := range s.Dropped {
		s.Dropped[why] += t.loose.dropped[why].Load()
	}
	return Stats{
		Lanes: s.Lanes, Dropped: s.Dropped, Refused: s.Refused, Notices: s.Notices, Peers: s.Peers,
		AdminRequests: asked, AdminRefused: refused,
		EventsLost: t.events.dropped(), Saved: t.loose.saved.Load(), Requests: t.calls.count(),
	}
}

// loose are counters that the machine does not keep.
type loose struct {
	dropped [Reasons]atomic.Uint64
	saved   atomic.Uint64
	logged  [Reasons]atomic.Int64 // when, in nanoseconds, 0 is never
}

// mayLog reports whether a reason was not logged for a minute.
func (l *loose) mayLog(why Reason, now time.Duration) bool {
	last := l.logged[why].Load()
	return (last == 0 || int64(now)-last >= int64(time.Minute)) && l.logged[why].CompareAndSwap(last, max(1, int64(now)))
}

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
