// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxSequenceNr is the highest possible sequence number. As the upper bound of a replay or a
// deletion it means "to the end".
const MaxSequenceNr uint64 = 1<<63 - 1

// Journal is an event log with one gapless sequence of records for each persistence ID. It is the
// interface that a plugin implements and that package journaltest checks.
//
// All methods are safe for concurrent use. After Close they fail with ErrClosed, and the slots of
// Append also match ErrNotSent. A journal is independent of Go types: it stores the manifest and
// the payload of an event unchanged.
type Journal interface {
	// Append stores each write atomically if w.Expect is the highest sequence number of w.ID. The
	// highest sequence number of an unused ID is 0.
	//
	// A nil result means that all writes are stored: durable, and visible to the next Replay.
	// Otherwise the result has one slot per write:
	//
	// - nil: stored.
	// - *ConflictError, *RejectedError, ErrSkipped, ErrNotSent: not stored, and never will be.
	// - any other error: unknown. The write may be stored, now or later.
	//
	// Writes of one ID are stored in the given order. After a write that was not stored, the later
	// writes of that ID are ErrSkipped. Writes of different IDs are independent: a conflict or
	// rejection of one does not affect the others.
	//
	// A journal never retries a write. An Append may return after the end of ctx, because it
	// returns only when it no longer reads the slices. Payloads, tags and metadata must not change
	// after the call begins, and the journal may keep them. After Append has returned, the slices
	// of writes and events belong to the caller again.
	Append(ctx context.Context, writes []Write) []error

	// Replay yields the records of an ID with from <= SequenceNr <= to in ascending order. A from
	// of 0 is the same as 1. An empty range yields nothing.
	//
	// Replay reads ahead at most one page (1,000 records or 1 MiB, but at least one record). It
	// holds no connection, lock or iterator while the loop body runs, so the body may append and
	// replay. If a record cannot be read, Replay yields the error once and ends.
	//
	// Yielded payloads are immutable and may be kept.
	Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[Event, error]

	// HighestSequenceNr returns the highest sequence number ever stored for an ID, 0 if there is
	// none. Deletions do not decrease it.
	HighestSequenceNr(ctx context.Context, id string) (uint64, error)

	// DeleteTo deletes the records of an ID up to and including to. A value above the highest
	// sequence number deletes all records. DeleteTo is idempotent.
	DeleteTo(ctx context.Context, id string, to uint64) error

	// Close waits for the calls in progress and releases all resources. A second Close does
	// nothing.
	Close() error
}

// IDLister is implemented by journals that can list their persistence IDs.
type IDLister interface {
	// PersistenceIDs yields the IDs after the given one ("" for all) in bytewise order. An ID is
	// listed if it has a record or had one that was deleted. An error is yielded once and ends the
	// iteration. No resource is held while the loop body runs.
	PersistenceIDs(ctx context.Context, after string) iter.Seq2[string, error]
}

// Parallel is implemented by journals that benefit from several concurrent Append calls. Other
// journals receive one call at a time.
type Parallel interface {
	// MaxAppends returns the useful number of concurrent Append calls, at least 1.
	MaxAppends() int
}

// Immediate is implemented by journals that keep the events in the memory of the process, so that a
// call waits for nothing. If such a call takes long, the process was paused, and the journal is not at
// fault: WithBreaker adds no circuit breaker and no time limit. As does not search for Immediate: a
// journal that wraps an immediate one may wait, and implements Immediate itself if it does not.
type Immediate interface {
	// Immediate returns the journal itself. A struct that embeds an immediate journal is not immediate,
	// because this method returns the embedded journal: a method of the struct may wait.
	Immediate() Journal
}

// IsImmediate reports whether a journal declares itself Immediate.
func IsImmediate(j Journal) bool {
	i, ok := j.(Immediate)
	return ok && reflect.TypeOf(i.Immediate()) == reflect.TypeOf(j)
}

// Event is one record of a persistence ID.
type Event struct {
	// SequenceNr counts from 1 without gaps.
	SequenceNr uint64
	// Time is when the event was numbered, in UTC and whole microseconds; it never decreases within
	// an ID.
	Time time.Time
	// Writer identifies the incarnation that wrote the record. Replay sets it; Append ignores it
	// and uses the Writer of the Write.
	Writer string
	// Manifest describes the payload; see package codec. It is empty for a fence.
	Manifest string
	// Payload is the encoded event.
	Payload []byte
	// Tags are the names under which queries find the event.
	Tags []string
	// Metadata travels with the event and is not interpreted.
	Metadata []byte
}

// IsFence reports whether the record is a fence: an empty record that occupies one sequence number.
// Appending a fence settles a write with an unknown outcome, which can no longer be stored
// afterwards.
func (e *Event) IsFence() bool { return e.Manifest == "" }

