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
	"unicode/utf16"
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

// ReservedPrefix begins the type names of records that Refold itself stores, such as the state of a
// cluster. Applications must not use persistence IDs with this prefix. Queries return these records
// only if Criteria.Types names their type; IDLister lists them like all others.
const ReservedPrefix = "refold."

// Criteria selects the events of a query: those that match all non-zero fields. The zero value
// selects the events of all entities.
//
// Fences (Event.IsFence) and deleted events are never selected. Events of one persistence ID are
// returned in the order of their sequence numbers.
type Criteria struct {
	// Types selects entities of these types: persistence IDs that begin with one of them and "|".
	// Empty selects all persistence IDs that do not begin with ReservedPrefix. The slice must not
	// change during a query.
	Types []string
	// Tag reads only events with this tag. Empty reads all.
	Tag string
	// Slices reads only the events of persistence IDs in these slices; see SliceOf. The zero value
	// reads all.
	Slices Slices
}

// Check returns an error that matches ErrInvalid for criteria that no journal accepts.
func (c Criteria) Check() error {
	if err := c.Slices.check(); err != nil {
		return fmt.Errorf("%w: Criteria.Slices: %w", ErrInvalid, err)
	}
	for _, name := range c.Types {
		switch {
		case name == "":
			return fmt.Errorf("%w: Criteria.Types: a type name is empty", ErrInvalid)
		case strings.Contains(name, "|"):
			return fmt.Errorf("%w: Criteria.Types: %.40q: a type name must not contain |", ErrInvalid, name)
		case !isText(name):
			return fmt.Errorf("%w: Criteria.Types: %.40q is not UTF-8 without NUL", ErrInvalid, name)
		}
	}
	if !isText(c.Tag) {
		return fmt.Errorf("%w: Criteria.Tag: %.40q is not UTF-8 without NUL", ErrInvalid, c.Tag)
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// IsReserved reports whether a persistence ID begins with ReservedPrefix.
func IsReserved(id string) bool { return strings.HasPrefix(id, ReservedPrefix) }

// Matches reports whether an event with the given tags of a persistence ID is selected.
func (c Criteria) Matches(id string, tags []string) bool {
	if len(c.Types) == 0 {
		if IsReserved(id) {
			return false
		}
	} else if name, _, found := strings.Cut(id, "|"); !found || !slices.Contains(c.Types, name) {
		return false
	}
	if c.Tag != "" && !slices.Contains(tags, c.Tag) {
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
	// More is set if another page can be read immediately. In this case Next is after the requested
	// position.
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
	// offset, and, if ctx has ended, the cause of ctx.
	Query(ctx context.Context, c Criteria, after Offset) (Page, error)

	// End returns the position after all events that Query can see now.
	End(ctx context.Context) (Offset, error)

	// Await returns nil when events may be visible after a position: immediately if such events
	// exist, otherwise soon after an append by this or another process. It may also return nil
	// without new events. A fence need not end it. The error matches the cause of ctx if ctx has
	// ended, ErrClosed if the journal is closed, and ErrOffset for an invalid offset.
	Await(ctx context.Context, after Offset) error
}

// SliceCount is the number of slices that persistence IDs are spread over. It never changes.
const SliceCount = 1024

// SliceOf returns the slice of a persistence ID, from 0 to 1,023. It is the absolute value of h %
// 1024, where h is the string hash of Java: the sum of c[i]*31^(n-1-i) over UTF-16 units, as a
// signed 32-bit number. Akka Persistence computes the same slices, so journals can be migrated.
func SliceOf(id string) int {
	var h int32
	for _, r := range id {
		if r1, r2 := utf16.EncodeRune(r); r1 != '\uFFFD' {
			h = h*31 + r1
			r = r2
		}
		h = h*31 + r
	}
	slice := int(h % SliceCount)
	return max(slice, -slice)
}

// Slices is a range of slices. The zero value contains all slices.
type Slices struct {
	// First is the first slice of the range.
	First int
	// Count is the number of slices in the range. 0 means all slices and requires First to be 0.
	Count int
}

// SplitSlices divides all slices into n ranges of the same size, for n workers. The error matches
// ErrInvalid if n does not divide 1,024.
func SplitSlices(n int) ([]Slices, error) {
	if n < 1 || SliceCount%n != 0 {
		return nil, fmt.Errorf("%w: %d workers: the number has to divide %d slices", ErrInvalid, n, SliceCount)
	}
	ranges := make([]Slices, n)
	for i := range ranges {
		ranges[i] = Slices{First: i * SliceCount / n, Count: SliceCount / n}
	}
	return ranges, nil
}

// Contains reports whether a slice is in the range.
func (s Slices) Contains(slice int) bool {
	first, last := s.Bounds()
	return first <= slice && slice <= last
}

// Bounds returns the first and the last slice of the range.
func (s Slices) Bounds() (first, last int) {
	if s.Count == 0 {
		return 0, SliceCount - 1
	}
	return s.First, s.First + s.Count - 1
}

// String returns the first and the last slice, as in "0-255".
func (s Slices) String() string {
	first, last := s.Bounds()
	return fmt.Sprintf("%d-%d", first, last)
}

func (s Slices) check() error {
	if s.First < 0 || s.Count < 0 || s.Count > SliceCount-s.First || s.Count == 0 && s.First != 0 {
		return fmt.Errorf("%d slices from %d on are not within 0-%d", s.Count, s.First, SliceCount-1)
	}
	return nil
}
