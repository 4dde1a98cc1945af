// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package outbox holds both ends of at-least-once delivery as state machines without a clock, a
// goroutine or I/O. Outgoing numbers the deliveries of one sender and schedules their
// transmissions. Incoming keeps the outcomes of one sender's deliveries at a receiver.
//
//	numbers:   1  2  3  4  5  6  7  8
//	           x  x  .  x  .  .  o  o
//	                 |           |
//	                 floor       not durable yet, not sent
//	  x confirmed   . sent, unconfirmed   o recorded
//
// The states of both ends are derived from events. An Outgoing also applies events that are not
// durable yet and may still be undone. It therefore sends a delivery only after the event that
// requests it is durable, and raises its floor above a delivery only after the event that confirms
// it is durable.
//
// The types are not safe for concurrent use.
package outbox

import (
	"fmt"
	"iter"
	"slices"
	"sort"
	"time"
)

// Config is the configuration of an Outgoing. All fields are required.
type Config struct {
	// Interval is the minimum age of the last transmission of an unconfirmed delivery before the
	// next one. The time between two ticks is half of Interval.
	Interval time.Duration
	// Burst is the maximum number of transmissions per tick and at the end of a recovery.
	Burst int
	// WarnAfter is the number of transmissions of a delivery without a warning.
	WarnAfter int
}

// Entry is an unconfirmed delivery. Nr and Item are state; the other fields belong to this process.
type Entry[T any] struct {
	// Nr is the delivery number.
	Nr uint64 `msgpack:"n"`
	// Item is the message.
	Item T `msgpack:"i"`

	event    uint64 `refold:"-"` // of the event that recorded it, 0 for a restored entry
	sent     int64  `refold:"-"` // Unix nanoseconds of the last transmission
	attempts int    `refold:"-"` // transmissions so far
	fate     fate   `refold:"-"`
}

type fate uint8

const (
	open      fate = iota
	confirmed      // by an event that is not durable yet
	settled        // a hole
)

// Sending is one transmission.
type Sending[T any] struct {
	Nr uint64
	// Attempt counts the transmissions of this delivery by this incarnation of the sender, from 1.
	Attempt int
	Item    T
}

// Effects are the requested actions of an Outgoing, in the order of the fields.
type Effects[T any] struct {
	// Floor accompanies each of Sends: every delivery with a lower number is durably confirmed.
	Floor uint64
	// Sends are transmissions, in the order of their numbers.
	Sends []Sending[T]
	// Warn lists the transmissions in Sends that exceed Config.WarnAfter for the first time.
	Warn []Sending[T]
}

// Outgoing is the window of one sender. Make it with NewOutgoing.
//
// Add and Confirm apply events, during a recovery and afterwards. No transmission happens before
// Recovered.
type Outgoing[T any] struct {
	cfg       Config
	last      uint64         // the last assigned number
	entries   []Entry[T]     // with ascending numbers; the first is not a hole
	holes     int            // settled entries
	open      int            // open entries
	settling  []confirmation // in the order of their events
	recovered bool
	mark      uint64    // deliveries up to this number are durable
	resume    uint64    // first number of the next burst, 0 for the beginning
	tick      time.Time // the next tick, zero for none
}

// confirmation is a confirmation that is not durable yet.
type confirmation struct{ nr, event uint64 }

// NewOutgoing returns an empty window.
func NewOutgoing[T any](cfg Config) *Outgoing[T] { return &Outgoing[T]{cfg: cfg} }

// Add records a delivery requested by the event with this sequence number and returns its delivery
// number: 1 for the first, and one more for each further delivery.
func (o *Outgoing[T]) Add(event uint64, item T) uint64 {
	o.last++
	o.entries = append(o.entries, Entry[T]{Nr: o.last, Item: item, event: event})
	o.open++
	return o.last
}

