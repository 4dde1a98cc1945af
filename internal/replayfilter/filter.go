// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replayfilter detects records of two concurrent writers in the history of one persistence
// ID. See journal.FilterConfig.
package replayfilter

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

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
	var errs []error
	if cfg.Mode > journal.FilterOff {
		errs = append(errs, fmt.Errorf("%w: journal.FilterConfig.Mode is %v", journal.ErrInvalid, cfg.Mode))
	}
	if cfg.WindowSize < 0 {
		errs = append(errs, fmt.Errorf("%w: journal.FilterConfig.WindowSize is %d, it can't be negative", journal.ErrInvalid, cfg.WindowSize))
	}
	if cfg.MaxOldWriters < 0 {
		errs = append(errs, fmt.Errorf("%w: journal.FilterConfig.MaxOldWriters is %d, it can't be negative", journal.ErrInvalid, cfg.MaxOldWriters))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.WindowSize = cmp.Or(cfg.WindowSize, 100)
	cfg.MaxOldWriters = cmp.Or(cfg.MaxOldWriters, 10)
	return &Filter{cfg: cfg}, nil
}

// Apply returns the records of id that pass the filter. An error of records is yielded after the
// records before it.
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

// strict needs no buffer. Before the first violation the sequence numbers do not decrease, so the
// record before the first one of a new writer has the highest number of the window. If that number
// is lower, so are all others. (A window of 1 is empty at this point, because it has made room for
// the new record.)
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

// windowed buffers the last records.
func (f *Filter) windowed(id string, records iter.Seq2[journal.Event, error]) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		h := history{id: id, cfg: &f.cfg}
		window := newWindow(f.cfg.WindowSize)
		for e, err := range records {
			if err != nil {
				if window.drain(yield) {
					yield(journal.Event{}, err)
				}
				return
			}
			if window.full() && !yield(window.pop(), nil) {
				return
			}
			changed, v := h.observe(&e)
			if changed {
				window.retain(func(old *journal.Event) bool {
					if old.SequenceNr < e.SequenceNr {
						return true
					}
					f.report(h.overwritten(old.SequenceNr, old.Writer))
					return f.cfg.Mode == journal.FilterWarn
				})
			}
			if v != nil {
				f.report(v)
				if f.cfg.Mode != journal.FilterWarn {
					continue
				}
			}
			window.push(e)
		}
		window.drain(yield)
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

// overwritten describes a record that the current writer, which is new, wrote over.
func (h *history) overwritten(seqNr uint64, writer string) *journal.ViolationError {
	return h.violation(seqNr, writer, overwritten)
}

func (h *history) violation(seqNr uint64, writer string, detail string) *journal.ViolationError {
	return &journal.ViolationError{
		ID: h.id, SequenceNr: seqNr, Writer: writer, Detail: detail,
		OtherSequenceNr: h.last, OtherWriter: h.writer,
	}
}

// window is a ring of the last records of a replay.
type window struct {
	ring  []journal.Event
	first int
	count int
}

func newWindow(size int) *window { return &window{ring: make([]journal.Event, size)} }

func (w *window) full() bool { return w.count == len(w.ring) }

func (w *window) at(i int) *journal.Event { return &w.ring[(w.first+i)%len(w.ring)] }

func (w *window) push(e journal.Event) {
	*w.at(w.count) = e
	w.count++
}

func (w *window) pop() journal.Event {
	e := *w.at(0)
	*w.at(0) = journal.Event{}
	w.first = (w.first + 1) % len(w.ring)
	w.count--
	return e
}

// retain drops the records for which keep is false.
func (w *window) retain(keep func(*journal.Event) bool) {
	kept := 0
	for i := range w.count {
		if e := w.at(i); keep(e) {
			*w.at(kept) = *e
			kept++
		}
	}
	for i := kept; i < w.count; i++ {
		*w.at(i) = journal.Event{}
	}
	w.count = kept
}

// drain yields the remaining records. It returns false if the loop was left.
func (w *window) drain(yield func(journal.Event, error) bool) bool {
	for w.count > 0 {
		if !yield(w.pop(), nil) {
			return false
		}
	}
	return true
}
