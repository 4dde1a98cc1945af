// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxSequenceNr is the highest sequence number there can be. As the upper bound
// of a replay or a deletion it means "to the end".
const MaxSequenceNr uint64 = 1<<63 - 1

// Journal is an event log: one gapless sequence of records for each persistence
// ID. It is the SPI that a plugin implements and that journaltest checks.
//
// All methods are safe for concurrent use and fail with ErrClosed after Close;
// the slots of an Append match ErrNotSent as well then.
// A journal knows nothing about Go types: it stores the manifest and the
// payload of an event as they are.
type Journal interface {
	// Append stores each write atomically if w.Expect is the highest sequence
	// number of w.ID, which is 0 for an ID never written.
	//
	// Nil means that all writes are stored: durable, and visible to the next
	// Replay. Otherwise there is one slot per write:
	//
	//   - nil: stored.
	//   - *ConflictError, *RejectedError, ErrSkipped, ErrNotSent: surely not
	//     stored, now or later.
	//   - anything else: unknown. The write may be stored, now or later.
	//
	// Writes of one ID are stored in the order given; after one that was not
	// stored the later ones of that ID are ErrSkipped. Writes of different IDs
	// do not affect each other: a conflict or rejection of one leaves the
	// others as they would have been.
	//
	// A journal never retries a write by itself. It may outlast ctx, and
	// returns only when it no longer reads the slices. Payloads, tags and
	// metadata are immutable from here on and may be kept; the slices of writes and of
	// events belong to the caller again.
	Append(ctx context.Context, writes []Write) []error

	// Replay yields the records of an ID with from <= SequenceNr <= to, in
	// ascending order. The bounds are literal: from 0 is the same as 1, and an
	// empty range yields nothing.
	//
	// At most a page (1,000 records or 1 MiB, but at least one record) is read
	// ahead; no connection, lock or iterator is held while the body of the loop
	// runs, so the body may append and replay. A record that can't be read ends the replay with an
	// error, which is yielded once and last.
	//
	// Payloads that are yielded are immutable and may be kept.
	Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[Event, error]

	// HighestSequenceNr returns the highest sequence number ever stored for an
	// ID, 0 if there is none. It never decreases, whatever is deleted.
	HighestSequenceNr(ctx context.Context, id string) (uint64, error)

	// DeleteTo deletes the records of an ID up to and including to, or up to
	// the highest if that is lower. It is idempotent.
	DeleteTo(ctx context.Context, id string, to uint64) error

	// Close waits for the calls in progress and frees what the journal holds.
	// A second Close does nothing.
	Close() error
}

// IDLister is implemented by a journal that can list what it holds.
type IDLister interface {
	// PersistenceIDs yields the IDs that have at least one record or had one
	// that was deleted, in bytewise order, beginning behind after ("" for all).
	// An error is yielded once and last. Nothing is held while the body of the
	// loop runs.
	PersistenceIDs(ctx context.Context, after string) iter.Seq2[string, error]
}

// Parallel is implemented by a journal that profits from several Append calls
// in flight. A journal that does not implement it gets one call at a time.
type Parallel interface {
	// MaxAppends is how many Append calls in flight are worth their while, at least 1.
	MaxAppends() int
}

// Event is one record of a persistence ID.
type Event struct {
	// SequenceNr counts from 1 without gaps.
	SequenceNr uint64
	// Time is when the event was numbered, in UTC and whole microseconds; it
	// never decreases within an ID.
	Time time.Time
	// Writer names the incarnation that wrote the record. It is set by Replay;
	// Append takes it from the Write.
	Writer string
	// Manifest says what the payload is; see package codec. It is empty for a
	// fence.
	Manifest string
	// Payload is the encoded event.
	Payload []byte
	// Tags are the names under which queries find the event.
	Tags []string
	// Metadata travels with the event and is not interpreted.
	Metadata []byte
}

// IsFence reports whether the record is a fence: an empty record that was
// appended to settle whether a write whose outcome was unknown can still land.
// A fence takes a sequence number and means nothing else.
func (e *Event) IsFence() bool { return e.Manifest == "" }