// Confirm records that the event with this sequence number confirms a delivery. The delivery is not
// sent again. Confirm returns false if no delivery with the number nr is unconfirmed.
func (o *Outgoing[T]) Confirm(event, nr uint64) bool {
	e := o.find(nr)
	if e == nil || e.fate != open {
		return false
	}
	o.open--
	if o.open == 0 {
		o.tick = time.Time{}
	}
	if !o.recovered { // replayed events are durable
		o.settle(e)
		o.trim()
		return true
	}
	e.fate = confirmed
	o.settling = append(o.settling, confirmation{nr: nr, event: event})
	return true
}

// Recovered starts transmission with the unconfirmed deliveries, up to a burst.
func (o *Outgoing[T]) Recovered(now time.Time) Effects[T] {
	o.recovered, o.mark = true, o.last
	out := o.burst(now)
	o.startTicks(now)
	return out
}

// Durable records that all events up to this sequence number are stored and sends the deliveries
// that they request. It has no effect before Recovered.
func (o *Outgoing[T]) Durable(event uint64, now time.Time) Effects[T] {
	if !o.recovered {
		return Effects[T]{}
	}
	n := 0
	for ; n < len(o.settling) && o.settling[n].event <= event; n++ {
		if e := o.find(o.settling[n].nr); e != nil {
			o.settle(e)
		}
	}
	o.settling = slices.Delete(o.settling, 0, n)
	o.trim()

	out := Effects[T]{Floor: o.Floor()}
	for i := o.index(o.mark + 1); i < len(o.entries) && o.entries[i].event <= event; i++ {
		e := &o.entries[i]
		o.mark = e.Nr
		if e.fate == open {
			o.send(e, now, &out)
		}
	}
	if len(out.Sends) > 0 {
		o.startTicks(now)
	}
	return out
}

// Tick sends overdue deliveries, up to a burst, if now is not before Next. The next burst starts
// where this one ends, so every delivery is sent eventually.
func (o *Outgoing[T]) Tick(now time.Time) Effects[T] {
	if next := o.Next(); next.IsZero() || now.Before(next) {
		return Effects[T]{}
	}
	out := o.burst(now)
	o.tick = time.Time{}
	o.startTicks(now)
	return out
}

// Next returns the time of the next Tick, zero for none.
func (o *Outgoing[T]) Next() time.Time { return o.tick }

// Last returns the last assigned number, 0 for none.
func (o *Outgoing[T]) Last() uint64 { return o.last }

// Open returns the number of unconfirmed deliveries.
func (o *Outgoing[T]) Open() int { return o.open }

// Find returns the unconfirmed delivery with this number. Attempt is the number of transmissions so
// far.
func (o *Outgoing[T]) Find(nr uint64) (Sending[T], bool) {
	e := o.find(nr)
	if e == nil || e.fate != open {
		return Sending[T]{}, false
	}
	return e.sending(), true
}

// Floor returns the number below which every delivery is durably confirmed.
func (o *Outgoing[T]) Floor() uint64 {
	if len(o.entries) == 0 {
		return o.last + 1
	}
	return o.entries[0].Nr
}

// All yields the unconfirmed deliveries in ascending order. Attempt is the number of transmissions
// so far.
func (o *Outgoing[T]) All() iter.Seq[Sending[T]] {
	return func(yield func(Sending[T]) bool) {
		for i := range o.entries {
			if e := &o.entries[i]; e.fate == open && !yield(e.sending()) {
				return
			}
		}
	}
}

// State returns the contents of a snapshot: the last assigned number and the unconfirmed deliveries
// in order. The slice is read-only and valid until the next call of any method.
func (o *Outgoing[T]) State() (last uint64, entries []Entry[T]) {
	if o.open == len(o.entries) {
		return o.last, o.entries
	}
	entries = make([]Entry[T], 0, o.open)
	for i := range o.entries {
		if o.entries[i].fate == open {
			entries = append(entries, o.entries[i])
		}
	}
	return o.last, entries
}

