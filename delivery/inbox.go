// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/outbox"
)

// Inbox records the deliveries on which an entity has decided, so that a repeated delivery is not
// carried out again. It is an exported field of the state's struct and part of the state. The zero
// value is empty.
//
// For each sender the Inbox keeps Header.Floor and the outcomes of the deliveries from this number
// on. Only Forget removes a sender, because the deliveries of a removed sender would count as new.
// The state of an entity therefore grows with the number of its senders: in a snapshot by the name
// of the sender and about 12 bytes, in memory by about 130 bytes.
//
// An Inbox is used only by its entity: Record, RecordRefusal and Forget in Apply, the other methods
// anywhere.
type Inbox struct {
	senders map[string]*outbox.Incoming[*verdict]
}

type verdict struct {
	Code    string             `msgpack:"c"`
	Message string             `msgpack:"m"`
	Kind    eventsourcing.Kind `msgpack:"k,omitempty"`
}

// Seen reports whether the entity has already decided on a delivery. If it returns true, the
// delivery must not be carried out again. The answer to the delivery is the result of Refusal, or
// success if Refusal returns nil.
func (b *Inbox) Seen(h Header) bool {
	in := b.senders[h.Sender]
	return h.delivered() && in != nil && in.Seen(h.Nr)
}

// Refusal returns the recorded refusal of a delivery, nil for none.
func (b *Inbox) Refusal(h Header) error {
	in := b.senders[h.Sender]
	if in == nil || !h.delivered() {
		return nil
	}
	v, _ := in.Outcome(h.Nr)
	if v == nil {
		return nil
	}
	return eventsourcing.NewRefusal(v.Code, v.Message).OfKind(v.Kind)
}

// Record records that a delivery was carried out. It is called in Apply.
func (b *Inbox) Record(h Header) { b.record(h, nil) }

// RecordRefusal records that a delivery was refused, with the code, the text and the kind of the refusal.
// It is called in Apply.
func (b *Inbox) RecordRefusal(h Header, r *eventsourcing.Refusal) {
	b.record(h, &verdict{Code: r.Code(), Message: r.Error(), Kind: r.Kind()})
}

func (b *Inbox) record(h Header, v *verdict) {
	if !h.delivered() {
		return
	}
	in := b.senders[h.Sender]
	if in == nil {
		if b.senders == nil {
			b.senders = make(map[string]*outbox.Incoming[*verdict])
		}
		in = &outbox.Incoming[*verdict]{}
		b.senders[h.Sender] = in
	}
	in.Record(h.Nr, h.Floor, v)
}

// On returns the row of Type.Commands for deliveries of type M, which are answered with an Ack. It
// answers a repeated delivery with the outcome in the inbox: Ack, or the refusal of
// Inbox.RecordRefusal. The handler decides on new deliveries. It persists its decision in an event
// that embeds the header, and Apply calls Inbox.Record or Inbox.RecordRefusal.
func On[S, E any, M interface {
	Message
	eventsourcing.Request[S, eventsourcing.Ack]
}](
	name string, inbox func(*S) *Inbox,
	handler func(*S, *eventsourcing.Context[S, E, eventsourcing.Ack], M) eventsourcing.Decision[S, E, eventsourcing.Ack],
) eventsourcing.Handler[S, E] {
	return eventsourcing.On(name, func(s *S, ctx *eventsourcing.Context[S, E, eventsourcing.Ack], m M) eventsourcing.Decision[S, E, eventsourcing.Ack] {
		b, h := inbox(s), m.header()
		if !b.Seen(h) {
			return handler(s, ctx, m)
		}
		if err := b.Refusal(h); err != nil {
			return ctx.Refuse(err)
		}
		return ctx.Reply(eventsourcing.Ack{})
	})
}

// Senders returns the number of recorded senders.
func (b *Inbox) Senders() int { return len(b.senders) }

// Forget removes a sender, by Header.Sender. It is called in Apply, so that a recovery forgets the
// same senders. The Inbox treats later deliveries of the sender as new.
//
// Forget is safe for a sender that delivers nothing new to this entity, if a late copy of a delivery
// changes nothing by the state alone. For example, the copy has a deadline that has passed. Copies
// can wait in the memory of nodes, and no time limits this.
func (b *Inbox) Forget(sender string) { delete(b.senders, sender) }
