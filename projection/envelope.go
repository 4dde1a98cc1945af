// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"strings"
	"time"

	"github.com/refold-io/refold/journal"
)

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
