// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
)

// Header identifies a delivery. A command that is delivered embeds its Header, and the Outbox sets
// the Header at each transmission. The event with the decision on the delivery embeds the Header
// for Inbox.Record.
//
// A command that was not sent by an Outbox has the zero value: Inbox.Seen returns false for it, and
// Inbox.Record ignores it.
type Header struct {
	// Sender identifies the outbox: the persistence ID of its entity, "#", and the name of its part.
	Sender string `msgpack:",omitempty"`
	// Nr is the number of the delivery. A sender counts the deliveries to all destinations from 1.
	Nr uint64 `msgpack:",omitempty"`
	// Floor is the lowest number of a delivery that may be unconfirmed.
	Floor uint64 `msgpack:",omitempty"`
}

func (h Header) delivered() bool { return h.Sender != "" && h.Nr != 0 }

func (h Header) header() Header { return h }

func (h *Header) setHeader(x Header) { *h = x }

// Message is a command that can be delivered: a struct that embeds Header.
type Message interface{ header() Header }

func withHeader[M Message](m M, h Header) M {
	if s, ok := any(&m).(interface{ setHeader(Header) }); ok {
		s.setHeader(h)
	}
	return m
}

type signal = hosting.IsSignal //nolint:unused // its method makes the struct a hosting.Signal

var (
	_ hosting.Signal = Answered[Message, any]{}
	_ hosting.Signal = Unconfirmed[Message]{}
	_ hosting.Signal = failure{}
)

// Answered is the signal that a destination has carried out or refused a delivery. The handler of
// Answered persists an event, for which Apply calls Outbox.Confirm. Until this call the delivery is
// sent and answered repeatedly. An entity receives no answer to a confirmed delivery.
type Answered[M Message, R any] struct {
	signal //nolint:unused // see type signal

	// Nr is the number of the delivery, for Outbox.Confirm.
	Nr uint64
	// To is the destination.
	To eventsourcing.Address
	// Message is the delivered message with its header.
	Message M
	// Attempt is the number of the transmission that was answered, from 1 at each start of the sender.
	Attempt int
	// Value is the reply of a destination that carried the delivery out.
	Value R
	// Err is the refusal of the destination, an *eventsourcing.Refusal, or nil. Other errors do not
	// decide on the delivery and lead to no signal.
	Err error
}

func (a Answered[M, R]) delivery() (sender string, nr uint64) { return a.Message.header().Sender, a.Nr }

// Unconfirmed is the signal that deliveries were sent more than Options.WarnAfter times without a
// confirmation. Each delivery is reported once per start of the sender. The outbox continues to send
// it.
type Unconfirmed[M Message] struct {
	signal //nolint:unused // see type signal

	// Deliveries are in the order of their numbers.
	Deliveries []Delivery[M]
}

// Delivery is a delivery that is not confirmed.
type Delivery[M Message] struct {
	// Nr is its number.
	Nr uint64
	// To is its destination.
	To eventsourcing.Address
	// Message is the message without its header.
	Message M
	// Attempts is the number of transmissions since the sender started.
	Attempts int
	// Err is the last reply that did not decide on the delivery, nil for none. Examples are an
	// unhandled command and a failure of the destination's journal.
	Err error
}

// failure is a signal to the outbox: a reply did not decide on the delivery.
type failure struct {
	signal //nolint:unused // see type signal

	sender string
	nr     uint64
	err    error
}
