// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package link holds the protocol between the transports of two nodes as a state
// machine without a clock, a goroutine or I/O. A [Machine] is one node's end of
// all its links: messages go in and frames come out, frames go in and messages
// come out.
//
//	Send ──▶ queue ──▶ Flush ──▶ frame ~~~▶ Receive ──▶ Deliver ──▶ (a handler) ──▶ Consume
//	           ▲                                                                      │
//	           └──────────────── credit, on the control lane ◀────────────────────────┘
//
// A link is what one incarnation sends to another on one [Lane]. It has
//
//   - a number on each frame: the receiver delivers rising numbers only, so
//     that nothing arrives twice or out of order, and counts and reports what is
//     missing;
//   - credit on the lanes Data and Bulk: the sender may have as many bytes on
//     the way and unconsumed as the receiver granted. Without credit it queues up to
//     a limit, and then refuses;
//   - frames that hold as many small messages as are waiting, and messages that
//     are spread over several frames when they are larger than one.
//
// # Credit survives losses
//
// Both sides count in bytes since the link began. A frame says at which byte it
// begins, a grant up to which byte the sender may go. So a lost or doubled grant
// does no harm, and bytes in lost frames are found out by the next frame. A
// sender that has waited for credit for a while sends an empty frame that asks for
// it.
//
// # Room
//
// What waits to be sent and to be consumed is limited for each link, and for all links of a
// lane together. When much of all is unconsumed, peers are granted less; as they may have been
// granted more before, a frame beyond the limit is dropped all the same.
//
// # Forgetting
//
// A link that is forgotten and begun again has a higher epoch, so that frames of
// the earlier one are not taken for its own.
//
// The types are not safe for concurrent use. Payloads are never copied when they
// come in: a payload that was sent must not change, and one that is delivered
// is part of the frame it came in.
package link
