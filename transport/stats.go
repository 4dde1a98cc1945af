// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync/atomic"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/loop"
)

// LaneStats holds the counters of one lane.
type LaneStats struct {
	FramesOut, FramesIn, MessagesOut, MessagesIn, BytesOut, BytesIn uint64
	// Gaps counts the gaps in sequence numbers. Lost counts the frames that are missing in these
	// gaps.
	Gaps, Lost uint64
	// Stalls counts how often a link ran out of credit.
	Stalls uint64
	// Queued is the number of bytes that wait to be sent. Held is the number of bytes that were
	// received and not yet consumed.
	Queued, Held int
}

// Stats holds counters since the transport was opened.
type Stats struct {
	// Lanes has one entry for each Lane.
	Lanes [Lanes]LaneStats
	// Dropped counts dropped frames and messages. The index is a Reason.
	Dropped [Reasons]uint64
	// Refused counts messages that were rejected with ErrBackpressure because a send queue was
	// full.
	Refused uint64
	// Notices counts the notices sent to quarantined incarnations.
	Notices uint64
	// EventsLost counts events that were dropped because OnEvent was too slow.
	EventsLost uint64
	// Saved is the number of bytes saved by compression.
	Saved uint64
	// AdminRequests counts the requests of operators. AdminRefused counts the requests that were
	// rejected because of their size or a full queue, or that waited for a minute.
	AdminRequests, AdminRefused uint64
	// Memory is how many bytes of Config.MemoryBudget are held, within 4 KiB for each peer and
	// buffer.
	Memory int
	// Peers is the current number of incarnations with links. Requests is the current number of
	// open requests.
	Peers, Requests int
}

// Stats returns the counters.
func (t *Transport) Stats() Stats {
	t.mu.Lock()
	s := t.machine.Stats()
	asked, refused := t.admin.asked, t.admin.refused
	t.mu.Unlock()
	for why := range s.Dropped {
		s.Dropped[why] += t.counters.dropped[why].Load()
	}
	var lanes [Lanes]LaneStats
	for lane := range lanes {
		lanes[lane] = LaneStats(s.Lanes[lane])
	}
	return Stats{
		Lanes: lanes, Dropped: s.Dropped, Refused: s.Refused, Notices: s.Notices, Peers: s.Peers,
		AdminRequests: asked, AdminRefused: refused,
		EventsLost: t.counters.eventsLost.Load(), Saved: t.counters.saved.Load(), Requests: t.requests.Len(),
		Memory: loop.BudgetOf(t).Held(),
	}
}

// shellCounters are the counters that the link machine does not keep.
type shellCounters struct {
	dropped           [Reasons]atomic.Uint64
	saved, eventsLost atomic.Uint64
}

// Reason is the reason for dropping a frame or a message. The zero value is no reason. String
// returns one of:
//
//	malformed        a frame that cannot be decoded, or contradicts itself
//	version          a frame of an unknown version
//	forged           a frame whose header names another sender than the carrier does
//	wrong_receiver   a frame for another incarnation
//	wrong_lane       a frame that arrived on another lane than the one in its header
//	quarantined      a frame from a quarantined incarnation, or a message to one
//	stale            a frame of an earlier epoch of the link
//	old              a duplicate frame, or one that a later frame overtook
//	over_credit      a frame that exceeds the window of its link, or of its sender's name
//	too_large        a message beyond the size limit
//	too_many_peers   a frame from a new peer when the number of peers is at its limit
//	incomplete       a part of a message of which another part was lost
//	unknown_type     a message of a type that this version does not support
//	forgotten        a message that was queued for a peer when the peer was forgotten
//	no_handler       a message of a kind without a handler
//	late_reply       a reply to a request that is no longer open
//	undecompressed   a message that cannot be decompressed within the size limit
//	panicked         a message whose handler panicked
//	unsent           a frame that the carrier failed to send
//	closing          a message that was queued when the transport was closed
//	overload         a frame that exceeds the share of its sender in Config.MemoryBudget
//	stranger         a message that Config.Accept does not accept
type Reason uint8

// Reasons that tests and monitoring look up by name. Iterate up to Reasons for the others.
const (
	DropForged    = Reason(link.Forged)
	DropOld       = Reason(link.Old)
	DropNoHandler = Reason(link.NoHandler)

	// Reasons is the number of reasons, including the zero value.
	Reasons = Reason(link.Reasons)
)

// String returns the reason in snake case, as metrics use it.
func (r Reason) String() string { return link.Reason(r).String() }
