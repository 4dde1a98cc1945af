// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"fmt"
	"strings"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
)

// item is one stored event on its way to the handler. None, one or several
// events were made of it; it is handled as a whole.
type item[E any] struct {
	events []Envelope[E]
	offset journal.Offset
	// err says that it could not be decoded. Events has one envelope then, without
	// the event.
	err error
}

// page is what a reader hands to its worker.
type page[E any] struct {
	items []item[E]
	// number counts the pages of a reader.
	number int
	// first is the time of its first event, zero if there is none.
	first time.Time
	// end says that the journal shows nothing behind it.
	end bool
}

// decoder makes pages of what a query has found.
type decoder[E any] struct {
	events *codec.Registry
	values []any
}

// page decodes. What can't be decoded becomes an item that says so. The last item
// has no events, only the position behind all that was looked at.
func (d *decoder[E]) page(read journal.Page) page[E] {
	p := page[E]{items: make([]item[E], 0, len(read.Events)+1), end: !read.More}
	envelopes := make([]Envelope[E], 0, len(read.Events))
	for i := range read.Events {
		record := &read.Events[i]
		start := len(envelopes)
		var err error
		envelopes, err = d.decode(envelopes, record)
		if err != nil {
			envelopes = append(envelopes[:start], envelope[E](record))
		}
		end := len(envelopes)
		p.items = append(p.items, item[E]{events: envelopes[start:end:end], offset: record.Offset, err: err})
		if p.first.IsZero() {
			p.first = record.Time
		}
	}
	p.items = append(p.items, item[E]{offset: read.Next})
	return p
}

// decode appends the events that a record stands for today.
func (d *decoder[E]) decode(dst []Envelope[E], record *journal.Envelope) ([]Envelope[E], error) {
	var err error
	d.values, err = d.events.DecodeAppend(d.values[:0], record.Manifest, record.Payload)
	if err != nil {
		return dst, err
	}
	for part, value := range d.values {
		event, ok := value.(E)
		if !ok {
			return dst, fmt.Errorf("%w: a %T is no event of this projection", ErrInvalid, value)
		}
		e := envelope[E](record)
		e.Event, e.Part = event, part
		dst = append(dst, e)
	}
	return dst, nil
}

func envelope[E any](record *journal.Envelope) Envelope[E] {
	return Envelope[E]{
		ID: record.ID, SequenceNr: record.SequenceNr, Time: record.Time, Manifest: record.Manifest,
		Tags: record.Tags, Metadata: record.Metadata, Offset: record.Offset,
	}
}

// Envelope is what a journal.Envelope is to a handler: one event, decoded, and
// what the journal knows about it. Handlers must not change what it refers to.
type Envelope[E any] struct {
	// Event is the event, decoded and brought up to date.
	Event E
	// ID is the persistence ID it belongs to, and SequenceNr its number there.
	ID         string
	SequenceNr uint64
	// Part tells the events apart that an upcaster made of one stored event: 0, 1
	// and so on. ID, SequenceNr and Part identify an event.
	Part int
	// Time is when it happened, in UTC and whole microseconds.
	Time time.Time
	// Manifest is the name and version it is stored under.
	Manifest string
	// Tags and Metadata are what it was stored with.
	Tags     []string
	Metadata []byte
	// Offset is its position in the journal.
	Offset journal.Offset
}

// EntityID returns the ID of the entity: what follows the first "|" of the
// persistence ID, or all of it if there is none.
func (e *Envelope[E]) EntityID() string {
	if _, entity, ok := strings.Cut(e.ID, "|"); ok {
		return entity
	}
	return e.ID
}