// Write is a group of events of one persistence ID that is stored as a whole or not at all.
type Write struct {
	// ID is the persistence ID.
	ID string
	// Writer identifies the incarnation that writes.
	Writer string
	// Expect is the highest sequence number of ID that the journal must have for the write to be
	// stored.
	Expect uint64
	// Events has at least one event; Events[i].SequenceNr is Expect+1+i.
	Events []Event
}

// MaxIDLength is the length of the longest persistence ID, in bytes.
const MaxIDLength = 512

// CheckID returns an error that matches ErrInvalid unless id is a persistence ID: 1 to MaxIDLength
// bytes of valid UTF-8 without NUL, not all of it blank.
func CheckID(id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return fmt.Errorf("%w: persistence ID %q is blank", ErrInvalid, id)
	case len(id) > MaxIDLength:
		return fmt.Errorf("%w: persistence ID %.32q… has %d bytes, at most %d are allowed", ErrInvalid, id, len(id), MaxIDLength)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: persistence ID %q is not valid UTF-8", ErrInvalid, id)
	case strings.IndexByte(id, 0) >= 0:
		return fmt.Errorf("%w: persistence ID %q contains a NUL byte", ErrInvalid, id)
	}
	return nil
}

// JoinID returns the persistence ID of an entity: its type name, a "|", and its entity ID. The type
// name must not contain "|"; the entity ID may.
func JoinID(typeName, entityID string) string { return typeName + "|" + entityID }

// SplitID splits a persistence ID at its first "|". If there is none, the type name is empty and
// the entity ID is the whole persistence ID.
func SplitID(id string) (typeName, entityID string) {
	typeName, entityID, found := strings.Cut(id, "|")
	if !found {
		return "", id
	}
	return typeName, entityID
}

const (
	// MaxEventSize is the size of the largest event, in bytes of its payload and metadata.
	MaxEventSize = 16 << 20
	// MaxWriteSize is the size of the largest write, in bytes of its payloads and metadata.
	MaxWriteSize = 64 << 20

	maxNamesSize = 64 << 10 // writer, manifest and tags of an event, in bytes
	maxTagSize   = 1 << 10  // bytes, so that an index can hold a tag
	maxTags      = 16 << 10 // of an event
)

// CheckWrite returns a *RejectedError unless a journal may store the write: the write has events,
// their sequence numbers continue Expect, and neither an event nor the whole write is too large.
// Writer, manifests and tags are names: valid UTF-8 without NUL. The names of an event have at most
// 64 KiB together, a tag has at most 1,024 bytes, and an event has at most 16,384 tags. CheckWrite
// returns the size of the write in bytes of payload and metadata. Plugins call it in Append. It does
// not check the ID; see CheckID.
func CheckWrite(w *Write) (size int, err error) {
	reject := func(seqNr uint64, format string, args ...any) (int, error) {
		return 0, &RejectedError{ID: w.ID, SequenceNr: seqNr, Reason: fmt.Errorf(format, args...)}
	}
	if len(w.Events) == 0 {
		return reject(0, "%w: the write has no events", ErrInvalid)
	}
	if n := uint64(len(w.Events)); n > MaxSequenceNr || w.Expect > MaxSequenceNr-n {
		return reject(0, "%w: sequence numbers of %d events after %d exceed the maximum", ErrInvalid, n, w.Expect)
	}
	if err := checkName("writer", w.Writer); err != nil {
		return reject(0, "%w", err)
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
		if err := checkNames(len(w.Writer), e); err != nil {
			return reject(want, "%w", err)
		}
		size += n
	}
	if size > MaxWriteSize {
		return reject(0, "it has %d bytes, at most %d are allowed", size, MaxWriteSize)
	}
	return size, nil
}

// checkNames checks the manifest and the tags of an event. size is the length of the writer.
func checkNames(size int, e *Event) error {
	err := checkName("manifest", e.Manifest)
	size += len(e.Manifest)
	for i := 0; i < len(e.Tags) && err == nil; i++ {
		if size += len(e.Tags[i]); len(e.Tags[i]) > maxTagSize {
			return fmt.Errorf("%w: tag %.32q… has %d bytes, limit %d", ErrInvalid, e.Tags[i], len(e.Tags[i]), maxTagSize)
		}
		err = checkName("tag", e.Tags[i])
	}
	if err == nil && (size > maxNamesSize || len(e.Tags) > maxTags) {
		return fmt.Errorf("writer, manifest and %d tags have %d bytes, limits are %d tags and %d bytes", len(e.Tags), size, maxTags, maxNamesSize)
	}
	return err
}

func checkName(field, name string) error {
	switch {
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s %.64q is not valid UTF-8", ErrInvalid, field, name)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: %s %.64q contains a NUL byte", ErrInvalid, field, name)
	}
	return nil
}

// Wrapper is implemented by a journal that wraps another one, such as the result of WithBreaker.
type Wrapper interface {
	// Unwrap returns the wrapped journal.
	Unwrap() Journal
}

// As returns the first journal that implements T, searching j and then the journals that it wraps.
// Use it to find optional interfaces such as IDLister.
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
