// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/outbox"
)

// Outbox sends commands to other entities until they are confirmed. It is an
// exported field of an aggregate's struct, part of its state: rebuilt by its
// events and saved in its snapshots. The runtime finds it there. The zero value
// is ready.
//
// M is the type of the commands, a struct that embeds Header. A message must not
// be changed once it was given to Deliver.
//
// An Outbox is used in the methods of its aggregate only: Deliver and Confirm in
// ApplyEvent, the others anywhere.
type Outbox[M Message] struct {
	id, field string
	settings  Settings
	event     uint64 // the one that is being applied
	metadata  []byte // its
	window    *outbox.Outgoing[parcel[M]]
	failures  map[uint64]error // the last answers that decided nothing
}

// parcel is a message and where it goes.
type parcel[M Message] struct {
	Type    string `msgpack:"t"`
	ID      string `msgpack:"d"`
	Message M      `msgpack:"m"`
	// Metadata is that of the event which delivers it.
	Metadata []byte `msgpack:"x,omitempty"`
}

func (p *parcel[M]) to() eventsourcing.Address {
	return eventsourcing.Address{Type: p.Type, ID: p.ID}
}

var _ eventsourcing.Companion = (*Outbox[Header])(nil)

// Configure sets what differs from the defaults. It is called in Type.New;
// mistakes are reported when the type is hosted. Settings are not part of the
// state.
func (o *Outbox[M]) Configure(s Settings) { o.settings = s }

// Deliver records a delivery, and returns its number. It is called in
// ApplyEvent. The message is sent when the event that is being applied is
// durable, and again and again until Confirm; the destination's type is looked
// up at each transmission. In a recovery nothing is sent before its end.
//
// Deliver takes messages beyond Settings.MaxUnconfirmed too: an event that is
// persisted can't be refused. See Room.
func (o *Outbox[M]) Deliver(to eventsourcing.Address, message M) uint64 {
	return o.outgoing().Add(o.event, parcel[M]{Type: to.Type, ID: to.ID, Message: stamped(message, Header{}), Metadata: o.metadata})
}

// Confirm ends a delivery, carried out or not. It is called in ApplyEvent. It is
// true the first time, and false for a number that is not to be confirmed.
func (o *Outbox[M]) Confirm(nr uint64) bool {
	delete(o.failures, nr)
	return o.outgoing().Confirm(o.event, nr)
}

// Unconfirmed returns how many deliveries are not confirmed.
func (o *Outbox[M]) Unconfirmed() int {
	if o.window == nil {
		return 0
	}
	return o.window.Open()
}

// Room returns nil if n more deliveries keep within Settings.MaxUnconfirmed, and
// else an error that matches ErrFull. HandleCommand asks before it persists
// events that deliver.
func (o *Outbox[M]) Room(n int) error {
	most := o.settings.withDefaults().MaxUnconfirmed
	if have := o.Unconfirmed(); n > most-have {
		return fmt.Errorf("%w: %s holds %d of %d, %d more do not fit", ErrFull, o.sender(), have, most, n)
	}
	return nil
}

// Pending returns the delivery with this number, and false if it is not
// unconfirmed.
func (o *Outbox[M]) Pending(nr uint64) (Delivery[M], bool) {
	if o.window == nil {
		return Delivery[M]{}, false
	}
	s, ok := o.window.Find(nr)
	if !ok {
		return Delivery[M]{}, false
	}
	return o.delivery(&s), true
}

// All yields the unconfirmed deliveries in the order of their numbers. The
// outbox must not be changed meanwhile.
func (o *Outbox[M]) All() iter.Seq[Delivery[M]] {
	return func(yield func(Delivery[M]) bool) {
		if o.window == nil {
			return
		}
		for s := range o.window.All() {
			if !yield(o.delivery(&s)) {
				return
			}
		}
	}
}

func (o *Outbox[M]) delivery(s *outbox.Sending[parcel[M]]) Delivery[M] {
	return Delivery[M]{Nr: s.Nr, To: s.Item.to(), Message: s.Item.Message, Attempts: s.Attempt, Err: o.failures[s.Nr]}
}

// outgoing returns the window, which most aggregates never need.
func (o *Outbox[M]) outgoing() *outbox.Outgoing[parcel[M]] {
	if o.window == nil {
		o.window = outbox.NewOutgoing[parcel[M]](o.settings.withDefaults().window())
	}
	return o.window
}

