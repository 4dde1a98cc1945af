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
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/outbox"
)

// Outbox sends commands to other entities until they are confirmed. It is an exported field of an
// aggregate's struct, part of its state: rebuilt by its events and saved in its snapshots. The
// runtime finds it there. The zero value is ready.
//
// M is the type of the commands, a struct that embeds Header. A message must not be changed once it
// was given to Deliver.
//
// An Outbox is used in the methods of its aggregate only: Deliver and Confirm in Apply, the others
// anywhere.
type Outbox[M Message] struct {
	needsPart

	id, field string
	options   Options
	event     uint64 // the one that is being applied
	metadata  []byte // its
	window    *outbox.Outgoing[parcel[M]]
	failures  map[uint64]error // the last answers that did not decide
	// answered makes the signal of an answer; nil until the outbox is attached.
	answered func(answer[M]) (hosting.Signal, error)
}

// needsPart lets eventsourcing.Host refuse a state with an Outbox that has no entry in Type.Parts.
type needsPart = hosting.NeedsPart

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

// answer is the answer to a transmission.
type answer[M Message] struct {
	nr      uint64
	to      eventsourcing.Address
	message M
	attempt int
	value   any
	err     error
}

// Sends returns the entry for Type.Parts that makes an outbox send, with the handler of its
// answers. The name is stored as part of the sender's identity: it must never change, and is unique
// in the Type.
//
//	Parts: eventsourcing.Parts(delivery.Sends("Transfers", func(a *Account) *delivery.Outbox[Credit] { return &a.Transfers }, (*Account).answered)),
func Sends[S, E, T, R any, M interface {
	Message
	eventsourcing.Request[T, R]
}](
	name string, outbox func(*S) *Outbox[M],
	answered func(*S, *eventsourcing.Context[S, E, eventsourcing.None], Answered[M, R]) eventsourcing.Effect[S, E, eventsourcing.None],
) eventsourcing.Part[S, E] {
	return SendsWith(name, outbox, Options{}, answered)
}

// SendsWith is Sends with options. Invalid options are reported when the type is hosted. They are
// not part of the state.
func SendsWith[S, E, T, R any, M interface {
	Message
	eventsourcing.Request[T, R]
}](
	name string, outbox func(*S) *Outbox[M], options Options,
	answered func(*S, *eventsourcing.Context[S, E, eventsourcing.None], Answered[M, R]) eventsourcing.Effect[S, E, eventsourcing.None],
) eventsourcing.Part[S, E] {
	return &hosting.PartDefinition[S, eventsourcing.SignalHandler[S, E]]{
		Name: name,
		Field: func(s *S) hosting.Part {
			o := outbox(s)
			o.options, o.answered = options, answeredSignal[M, R]
			return part[M]{o}
		},
		Signals: eventsourcing.Signals(eventsourcing.OnSignal(answered)),
	}
}

// answeredSignal makes the signal of an answer.
func answeredSignal[M Message, R any](a answer[M]) (hosting.Signal, error) {
	value, ok := a.value.(R)
	if !ok && a.value != nil {
		return nil, fmt.Errorf("%w: %v answered %T to %T", eventsourcing.ErrWrongReply, a.to, a.value, a.message)
	}
	return Answered[M, R]{Nr: a.nr, To: a.to, Message: a.message, Attempt: a.attempt, Value: value, Err: a.err}, nil
}

// Deliver records a delivery, and returns its number. It is called in Apply. The message is sent
// when the event that is being applied is durable, and again and again until Confirm; the
// destination's type is looked up at each transmission. In a recovery nothing is sent before its
// end.
//
// Deliver takes messages beyond Options.MaxUnconfirmed too: an event that is persisted can't be
// refused. See Room.
func (o *Outbox[M]) Deliver(to eventsourcing.Address, message M) uint64 {
	return o.outgoing().Add(o.event, parcel[M]{Type: to.Type, ID: to.ID, Message: stamped(message, Header{}), Metadata: o.metadata})
}

// Confirm ends a delivery, carried out or not. It is called in Apply. It is true the first time,
// and false for a number that is not to be confirmed.
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

// Room returns nil if n more deliveries keep within Options.MaxUnconfirmed, and else an error that
// matches ErrFull. A handler calls it before it persists events that deliver.
func (o *Outbox[M]) Room(n int) error {
	most := o.options.withDefaults().MaxUnconfirmed
	if have := o.Unconfirmed(); n > most-have {
		return fmt.Errorf("%w: %s holds %d of %d, %d more do not fit", ErrFull, o.sender(), have, most, n)
	}
	return nil
}