// Write is a group of events of one persistence ID that is stored as a whole or
// not at all.
type Write struct {
	// ID is the persistence ID.
	ID string
	// Writer names the incarnation that writes.
	Writer string
	// Expect is the sequence number that the journal must hold as the highest
	// of ID for the write to be stored.
	Expect uint64
	// Events has at least one event; Events[i].SequenceNr is Expect+1+i.
	Events []Event
}

// MaxIDLength is the length of the longest persistence ID, in bytes.
const MaxIDLength = 512

// CheckID returns an error that matches ErrInvalid unless id is a persistence
// ID: 1 to MaxIDLength bytes of valid UTF-8 without NUL, not all of it blank.
func CheckID(id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return fmt.Errorf("%w: persistence ID %q is blank", ErrInvalid, id)
	case len(id) > MaxIDLength:
		return fmt.Errorf("%w: persistence ID %.32q… has %d bytes, at most %d are allowed", ErrInvalid, id, len(id), MaxIDLength)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: persistence ID %q is not valid UTF-8", ErrInvalid, id)
	case strings.IndexByte(id, 0) >= 0:
		return fmt.Errorf("%w: persistence ID %q holds a NUL", ErrInvalid, id)
	}
	return nil
}

// JoinID returns the persistence ID of an entity: the name of its type and its
// own ID with a "|" between them. The type has no "|"; an entity's ID may.
func JoinID(typeName, entityID string) string { return typeName + "|" + entityID }

// SplitID cuts a persistence ID at its first "|". Without one the type is empty
// and the entity's ID is all of it.
func SplitID(id string) (typeName, entityID string) {
	typeName, entityID, found := strings.Cut(id, "|")
	if !found {
		return "", id
	}
	return typeName, entityID
}

const (
	// MaxEventSize is the size of the largest event, in bytes of its payload and
	// metadata.
	MaxEventSize = 16 << 20
	// MaxWriteSize is that of the largest write.
	MaxWriteSize = 64 << 20
)

// CheckWrite returns a *RejectedError unless a write is such as a journal may
// store: it has events, they are numbered as Expect says, and neither they nor all
// of them are too large. It returns the size of the write as MaxWriteSize counts.
// It is for plugins, in Append; the ID is left to CheckID.
func CheckWrite(w *Write) (size int, err error) {
	reject := func(seqNr uint64, format string, args ...any) (int, error) {
		return 0, &RejectedError{ID: w.ID, SequenceNr: seqNr, Reason: fmt.Errorf(format, args...)}
	}
	if len(w.Events) == 0 {
		return reject(0, "%w: the write holds no event", ErrInvalid)
	}
	if n := uint64(len(w.Events)); n > MaxSequenceNr || w.Expect > MaxSequenceNr-n {
		return reject(0, "%w: there are no %d sequence numbers above %d", ErrInvalid, n, w.Expect)
	}
	for i := range w.Events {
		e := &w.Events[i]
		want := w.Expect + 1 + uint64(i)
		if e.SequenceNr != want {
			return reject(want, "%w: event %d of the write has sequence number %d", ErrInvalid, i, e.SequenceNr)
		}
		n := len(e.Payload) + len(e.Metadata)
		if n > MaxEventSize {
			return reject(want, "it has %d bytes, at most %d are allowed", n, MaxEventSize)
		}
		size += n
	}
	if size > MaxWriteSize {
		return reject(0, "it has %d bytes, at most %d are allowed", size, MaxWriteSize)
	}
	return size, nil
}

// Wrapper is implemented by a journal that stands before another, such as
// Guarded.
type Wrapper interface {
	// Unwrap returns the journal behind it.
	Unwrap() Journal
}

// As returns the first journal that implements T, looking at j and then at what
// it wraps. It is how to ask for an optional interface such as IDLister.
func As[T any](j Journal) (T, bool) {
	for j != nil {
		if t, ok := j.(T); ok {
			return t, true
		}
		wrapper, ok := j.(Wrapper)
		if !ok {
			break
		}
		j = wrapper.Unwrap()
	}
	var none T
	return none, false
}
