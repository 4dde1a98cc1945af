// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import "github.com/refold-io/refold/eventsourcing"

// Answered is the signal that a destination has answered a delivery: it carried
// it out or refused it. The aggregate persists an event whose ApplyEvent calls
// Outbox.Confirm; until then the delivery is sent again, and answered again. An
// aggregate sees no answer to a delivery that is confirmed.
type Answered[M Message] struct {
	// Nr is the number of the delivery, for Outbox.Confirm.
	Nr uint64
	// To is the destination.
	To eventsourcing.Address
	// Message is what was delivered, with its header.
	Message M
	// Attempt is which transmission was answered, counted from 1 at each start of
	// the sender.
	Attempt int
	// Value is the answer of a destination that carried it out.
	Value any
	// Err is the answer of a destination that refused, an
	// *eventsourcing.Refusal. Other errors say nothing about the delivery, and
	// are not passed on.
	Err error
}

// Unconfirmed is the signal that deliveries were sent more than
// Settings.WarnAfter times without a confirmation. It comes once for each
// delivery and start of the sender; the outbox goes on sending.
type Unconfirmed[M Message] struct {
	// Deliveries are in the order of their numbers.
	Deliveries []Delivery[M]
}

// Delivery is one that is not confirmed.
type Delivery[M Message] struct {
	// Nr is its number.
	Nr uint64
	// To is its destination.
	To eventsourcing.Address
	// Message is what is delivered. Its header is not filled in.
	Message M
	// Attempts is how often it was sent since the sender started.
	Attempts int
	// Err is why the last answer that decided nothing came to nothing: the
	// destination does not know the command, its journal fails, and so on. It is
	// nil if there was none, and only known to an aggregate that handles signals.
	Err error
}

// failure is the signal, to the outbox alone, that an answer decided nothing.
type failure struct {
	sender string
	nr     uint64
	err    error
}
