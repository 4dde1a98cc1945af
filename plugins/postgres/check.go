// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/refold-io/refold/journal"
)

const (
	maxNamesSize = 64 << 10 // writer, manifest and tags of an event
	maxTagSize   = 1 << 10  // what an index holds for sure
	maxTags      = 16 << 10 // of an event
)

// checkWrite returns the size of a write on its way, about, or a
// *journal.RejectedError if it can't be stored.
func checkWrite(w *journal.Write) (int, error) {
	reject := func(seqNr uint64, reason error) (int, error) {
		return 0, &journal.RejectedError{ID: w.ID, SequenceNr: seqNr, Reason: reason}
	}
	if err := journal.CheckID(w.ID); err != nil {
		return reject(0, err)
	}
	sent, err := journal.CheckWrite(w)
	if err != nil {
		return 0, err
	}
	if err := checkName("writer", w.Writer); err != nil {
		return reject(0, err)
	}
	for i := range w.Events {
		e := &w.Events[i]
		names, err := checkEvent(w, e)
		if err != nil {
			return reject(e.SequenceNr, err)
		}
		sent += names + len(w.ID) + rowOverhead
	}
	if sent > maxSent {
		return reject(0, fmt.Errorf("its %d events have %d bytes with their names, at most %d are allowed", len(w.Events), sent, maxSent))
	}
	return sent, nil
}

// checkEvent returns the size of the names of an event.
func checkEvent(w *journal.Write, e *journal.Event) (names int, err error) {
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
