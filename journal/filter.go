// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
)

// FilterMode is what a Filter does about a record that can't belong to the
// history.
type FilterMode uint8

const (
	// FilterFail ends the replay with a *ViolationError.
	FilterFail FilterMode = iota
	// FilterRepairByDiscardOld drops the record, or those of an older writer that
	// a newer one wrote over.
	FilterRepairByDiscardOld
	// FilterWarn reports it and yields everything unchanged.
	FilterWarn
	// FilterOff looks at nothing.
	FilterOff
)

// String returns the name of the mode as it stands in a configuration file.
func (m FilterMode) String() string {
	switch m {
	case FilterFail:
		return "fail"
	case FilterRepairByDiscardOld:
		return "repair-by-discard-old"
	case FilterWarn:
		return "warn"
	case FilterOff:
		return "off"
	}
	return fmt.Sprintf("FilterMode(%d)", uint8(m))
}

// FilterConfig holds the settings of a Filter.
type FilterConfig struct {
	// Mode is what to do about a violation. Defaults to FilterFail; the other
	// modes are for histories that were imported from elsewhere.
	Mode FilterMode
	// WindowSize is how many records a new writer is compared with. Defaults to
	// 100.
	WindowSize int
	// MaxOldWriters is how many earlier writers are remembered. Defaults to 10.
	MaxOldWriters int
	// OnViolation is told of each violation, in every mode but FilterOff, before
	// the replay goes on. Defaults to none.
	OnViolation func(*ViolationError)
}

// ErrViolation is matched by a *ViolationError.
var ErrViolation = errors.New("journal: replay filter: violation")

// ViolationError says that a record can't belong to the history of an ID that
// has one writer at a time.
type ViolationError struct {
	ID string
	// SequenceNr and Writer are those of the record that is at fault.
	SequenceNr uint64
	Writer     string
	// Detail relates the record to the other one: "comes after number", "comes from an old writer,
	// after number" or "was overwritten by number".
	Detail string
	// OtherSequenceNr and OtherWriter are those of the record that shows it.
	OtherSequenceNr uint64
	OtherWriter     string
}

func (e *ViolationError) Error() string {
	return fmt.Sprintf("journal: replay filter: %q: event %d of writer %q %s %d of writer %q",
		e.ID, e.SequenceNr, e.Writer, e.Detail, e.OtherSequenceNr, e.OtherWriter)
}

// Is reports whether target is ErrViolation.
func (e *ViolationError) Is(target error) bool { return target == ErrViolation }
