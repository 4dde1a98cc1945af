// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replayfilter detects records of two concurrent writers in the history of one persistence
// ID. See journal.FilterConfig.
package replayfilter

import (
	"cmp"
	"iter"
	"slices"

	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/journal"
)

// The values of ViolationError.Detail.
const (
	decreased   = "comes after number"
	oldWriter   = "comes from an old writer, after number"
	overwritten = "was overwritten by number"
)

// Filter detects records of two concurrent writers of one ID in a replay. It is immutable and safe
// for concurrent use.
type Filter struct{ cfg journal.FilterConfig }

// New returns a Filter, or an error that matches ErrInvalid and names each bad setting.
func New(cfg journal.FilterConfig) (*Filter, error) {
	var errs fielderror.Errors
	if cfg.Mode > journal.FilterOff {
		errs.Addf("journal.FilterConfig.Mode", "is %v", cfg.Mode)
	}
	fielderror.NotNegative(&errs, "journal.FilterConfig.WindowSize", cfg.WindowSize)
	fielderror.NotNegative(&errs, "journal.FilterConfig.MaxOldWriters", cfg.MaxOldWriters)
	if err := errs.Err(journal.ErrInvalid); err != nil {
		return nil, err
	}
	cfg.WindowSize = cmp.Or(cfg.WindowSize, 100)
	cfg.MaxOldWriters = cmp.Or(cfg.MaxOldWriters, 10)
	return &Filter{cfg: cfg}, nil
}

// Apply returns the records of id that pass the filter. If records yields an error, Apply yields
// the preceding records first and then the error.
//
// In mode FilterFail each record is yielded immediately, and a *ViolationError ends the replay.
// FilterRepairByDiscardOld and FilterWarn buffer the last WindowSize records; a record that has
// left the buffer can no longer be dropped.
func (f *Filter) Apply(id string, records iter.Seq2[journal.Event, error]) iter.Seq2[journal.Event, error] {
	switch f.cfg.Mode {
	case journal.FilterFail:
		return f.strict(id, records)
	case journal.FilterRepairByDiscardOld, journal.FilterWarn:
		return f.windowed(id, records)
	case journal.FilterOff:
	}
	return records
}

// strict needs no buffer: it compares the first record of a new writer only with the record before
// it. Before the first violation the sequence numbers do not decrease, so the record before it has
// the highest number in the window. If that number is lower than the new one, all numbers in the
// window are lower. (A window of 1 is empty at this point, because it has made room for the new
// record.)
func (f *Filter) strict(id string, records iter.Seq2[journal.Event, error]) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		h := history{id: id, cfg: &f.cfg}
		for e, err := range records {
			if err != nil {
				yield(journal.Event{}, err)
				return
			}
			var v *journal.ViolationError
			if h.started && e.Writer == h.writer && e.SequenceNr >= h.last {
				h.last = e.SequenceNr
			} else {
				before, writer := h.last, h.writer
				var changed bool
				changed, v = h.observe(&e)
				if changed && before >= e.SequenceNr && f.cfg.WindowSize > 1 {
					v = h.overwritten(before, writer)
				}
			}
			if v != nil {
				f.report(v)
				yield(journal.Event{}, v)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// windowed buffers the last records, the oldest first.
func (f *Filter) windowed(id string, records iter.Seq2[journal.Event, error]) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		h := history{id: id, cfg: &f.cfg}
		window := make([]journal.Event, 0, f.cfg.WindowSize)
		drain := func() bool {
			return !slices.ContainsFunc(window, func(e journal.Event) bool { return !yield(e, nil) })
		}
		for e, err := range records {
			if err != nil {
				if drain() {
					yield(journal.Event{}, err)
				}
				return
			}
			if len(window) == f.cfg.WindowSize {
				oldest := window[0]
				window = slices.Delete(window, 0, 1)
				if !yield(oldest, nil) {
					return
				}
			}
			changed, v := h.observe(&e)
			if changed {
				window = slices.DeleteFunc(window, func(old journal.Event) bool {
					if old.SequenceNr < e.SequenceNr {
						return false
					}
					f.report(h.overwritten(old.SequenceNr, old.Writer))
					return f.cfg.Mode != journal.FilterWarn
				})
			}
			if v != nil {
				f.report(v)
				if f.cfg.Mode != journal.FilterWarn {
					continue
				}
			}
			window = append(window, e)
		}
		drain()
	}
}

func (f *Filter) report(v *journal.ViolationError) {
	if f.cfg.OnViolation != nil {
		f.cfg.OnViolation(v)
	}
}

// history is the state of a Filter during one replay.
type history struct {
	id      string
	cfg     *journal.FilterConfig
	started bool
	writer  string   // the current one
	last    uint64   // its last number
	old     []string // the writers before it, the oldest first
}

// observe processes a record. It reports whether a new writer replaced the previous one, and the
// violation of the record itself.
func (h *history) observe(e *journal.Event) (changed bool, v *journal.ViolationError) {
	switch {
	case !h.started:
		h.started = true
	case e.Writer == h.writer:
		if e.SequenceNr < h.last {
			return false, h.violation(e.SequenceNr, e.Writer, decreased)
		}
	case slices.Contains(h.old, e.Writer):
		return false, h.violation(e.SequenceNr, e.Writer, oldWriter)
	default:
		if len(h.old) >= h.cfg.MaxOldWriters {
			h.old = slices.Delete(h.old, 0, 1)
		}
		h.old = append(h.old, h.writer)
		changed = true
	}
	h.writer, h.last = e.Writer, e.SequenceNr
	return changed, nil
}

// overwritten describes a record of an earlier writer that the new writer wrote over.
func (h *history) overwritten(seqNr uint64, writer string) *journal.ViolationError {
	return h.violation(seqNr, writer, overwritten)
}

func (h *history) violation(seqNr uint64, writer string, detail string) *journal.ViolationError {
	return &journal.ViolationError{
		ID: h.id, SequenceNr: seqNr, Writer: writer, Detail: detail,
		OtherSequenceNr: h.last, OtherWriter: h.writer,
	}
}
