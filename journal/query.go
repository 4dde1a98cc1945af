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
	// ErrNoQueries is returned for a journal that does not implement Querier, or IDLister where IDs
	// are listed.
	ErrNoQueries = errors.New("journal: no queries")
	// ErrOffset is returned for an offset that was not created by this kind of journal.
	ErrOffset = errors.New("journal: invalid offset")
)

// Offset is a position in the single order of all events of a journal. It is printable and has at
// most 64 bytes. Only the journal that created it can interpret it. The empty offset is the
// position before the first event.
//
// Of two offsets of one journal, the shorter one is first; of two with the same length, the
// bytewise smaller one is first. Decimal numbers with a common prefix satisfy this.
type Offset string

// Compare returns -1 if o is before p, 0 if both are the same position, and 1 if o is after p. Both
// must be offsets of one journal.
func (o Offset) Compare(p Offset) int {
	return cmp.Or(cmp.Compare(len(o), len(p)), strings.Compare(string(o), string(p)))
}

// Criteria selects the events of a query: those that match all non-zero fields. The zero value
// selects all events.
//
// Fences (Event.IsFence) and deleted events are never selected. Events of one persistence ID are
// returned in the order of their sequence numbers.
type Criteria struct {
	// Type selects entities of this type: persistence IDs that begin with Type and "|". Empty
	// selects all.
	Type string
	// Tag reads only events with this tag. Empty reads all.
	Tag string
	// Slices reads only persistence IDs in these slices; see SliceOf. The zero value reads all.
	Slices Slices
}

// Check returns an error that matches ErrInvalid for criteria that no journal accepts.
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

// Matches reports whether an event with the given tags of a persistence ID is selected.
func (c Criteria) Matches(id string, tags []string) bool {
	return c.MatchesID(id) && (c.Tag == "" || slices.Contains(tags, c.Tag))
}

// MatchesID reports whether Type and Slices select the persistence ID. It ignores Tag.
func (c Criteria) MatchesID(id string) bool {
	if n := len(c.Type); n > 0 && (len(id) <= n || id[n] != '|' || id[:n] != c.Type) {
		return false
	}
	return c.Slices.Count == 0 || c.Slices.Contains(SliceOf(id))
}

// Envelope is an event with its persistence ID and its position.
type Envelope struct {
	Event
	// ID is its persistence ID.
	ID string
	// Offset is the position of the event. Resume after it to receive the events that follow. Each
	// event has a different offset.
	Offset Offset
}

// Page is the result of one Query.
type Page struct {
	// Events are in the order of their offsets.
	Events []Envelope
	// Next is the position to resume after, never before the requested position. It is after every
	// record that the query examined, so a reader that resumes there examines no record twice.
	Next Offset
	// More is set if another page can be read immediately. Next is after the requested position
	// then.
	More bool
}

// Querier is implemented by journals that can be read across persistence IDs in one order.
// Applications use Current, Live and the related functions, which are built on it.
//
// The order never changes: after a read has passed a position, no event ever appears before that
// position, however late a transaction commits. A reader that resumes after the last offset it
// received therefore gets every event exactly once. An event may stay invisible for a moment after
// its append has returned, as long as an earlier event may still appear before it.
type Querier interface {
	// Query reads the selected events after a position: at most 1,000 events, or 1 MiB of payload
	// and metadata, including the event that exceeds this size. It examines a bounded number of
	// records and may return a page without events that has More set. It holds no resource after
	// its return. The error matches ErrInvalid for invalid criteria, ErrOffset for an invalid
	// offset, and the cause of ctx after its end.
	Query(ctx context.Context, c Criteria, after Offset) (Page, error)

	// End returns the position after all events that Query can see now.
	End(ctx context.Context) (Offset, error)

	// Await returns nil when events may be visible after a position: immediately if there are any,
	// soon after an append by this or another process, and occasionally without a reason. The error
	// matches the cause of ctx after its end, ErrClosed if the journal is closed, and ErrOffset for
	// an invalid offset.
	Await(ctx context.Context, after Offset) error
}
