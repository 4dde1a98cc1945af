// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
)

// FilterMode selects how a replay treats a record that violates the rule of one writer at a time.
type FilterMode uint8

const (
	// FilterFail ends the replay with a *ViolationError.
	FilterFail FilterMode = iota
	// FilterRepairByDiscardOld drops the record, or those of an older writer that a newer one wrote
	// over.
	FilterRepairByDiscardOld
	// FilterWarn reports it and yields everything unchanged.
	FilterWarn
	// FilterOff disables the filter.
	FilterOff
)

// String returns the name of the mode as used in configuration files.
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

// FilterConfig configures the replay filter of the runtime. The filter detects records of two
// concurrent writers of one persistence ID. Conditional appends make such records impossible; the
// filter protects entities from histories that were imported from a journal without them.
type FilterConfig struct {
	// Mode selects the treatment of a violation. Defaults to FilterFail. The other modes are for
	// imported histories.
	Mode FilterMode
	// WindowSize is how many records a new writer is compared with. Defaults to 100.
	WindowSize int
	// MaxOldWriters is how many earlier writers are remembered. Defaults to 10.
	MaxOldWriters int
	// OnViolation is called for each violation, in every mode but FilterOff, before the replay
	// continues. Optional.
	OnViolation func(*ViolationError)
}

// ErrViolation is matched by a *ViolationError.
var ErrViolation = errors.New("journal: replay filter: violation")

// ViolationError reports a record that cannot belong to the history of an ID with one writer at a
// time.
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
