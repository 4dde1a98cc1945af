// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/outbox"
)

// Outbox sends commands to other entities until they are confirmed. It is an exported field of the
// state's struct, derived from the events and saved in snapshots. Sends connects it to the runtime.
// The zero value is empty.
//
// M is the type of the commands, a struct that embeds Header. A message must not be changed after it
// was passed to Deliver.
//
// An Outbox is used only by its entity: Deliver and Confirm in Apply, the other methods anywhere.
type Outbox[M Message] struct {
	needsPart //nolint:unused // see type needsPart

	id, field string
	options   Options
	event     uint64 // sequence number of the event that is being applied
	metadata  []byte // of that event
	window    *outbox.Outgoing[envelope[M]]
	marked    int              // Unconfirmed at the last call of Mark
	unknown   uint64           // a number that was confirmed and is not assigned, 0 for none
	failures  map[uint64]error // the last replies that did not decide, by delivery
	// answered returns the signal of a reply. It is nil until the outbox is attached.
	answered func(d Delivery[M], value any) (hosting.Signal, error)
}

// needsPart lets eventsourcing.Host refuse a state with an Outbox that has no entry in Type.Parts.
type needsPart = hosting.NeedsPart //nolint:unused // its method makes an Outbox a hosting.PartField

var _ hosting.PartField = (*Outbox[Message])(nil)

type envelope[M Message] struct {
	Type    string `msgpack:"t"`
	ID      string `msgpack:"d"`
	Message M      `msgpack:"m"`
	// Metadata is the metadata of the event that requests the delivery.
	Metadata []byte `msgpack:"x,omitempty"`
}

// Sends returns the entry of Type.Parts for an outbox, with the handler of its answers. The name is
// stored as a part of the sender's identity: it must be unique in the Type and must never change.
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

// SendsWith is Sends with options, which are not stored. Invalid options are reported when the type
// is hosted.
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

// answeredSignal returns the signal of a reply to a transmission.
func answeredSignal[M Message, R any](d Delivery[M], value any) (hosting.Signal, error) {
	reply, ok := value.(R)
	if !ok && value != nil {
		return nil, fmt.Errorf("%w: %v answered %T to %T", eventsourcing.ErrWrongReply, d.To, value, d.Message)
	}
	return Answered[M, R]{Nr: d.Nr, To: d.To, Message: d.Message, Attempt: d.Attempts, Value: reply, Err: d.Err}, nil
}

// Deliver adds a delivery and returns its number. It is called in Apply. The message is sent when the
// event that is being applied is durable, and again at each interval until Confirm. In a recovery the
// message is not sent before the end of the recovery.
//
// If the events of a command exceed Options.MaxUnconfirmed, the command is refused with ErrFull and
// nothing is stored. A refusal costs a recovery of the entity, which a handler avoids with Room. The
// handlers of signals exceed the limit if necessary, because the effects of a signal can't be refused.
func (o *Outbox[M]) Deliver(to eventsourcing.Address, message M) uint64 {
	return o.outgoing().Add(o.event, envelope[M]{Type: to.Type, ID: to.ID, Message: withHeader(message, Header{}), Metadata: o.metadata})
}

// Confirm ends a delivery that was carried out or refused. It is called in Apply. It returns false if
// no delivery with this number is unconfirmed.
//
// A number above that of the last delivery is an error, because the deliveries then have other numbers
// than their receivers know. A command that persists such an event is refused with an error that matches
// eventsourcing.ErrInvalid. A recovery that finds such an event fails, and nothing is sent.
func (o *Outbox[M]) Confirm(nr uint64) bool {
	delete(o.failures, nr)
	if nr > o.outgoing().Last() {
		o.unknown = nr
	}
	return o.outgoing().Confirm(o.event, nr)
}

// Unconfirmed returns the number of unconfirmed deliveries.
func (o *Outbox[M]) Unconfirmed() int {
	if o.window == nil {
		return 0
	}
	return o.window.Open()
}

// Room returns nil if n further deliveries are within Options.MaxUnconfirmed, otherwise an error that
// matches ErrFull. A handler calls it before it persists events that deliver.
func (o *Outbox[M]) Room(n int) error {
	limit := o.options.withDefaults().MaxUnconfirmed
	if have := o.Unconfirmed(); n > limit-have {
		return fmt.Errorf("%w: %s: no room for %d deliveries, %d of at most %d are unconfirmed", ErrFull, o.sender(), n, have, limit)
	}
	return nil
}

// Pending returns the unconfirmed delivery with this number, and false if there is none.
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

// All yields the unconfirmed deliveries in the order of their numbers. The outbox must not be changed
// during the iteration.
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

