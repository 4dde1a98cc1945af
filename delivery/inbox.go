// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/outbox"
)

// Inbox remembers which deliveries an aggregate has decided about, so that one that comes again is
// not carried out again. It is an exported field of the aggregate's struct and part of its state.
// The zero value is ready.
//
// It keeps, for each sender, the floor and the numbers from there on. Those of a sender that is
// forgotten too early are new again, so by itself it forgets no sender: an aggregate with very many
// of them grows by each.
//
// An Inbox is used in the methods of its aggregate only: Record, RecordRefusal and Forget in Apply,
// the others anywhere.
type Inbox struct {
	senders map[string]*outbox.Incoming[*verdict]
}

// verdict is the refusal of a delivery.
type verdict struct {
	Code    string `msgpack:"c"`
	Message string `msgpack:"m"`
}

// Seen reports whether a delivery was decided about already: then it is not carried out, and
// answered as it was the first time, with success unless Refusal says otherwise.
func (b *Inbox) Seen(h Header) bool {
	in := b.senders[h.Sender]
	return h.delivered() && in != nil && in.Seen(h.Nr)
}

// Refusal returns the refusal that was recorded for a delivery, nil if there is none.
func (b *Inbox) Refusal(h Header) error {
	in := b.senders[h.Sender]
	if in == nil || !h.delivered() {
		return nil
	}
	v, _ := in.Outcome(h.Nr)
	if v == nil {
		return nil
	}
	return eventsourcing.NewRefusal(v.Code, v.Message)
}

// Record remembers that a delivery was carried out. It is called in Apply.
func (b *Inbox) Record(h Header) { b.record(h, nil) }

// RecordRefusal remembers that a delivery was refused for good. It is called in Apply.
func (b *Inbox) RecordRefusal(h Header, r *eventsourcing.Refusal) {
	b.record(h, &verdict{Code: r.Code(), Message: r.Error()})
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
// answers repeated deliveries as the first time: with Ack, or with the refusal that
// Inbox.RecordRefusal has recorded. handler decides about the others, and persists its decision in
// an event with the header, for which Apply calls Inbox.Record or Inbox.RecordRefusal.
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

// Senders returns how many senders are remembered.
func (b *Inbox) Senders() int { return len(b.senders) }

// Forget forgets a sender, by Header.Sender. It is called in Apply, for a sender that will never
// deliver again: what it delivers is new again.
func (b *Inbox) Forget(sender string) { delete(b.senders, sender) }
