// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
)

// Header identifies a delivery. A command that is delivered embeds it; the Outbox fills it in at
// each transmission. In events it is stored with the decision about the delivery, for Inbox.Record.
//
// The zero value is that of a command which was sent by hand: no Inbox has ever seen it, and none
// remembers it.
type Header struct {
	// Sender names the outbox: the persistence ID of its aggregate, "#", and the name of the field.
	Sender string `msgpack:",omitempty"`
	// Nr is the number of the delivery: 1, 2, 3 and so on at each sender, for all destinations
	// together.
	Nr uint64 `msgpack:",omitempty"`
	// Floor is the lowest number for which the sender may still wait.
	Floor uint64 `msgpack:",omitempty"`
}

// delivered reports whether the header belongs to a delivery.
func (h Header) delivered() bool { return h.Sender != "" && h.Nr != 0 }

func (h Header) header() Header { return h }

func (h *Header) setHeader(x Header) { *h = x }

// Message is a command that can be delivered: a struct that embeds Header.
type Message interface{ header() Header }

// stamped returns a message with another header.
func stamped[M Message](m M, h Header) M {
	if s, ok := any(&m).(interface{ setHeader(Header) }); ok {
		s.setHeader(h)
	}
	return m
}

// signal makes a struct an eventsourcing.Signal.
type signal = hosting.IsSignal

// Answered is the signal that a destination has answered a delivery: it carried the delivery out or
// refused it. The handler persists an event, for which Apply calls Outbox.Confirm; until then the
// delivery is sent again, and answered again. An entity sees no answer to a delivery that is
// confirmed.
type Answered[M Message, R any] struct {
	signal

	// Nr is the number of the delivery, for Outbox.Confirm.
	Nr uint64
	// To is the destination.
	To eventsourcing.Address
	// Message is the delivered message with its header.
	Message M
	// Attempt is the transmission that was answered, counted from 1 at each start of the sender.
	Attempt int
	// Value is the reply of a destination that carried the delivery out.
	Value R
	// Err is the answer of a destination that refused, an *eventsourcing.Refusal. Other errors do
	// not decide about the delivery and lead to no signal.
	Err error
}

func (a Answered[M, R]) delivery() (sender string, nr uint64) { return a.Message.header().Sender, a.Nr }

// Unconfirmed is the signal that deliveries were sent more than Options.WarnAfter times without a
// confirmation. It comes once for each delivery and start of the sender; the outbox continues to
// send.
type Unconfirmed[M Message] struct {
	signal

	// Deliveries are in the order of their numbers.
	Deliveries []Delivery[M]
}

// Delivery is a delivery that is not confirmed.
type Delivery[M Message] struct {
	// Nr is its number.
	Nr uint64
	// To is its destination.
	To eventsourcing.Address
	// Message is the message. Its header is not filled in.
	Message M
	// Attempts is the number of transmissions since the sender started.
	Attempts int
	// Err is the last answer that did not decide about the delivery: the destination does not
	// handle the command, its journal fails, and so on. It is nil if there was none.
	Err error
}

// failure is the signal, to the outbox alone, that an answer did not decide about the delivery.
type failure struct {
	signal

	sender string
	nr     uint64
	err    error
}
