// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package link implements the protocol between the transports of two nodes as a state machine
// without a clock, goroutines or I/O. A [Machine] is one node's end of all its links: messages go
// in and frames come out, frames go in and messages come out.
//
//	Send ──▶ queue ──▶ Flush ──▶ frame ~~~▶ Receive ──▶ Deliver ──▶ (a handler) ──▶ Consume
//	           ▲                                                                      │
//	           └──────────────── credit, on the control lane ◀────────────────────────┘
//
// A link carries the messages of one incarnation to another on one [Lane]. It has
//
//   - a sequence number on each frame. The receiver delivers ascending numbers only, so that no
//     message arrives twice or out of order, and it counts and reports missing numbers;
//   - credit on the lanes Data and Bulk. The receiver grants a number of bytes that the sender may
//     have in flight and unconsumed. Without credit the sender queues up to a limit, and then rejects
//     messages;
//   - frames. Small messages that are queued share frames. A message that is larger than a frame is
//     split over several frames.
//
// # Credit survives losses
//
// Both sides count bytes since the link began. A frame carries the byte offset at which it begins,
// and a grant carries the offset up to which the sender may send. A lost or duplicated grant is
// therefore harmless, and the next frame reveals the bytes of lost frames. A sender that has waited
// for credit for a while sends an empty frame that requests a grant.
//
// # Memory
//
// Queued bytes are limited for each link, and for all links of a lane together. Unconsumed bytes are
// limited for each link. All links share a budget, of which a name may hold as many bytes as are free.
// When all links together hold many unconsumed bytes, the receiver grants less. Earlier grants still
// hold, so a frame beyond the budget is dropped although its sender had credit.
//
// # Forgetting
//
// A link that is forgotten and begun again has a higher epoch. Frames of the earlier link are
// recognized by their epoch and dropped.
//
// The types are not safe for concurrent use. A payload that was sent must not
// change. A delivered payload is part of its frame, or a copy if it is a small part.
package link
