// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package outbox holds both ends of at-least-once delivery as state machines without a clock, a
// goroutine or I/O. Outgoing numbers the deliveries of one sender and schedules their
// transmissions. Incoming keeps the outcomes of one sender's deliveries at a receiver.
//
//	numbers:   1  2  3  4  5  6  7  8
//	           x  x  .  x  .  .  o  o
//	                 |           |
//	                 floor       not durable yet, not sent
//	  x confirmed   . sent, unconfirmed   o recorded
//
// Both are derived from events. An Outgoing may be ahead of the journal. It sends no delivery, and
// raises its floor over no delivery, that could still be undone.
//
// The types are not safe for concurrent use.
package outbox
