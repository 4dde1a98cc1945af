// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

// Stats counts since the machine began.
type Stats struct {
	Lanes [Lanes]LaneStats
	// Dropped counts what was dropped, by Reason. Frames and messages count as
	// one each.
	Dropped [Reasons]uint64
	// Refused counts messages that Send did not take for want of room.
	Refused uint64
	// Notices counts the Quarantined notices that were sent.
	Notices uint64
	// Peers is how many incarnations there are links with now.
	Peers int
}

// LaneStats counts on one lane.
type LaneStats struct {
	FramesOut, FramesIn, MessagesOut, MessagesIn, BytesOut, BytesIn uint64
	// Gaps is how often frames were missing, Lost how many in all.
	Gaps, Lost uint64
	// Stalls is how often a link ran out of credit.
	Stalls uint64
	// Queued and Held are how many bytes wait now to be sent, and were received and
	// are not consumed yet.
	Queued, Held int
}
