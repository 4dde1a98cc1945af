// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/refold-io/refold/journal"
)

const (
	maxEventSize = 16 << 20 // payload and metadata
	maxWriteSize = 64 << 20 // everything
	maxNamesSize = 64 << 10 // writer, manifest and tags of an event
	maxTagSize   = 1 << 10  // what an index holds for sure
	maxTags      = 16 << 10 // of an event
)

var errNoEvents = errors.New("it holds no event")

// checkWrite returns the size of a write on its way, about, or a
// *journal.RejectedError if it can't be stored.
func checkWrite(w *journal.Write) (int, error) {
	reject := func(seqNr uint64, reason error) (int, error) {
		return 0, &journal.RejectedError{ID: w.ID, SequenceNr: seqNr, Reason: reason}
	}
	if len(w.Events) == 0 {
		return reject(0, errNoEvents)
	}
	if err := journal.CheckID(w.ID); err != nil {
		return reject(0, err)
	}
	if err := checkName("writer", w.Writer); err != nil {
		return reject(0, err)
	}
	if w.Expect > journal.MaxSequenceNr-uint64(len(w.Events)) {
		return reject(0, fmt.Errorf("%w: there are no %d sequence numbers above %d", journal.ErrInvalid, len(w.Events), w.Expect))
	}
	total, sent := 0, 0
	for i := range w.Events {
		e := &w.Events[i]
		want := w.Expect + 1 + uint64(i)
		if e.SequenceNr != want {
			return reject(want, fmt.Errorf("%w: event %d of the write has sequence number %d", journal.ErrInvalid, i, e.SequenceNr))
		}
		names, err := checkEvent(w, e)
		if err != nil {
			return reject(want, err)
		}
		size := len(e.Payload) + len(e.Metadata)
		total += size
		sent += size + names + len(w.ID) + rowOverhead
	}
	switch {
	case total > maxWriteSize:
		return reject(0, fmt.Errorf("it has %d bytes, at most %d are allowed", total, maxWriteSize))
	case sent > maxSent:
		return reject(0, fmt.Errorf("its %d events have %d bytes with their names, at most %d are allowed", len(w.Events), sent, maxSent))
	}
	return sent, nil
}

// checkEvent returns the size of the names of an event.
func checkEvent(w *journal.Write, e *journal.Event) (names int, err error) {
	if size := len(e.Payload) + len(e.Metadata); size > maxEventSize {
		return 0, fmt.Errorf("it has %d bytes, at most %d are allowed", size, maxEventSize)
	}
	if err := checkName("manifest", e.Manifest); err != nil {
		return 0, err
	}
	names = len(w.Writer) + len(e.Manifest)
	for _, tag := range e.Tags {
		if len(tag) > maxTagSize {
			return 0, fmt.Errorf("%w: tag %.32q… has %d bytes, at most %d are allowed", journal.ErrInvalid, tag, len(tag), maxTagSize)
		}
		if err := checkName("tag", tag); err != nil {
			return 0, err
		}
		names += len(tag)
	}
	if names > maxNamesSize || len(e.Tags) > maxTags {
		return 0, fmt.Errorf("writer, manifest and %d tags have %d bytes, at most %d and %d are allowed", len(e.Tags), names, maxTags, maxNamesSize)
	}
	if !storableTime(e.Time) {
		return 0, fmt.Errorf("%w: time %v is not between the years %d and %d", journal.ErrInvalid, e.Time, minYear, maxYear)
	}
	return names, nil
}

// checkName returns an error that matches ErrInvalid for text that the server
// can't hold.
func checkName(what, name string) error {
	switch {
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s %.64q is not valid UTF-8", journal.ErrInvalid, what, name)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: %s %.64q holds a NUL", journal.ErrInvalid, what, name)
	}
	return nil
}
