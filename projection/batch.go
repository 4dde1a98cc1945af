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

// item is one stored event. Decoding yields no, one or several events; the item is handled as a
// whole.
type item[E any] struct {
	events []Envelope[E]
	offset journal.Offset
	// err is the decoding error. Events then has one envelope, without the event.
	err error
}

type page[E any] struct {
	items []item[E]
	// number counts the pages of a reader.
	number int
	// first is the time of the first event, zero if the page has none.
	first time.Time
	// end is set if the journal has no further events.
	end bool
}

type decoder[E any] struct {
	events *codec.Registry
	values []any
}

// page decodes a page. An event that cannot be decoded becomes an item with an error. The last item
// has no events, only the position after all records that the query examined.
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

func (d *decoder[E]) decode(dst []Envelope[E], record *journal.Envelope) ([]Envelope[E], error) {
	var err error
	d.values, err = d.events.DecodeAppend(d.values[:0], record.Manifest, record.Payload)
	if err != nil {
		return dst, err
	}
	for part, value := range d.values {
		event, ok := value.(E)
		if !ok {
			return dst, fmt.Errorf("%w: %T is not an event type of this projection", ErrInvalid, value)
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

// Envelope is one decoded event with its position and metadata. Handlers must not change the data
// that it refers to.
type Envelope[E any] struct {
	// Event is the event, decoded and converted to its current type.
	Event E
	// ID is the persistence ID of the event, and SequenceNr its number in the history of this ID.
	ID         string
	SequenceNr uint64
	// Part numbers the events (0, 1, ...) that an upcaster made of one stored event. ID, SequenceNr
	// and Part identify an event.
	Part int
	// Time is the timestamp of the event, in UTC and whole microseconds.
	Time time.Time
	// Manifest is the stored name and version of the event.
	Manifest string
	// Tags and Metadata are stored with the event.
	Tags     []string
	Metadata []byte
	// Offset is the position of the event in the journal.
	Offset journal.Offset
}

// EntityID returns the ID of the entity: the part of the persistence ID after its first "|", or all
// of it if there is none.
func (e *Envelope[E]) EntityID() string {
	if _, entity, ok := strings.Cut(e.ID, "|"); ok {
		return entity
	}
	return e.ID
}
