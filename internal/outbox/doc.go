// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package window holds the two ends of at-least-once delivery as state machines
// without a clock, a goroutine or I/O: Outgoing numbers what one sender delivers
// and says when to send it again, Incoming remembers what one sender's
// deliveries have come to at a receiver.
//
//	numbers:   1  2  3  4  5  6  7  8
//	           x  x  .  x  .  .  o  o
//	                 |           |
//	                 floor       not durable yet, not sent
//	  x confirmed   . sent, unconfirmed   o recorded
//
// Both are folded from events. An Outgoing may be ahead of what is stored: it
// sends nothing, and raises its floor over nothing, that may still be undone.
//
// The types are not safe for concurrent use.
package outbox
