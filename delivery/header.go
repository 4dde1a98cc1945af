// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

// Header identifies a delivery. A command that is delivered embeds it; the
// Outbox fills it in at each transmission. In events it is stored with the
// decision about the delivery, for Inbox.Record.
//
// The zero value is that of a command which was sent by hand: no Inbox has ever
// seen it, and none remembers it.
type Header struct {
	// Sender names the outbox: the persistence ID of its aggregate, "#", and the
	// name of the field.
	Sender string `msgpack:",omitempty"`
	// Nr is the number of the delivery: 1, 2, 3 and so on at each sender, for all
	// destinations together.
	Nr uint64 `msgpack:",omitempty"`
	// Floor is the lowest number for which the sender may still wait.
	Floor uint64 `msgpack:",omitempty"`
}

// delivered tells whether the header is that of a delivery.
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