func (o *Outbox[M]) sender() string { return o.id + "#" + o.field }

// Attach is part of eventsourcing.Companion.
func (o *Outbox[M]) Attach(id, field string) error {
	o.id, o.field = id, field
	var m M
	if _, ok := any(m).(interface{ setHeader(Header) }); ok {
		return fmt.Errorf("%w: a delivery.Outbox[%T]: the message has to be a struct that embeds delivery.Header by value", eventsourcing.ErrInvalid, m)
	}
	if err := o.settings.withDefaults().validate(); err != nil {
		return err
	}
	if _, err := stateCodec[outboxState[M]](); err != nil {
		return fmt.Errorf("%w: the messages can't be stored: %w", eventsourcing.ErrInvalid, err)
	}
	return nil
}

// Applying is part of eventsourcing.Companion.
func (o *Outbox[M]) Applying(seqNr uint64, metadata []byte) { o.event, o.metadata = seqNr, metadata }

// Recovered is part of eventsourcing.Companion.
func (o *Outbox[M]) Recovered(now time.Time) eventsourcing.Outgoing {
	return o.send(o.outgoing().Recovered(now))
}

// Durable is part of eventsourcing.Companion.
func (o *Outbox[M]) Durable(seqNr uint64, now time.Time) eventsourcing.Outgoing {
	return o.send(o.outgoing().Durable(seqNr, now))
}

// Tick is part of eventsourcing.Companion.
func (o *Outbox[M]) Tick(now time.Time) eventsourcing.Outgoing {
	return o.send(o.outgoing().Tick(now))
}

// Next is part of eventsourcing.Companion.
func (o *Outbox[M]) Next() time.Time {
	if o.window == nil {
		return time.Time{}
	}
	return o.window.Next()
}

// Admit is part of eventsourcing.Companion: an answer to a delivery that is
// confirmed is of no interest, and one that decided nothing only to the outbox.
func (o *Outbox[M]) Admit(signal eventsourcing.Signal) bool {
	switch s := signal.(type) {
	case Answered[M]:
		if s.Message.header().Sender == o.sender() {
			_, pending := o.Pending(s.Nr)
			return pending
		}
	case failure:
		if s.sender == o.sender() {
			o.failed(s)
			return false
		}
	}
	return true
}

func (o *Outbox[M]) failed(f failure) {
	if _, pending := o.Pending(f.nr); !pending {
		return
	}
	if o.failures == nil {
		o.failures = make(map[uint64]error)
	}
	o.failures[f.nr] = f.err
}

// send makes commands of transmissions.
func (o *Outbox[M]) send(e outbox.Effects[parcel[M]]) eventsourcing.Outgoing {
	var out eventsourcing.Outgoing
	if len(e.Sends) == 0 {
		return out
	}
	h := Header{Sender: o.sender(), Floor: e.Floor}
	out.Sends = make([]eventsourcing.Send, len(e.Sends))
	for i := range e.Sends {
		h.Nr = e.Sends[i].Nr
		out.Sends[i] = transmission(&e.Sends[i], h)
	}
	if len(e.Warn) > 0 {
		w := Unconfirmed[M]{Deliveries: make([]Delivery[M], len(e.Warn))}
		for i := range e.Warn {
			w.Deliveries[i] = o.delivery(&e.Warn[i])
		}
		out.Signals = []eventsourcing.Signal{w}
	}
	return out
}

func transmission[M Message](s *outbox.Sending[parcel[M]], h Header) eventsourcing.Send {
	message, to, attempt := stamped(s.Item.Message, h), s.Item.to(), s.Attempt
	answered := func(value any, err error) eventsourcing.Signal {
		switch {
		case err == nil:
			return Answered[M]{Nr: h.Nr, To: to, Message: message, Attempt: attempt, Value: value}
		case refused(err):
			return Answered[M]{Nr: h.Nr, To: to, Message: message, Attempt: attempt, Err: err}
		}
		return failure{sender: h.Sender, nr: h.Nr, err: err}
	}
	return eventsourcing.Send{To: to, Command: message, Attempt: attempt, Metadata: s.Item.Metadata, Answered: answered}
}

// refused reports whether an error is the destination's decision. All others say
// nothing about the delivery, which may even be carried out: it is sent again.
func refused(err error) bool {
	r, ok := errors.AsType[*eventsourcing.Refusal](err)
	return ok && r.Code() != "internal" && !strings.HasPrefix(r.Code(), "refold/")
}
