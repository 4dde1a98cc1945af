// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	// ErrNoQueries says that a journal does not implement Querier, or IDLister
	// where that is what is needed.
	ErrNoQueries = errors.New("journal: no queries")
	// ErrOffset says that an offset was not made by this kind of journal.
	ErrOffset = errors.New("journal: invalid offset")
)

// Offset is a position in the one order that a journal gives to the events of
// all its persistence IDs. It is printable, has at most 64 bytes, and means
// something to the journal that made it only. Empty is the position before the
// first event.
//
// Of two offsets of one journal the shorter one lies before, and of the same
// length the bytewise smaller one: decimal numbers do, with the same prefix.
type Offset string

// Compare returns -1 if o lies before p, 0 if they are the same position and 1
// if o lies behind p. Both must be offsets of one journal.
func (o Offset) Compare(p Offset) int {
	return cmp.Or(cmp.Compare(len(o), len(p)), strings.Compare(string(o), string(p)))
}

// Criteria say which events a query reads: those that match all fields that are
// set. The zero value reads all events.
//
// Fences (Event.IsFence) are never read, nor are events that were deleted. Events
// of one persistence ID come in the order of their sequence numbers.
type Criteria struct {
	// Type reads only entities of this type, those whose ID begins with Type
	// and "|". Empty reads all.
	Type string
	// Tag reads only events with this tag. Empty reads all.
	Tag string
	// Slices reads only persistence IDs in these slices; see SliceOf. The zero
	// value reads all.
	Slices Slices
}

// Check returns an error that matches ErrInvalid for criteria that no journal
// accepts.
func (c Criteria) Check() error {
	if err := c.Slices.check(); err != nil {
		return fmt.Errorf("%w: Criteria.Slices: %w", ErrInvalid, err)
	}
	switch {
	case strings.Contains(c.Type, "|"):
		return fmt.Errorf("%w: Criteria.Type: %.40q: the name of a type has no |", ErrInvalid, c.Type)
	case !isText(c.Type):
		return fmt.Errorf("%w: Criteria.Type: %.40q is not UTF-8 without NUL", ErrInvalid, c.Type)
	case !isText(c.Tag):
		return fmt.Errorf("%w: Criteria.Tag: %.40q is not UTF-8 without NUL", ErrInvalid, c.Tag)
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Matches reports whether an event of a persistence ID is one to read, as far as
// its type, its tags and its slice tell.
func (c Criteria) Matches(id string, tags []string) bool {
	return c.MatchesID(id) && (c.Tag == "" || slices.Contains(tags, c.Tag))
}

// MatchesID reports whether the events of a persistence ID are ones to read,
// their tags aside.
func (c Criteria) MatchesID(id string) bool {
	if n := len(c.Type); n > 0 && (len(id) <= n || id[n] != '|' || id[:n] != c.Type) {
		return false
	}
	return c.Slices.Count == 0 || c.Slices.Contains(SliceOf(id))
}

// Envelope is one event that a query read, and where it stands.
type Envelope struct {
	Event
	// ID is its persistence ID.
	ID string
	// Offset is its position. Reading on after it yields what follows. No two
	// events have the same one.
	Offset Offset
}

// Page is what one read of a query found.
type Page struct {
	// Events are in the order of their offsets.
	Events []Envelope
	// Next is the position to read on after, never before the one that was asked
	// about. It lies behind everything that was looked at, so that a reader who
	// keeps it sees nothing twice and looks at nothing twice.
	Next Offset
	// More says that there is more to look at right away; Next lies behind the
	// position that was asked about then.
	More bool
}

// Querier is implemented by a journal that can be read across persistence IDs,
// in one order. Readers use Current, Live and their relatives, which are made
// from it.
//
// The order never changes: once a read has passed a position, no event ever
// appears before it, however late a transaction commits. So a reader that goes
// on after the last offset it has seen gets every event exactly once. An event
// may be invisible for a moment after its append has returned, for as long as
// an earlier one may still appear before it.
type Querier interface {
	// Query reads the events that match behind a position: at most 1,000 of
	// them, or 1 MiB of payload and metadata, where the event that exceeds it may
	// still be there. It looks at a bounded number of records and may return a page
	// without events that has More set. It holds nothing when it has returned. The
	// error matches ErrInvalid for bad criteria, ErrOffset for a bad offset, and
	// the cause of ctx when that ended.
	Query(ctx context.Context, c Criteria, after Offset) (Page, error)

	// End returns the position behind all events that a Query can see now.
	End(ctx context.Context) (Offset, error)

	// Await returns nil when there may be something to see behind a position: at
	// once if there is, soon after an append, also of another process, and now
	// and then without one. The error matches the cause of ctx when that ends,
	// ErrClosed when the journal is closed, and ErrOffset for a bad offset.
	Await(ctx context.Context, after Offset) error
}