func (o *Outbox[M]) delivery(s *outbox.Sending[envelope[M]]) Delivery[M] {
	to := eventsourcing.Address{Type: s.Item.Type, ID: s.Item.ID}
	return Delivery[M]{Nr: s.Nr, To: to, Message: s.Item.Message, Attempts: s.Attempt, Err: o.failures[s.Nr]}
}

func (o *Outbox[M]) outgoing() *outbox.Outgoing[envelope[M]] {
	if o.window == nil {
		o.window = outbox.NewOutgoing[envelope[M]](o.options.withDefaults().window())
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
		return fmt.Errorf("%w: delivery.Outbox[%T]: the message must be a struct that embeds delivery.Header by value", eventsourcing.ErrInvalid, m)
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

// Mark implements hosting.Part.
func (o part[M]) Mark() { o.marked, o.unknown = o.Unconfirmed(), 0 }

// Replayed implements hosting.Part.
func (o part[M]) Replayed() error {
	if o.unknown == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: delivery %d is confirmed, the last one is %d", eventsourcing.ErrInvalid, o.sender(), o.unknown, o.outgoing().Last())
}

// Check implements hosting.Part. It accepts a command that adds no delivery, even beyond the limit,
// which may have been lowered.
func (o part[M]) Check() error {
	if err := o.Replayed(); err != nil {
		return err
	}
	have, limit := o.Unconfirmed(), o.options.withDefaults().MaxUnconfirmed
	if have > limit && have > o.marked {
		return fmt.Errorf("%w: %s: the command leads to %d unconfirmed deliveries, at most %d are allowed", ErrFull, o.sender(), have, limit)
	}
	return nil
}

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

// HasWork implements hosting.Part.
func (o part[M]) HasWork() bool { return o.Unconfirmed() > 0 }

// Deliveries implements hosting.Deliverer.
func (o part[M]) Deliveries(limit int) (list []hosting.Delivery, total int) {
	for d := range o.All() {
		if len(list) >= limit {
			break
		}
		payload, err := encode("message", &d.Message)
		if err != nil {
			payload = nil
		}
		list = append(list, hosting.Delivery{
			Nr: d.Nr, Type: d.To.Type, ID: d.To.ID, Command: reflect.TypeFor[M]().String(), Payload: payload, Attempts: d.Attempts, Err: d.Err,
		})
	}
	return list, o.Unconfirmed()
}

// Admit implements hosting.Part: it drops the answer to a confirmed delivery. A reply that did not
// decide on the delivery is recorded and not passed to the entity.
func (o part[M]) Admit(signal hosting.Signal) bool {
	switch s := signal.(type) {
	case interface{ delivery() (string, uint64) }:
		if sender, nr := s.delivery(); sender == o.sender() {
			_, pending := o.Pending(nr)
			return pending
		}
	case failure:
		if s.sender != o.sender() {
			return true
		}
		if _, pending := o.Pending(s.nr); pending {
			if o.failures == nil {
				o.failures = make(map[uint64]error)
			}
			o.failures[s.nr] = s.err
		}
		return false
	}
	return true
}

func (o *Outbox[M]) send(e outbox.Effects[envelope[M]]) hosting.Outgoing {
	var out hosting.Outgoing
	if len(e.Sends) == 0 {
		return out
	}
	out.Sends = make([]hosting.Send, len(e.Sends))
	for i := range e.Sends {
		out.Sends[i] = o.transmission(&e.Sends[i], e.Floor)
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

func (o *Outbox[M]) transmission(s *outbox.Sending[envelope[M]], floor uint64) hosting.Send {
	h := Header{Sender: o.sender(), Nr: s.Nr, Floor: floor}
	d, signal := o.delivery(s), o.answered
	d.Message = withHeader(d.Message, h)
	answered := func(value any, err error) hosting.Signal {
		if refused(err) {
			value = nil
		}
		if err == nil || refused(err) {
			d := d
			d.Err = err
			answered, wrong := signal(d, value)
			if wrong == nil {
				return answered
			}
			err = wrong
		}
		return failure{sender: h.Sender, nr: h.Nr, err: err}
	}
	return hosting.Send{Type: s.Item.Type, ID: s.Item.ID, Command: d.Message, Attempt: s.Attempt, Metadata: s.Item.Metadata, Answered: answered}
}

// refused reports whether an error is a decision of the destination. After any other error the
// delivery may or may not have been carried out, so it is sent again. A refusal decides only if a handler
// has returned it: the refusal of a codec may be the cause of a failed recovery.
func refused(err error) bool {
	r, ok := errors.AsType[*eventsourcing.Refusal](err)
	return ok && eventsourcing.StatusOf(err).Outcome == eventsourcing.DoneByEntity && r.Code() != "internal" && !strings.HasPrefix(r.Code(), "refold/")
}