// Pending returns the delivery with this number, and false if it is not unconfirmed.
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

// All yields the unconfirmed deliveries in the order of their numbers. The outbox must not be
// changed meanwhile.
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
		o.window = outbox.NewOutgoing[parcel[M]](o.options.withDefaults().window())
	}
	return o.window
}

func (o *Outbox[M]) sender() string { return o.id + "#" + o.field }

// part implements hosting.Part.
type part[M Message] struct{ *Outbox[M] }

// Field implements hosting.Part.
func (o part[M]) Field() any { return o.Outbox }

// Attach implements hosting.Part.
func (o part[M]) Attach(id, name string) error {
	o.id, o.field = id, name
	var m M
	if _, ok := any(m).(interface{ setHeader(Header) }); ok {
		return fmt.Errorf("%w: a delivery.Outbox[%T]: the message has to be a struct that embeds delivery.Header by value", eventsourcing.ErrInvalid, m)
	}
	if err := o.options.withDefaults().validate(); err != nil {
		return err
	}
	if _, err := stateCodec[outboxState[M]](); err != nil {
		return fmt.Errorf("%w: the messages can't be stored: %w", eventsourcing.ErrInvalid, err)
	}
	return nil
}

// Applying implements hosting.Part.
func (o part[M]) Applying(seqNr uint64, metadata []byte) { o.event, o.metadata = seqNr, metadata }

// Recovered implements hosting.Part.
func (o part[M]) Recovered(now time.Time) hosting.Outgoing {
	return o.send(o.outgoing().Recovered(now))
}

// Durable implements hosting.Part.
func (o part[M]) Durable(seqNr uint64, now time.Time) hosting.Outgoing {
	return o.send(o.outgoing().Durable(seqNr, now))
}

// Tick implements hosting.Part.
func (o part[M]) Tick(now time.Time) hosting.Outgoing { return o.send(o.outgoing().Tick(now)) }

// Next implements hosting.Part.
func (o part[M]) Next() time.Time {
	if o.window == nil {
		return time.Time{}
	}
	return o.window.Next()
}

// Admit implements hosting.Part: an answer to a confirmed delivery is dropped, and an answer that
// did not decide concerns only the outbox.
func (o part[M]) Admit(signal hosting.Signal) bool {
	switch s := signal.(type) {
	case interface{ delivery() (string, uint64) }:
		if sender, nr := s.delivery(); sender == o.sender() {
			_, pending := o.Pending(nr)
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
func (o *Outbox[M]) send(e outbox.Effects[parcel[M]]) hosting.Outgoing {
	var out hosting.Outgoing
	if len(e.Sends) == 0 {
		return out
	}
	h := Header{Sender: o.sender(), Floor: e.Floor}
	out.Sends = make([]hosting.Send, len(e.Sends))
	for i := range e.Sends {
		h.Nr = e.Sends[i].Nr
		out.Sends[i] = o.transmission(&e.Sends[i], h)
	}
	if len(e.Warn) > 0 {
		w := Unconfirmed[M]{Deliveries: make([]Delivery[M], len(e.Warn))}
		for i := range e.Warn {
			w.Deliveries[i] = o.delivery(&e.Warn[i])
		}
		out.Signals = []hosting.Signal{w}
	}
	return out
}

func (o *Outbox[M]) transmission(s *outbox.Sending[parcel[M]], h Header) hosting.Send {
	message, to, attempt, signal := stamped(s.Item.Message, h), s.Item.to(), s.Attempt, o.answered
	answered := func(value any, err error) hosting.Signal {
		if refused(err) {
			value = nil
		}
		if err == nil || refused(err) {
			answered, wrong := signal(answer[M]{nr: h.Nr, to: to, message: message, attempt: attempt, value: value, err: err})
			if wrong == nil {
				return answered
			}
			err = wrong
		}
		return failure{sender: h.Sender, nr: h.Nr, err: err}
	}
	return hosting.Send{Type: to.Type, ID: to.ID, Command: message, Attempt: attempt, Metadata: s.Item.Metadata, Answered: answered}
}

// refused reports whether an error is the destination's decision. All others say nothing about the
// delivery, which may even be carried out: it is sent again.
func refused(err error) bool {
	r, ok := errors.AsType[*eventsourcing.Refusal](err)
	return ok && r.Code() != "internal" && !strings.HasPrefix(r.Code(), "refold/")
}