// Restore returns a window with the given State and takes ownership of the slice. All deliveries
// count as never sent and are due.
func Restore[T any](cfg Config, last uint64, entries []Entry[T]) (*Outgoing[T], error) {
	before := uint64(0)
	for i := range entries {
		e := &entries[i]
		if e.Nr <= before || e.Nr > last {
			return nil, fmt.Errorf("delivery %d follows %d of %d", e.Nr, before, last)
		}
		before = e.Nr
		*e = Entry[T]{Nr: e.Nr, Item: e.Item}
	}
	return &Outgoing[T]{cfg: cfg, last: last, entries: entries, open: len(entries)}, nil
}

// burst sends overdue deliveries. It starts where the last burst ended and continues at the front.
func (o *Outgoing[T]) burst(now time.Time) Effects[T] {
	out := Effects[T]{Floor: o.Floor()}
	from := o.resume
	o.resume = 0
	if !o.sendDue(from, o.mark+1, now, &out) || from == 0 {
		return out
	}
	sends, warn := len(out.Sends), len(out.Warn)
	o.sendDue(0, from, now, &out)
	out.Sends = slices.Concat(out.Sends[sends:], out.Sends[:sends])
	out.Warn = slices.Concat(out.Warn[warn:], out.Warn[:warn])
	return out
}

// sendDue sends overdue deliveries with numbers from up to, but not including, before. It returns
// false if the burst is full.
func (o *Outgoing[T]) sendDue(from, before uint64, now time.Time, out *Effects[T]) bool {
	for i := o.index(from); i < len(o.entries) && o.entries[i].Nr < before; i++ {
		e := &o.entries[i]
		if e.fate != open || !e.due(now, o.cfg.Interval) {
			continue
		}
		if len(out.Sends) == o.cfg.Burst {
			o.resume = e.Nr
			return false
		}
		o.send(e, now, out)
	}
	return true
}

func (o *Outgoing[T]) send(e *Entry[T], now time.Time, out *Effects[T]) {
	e.sent = now.UnixNano()
	e.attempts++
	out.Sends = append(out.Sends, e.sending())
	if e.attempts == o.cfg.WarnAfter+1 {
		out.Warn = append(out.Warn, e.sending())
	}
}

// startTicks schedules the next tick if none is scheduled and a delivery is unconfirmed.
func (o *Outgoing[T]) startTicks(now time.Time) {
	if o.open > 0 && o.tick.IsZero() {
		o.tick = now.Add(o.cfg.Interval / 2)
	}
}

// due reports whether a transmission is due. A clock that was set back does not delay the
// transmission.
func (e *Entry[T]) due(now time.Time, interval time.Duration) bool {
	if e.attempts == 0 {
		return true
	}
	age := now.UnixNano() - e.sent
	return age >= int64(interval) || age < 0
}

func (e *Entry[T]) sending() Sending[T] {
	return Sending[T]{Nr: e.Nr, Attempt: e.attempts, Item: e.Item}
}

// index returns the index of the first entry with a number of at least nr.
func (o *Outgoing[T]) index(nr uint64) int {
	return sort.Search(len(o.entries), func(i int) bool { return o.entries[i].Nr >= nr })
}

// find returns the entry with this number, nil if there is none.
func (o *Outgoing[T]) find(nr uint64) *Entry[T] {
	if i := o.index(nr); i < len(o.entries) && o.entries[i].Nr == nr {
		return &o.entries[i]
	}
	return nil
}

// settle turns an entry into a hole.
func (o *Outgoing[T]) settle(e *Entry[T]) {
	*e = Entry[T]{Nr: e.Nr, fate: settled}
	o.holes++
}

// trim removes the holes at the front, and compacts the slice when most entries are holes.
func (o *Outgoing[T]) trim() {
	n := 0
	for n < len(o.entries) && o.entries[n].fate == settled {
		n++
	}
	o.holes -= n
	o.entries = o.entries[n:]
	if len(o.entries) == 0 {
		o.entries = nil
	} else if o.holes > 32 && o.holes > len(o.entries)/2 {
		kept := slices.DeleteFunc(o.entries, func(e Entry[T]) bool { return e.fate == settled })
		o.entries, o.holes = slices.Clone(kept), 0 // the old array may be much larger
	}
}
