// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
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
	// Detail says what is wrong with it.
	Detail ViolationKind
	// OtherSequenceNr and OtherWriter are those of the record that shows it.
	OtherSequenceNr uint64
	OtherWriter     string
}

// ViolationKind is what is wrong with a record.
type ViolationKind uint8

const (
	// ViolationBackwards says that the record's number is lower than that of a
	// record before it, by the same writer.
	ViolationBackwards ViolationKind = iota + 1
	// ViolationOldWriter says that another writer has taken over since the last
	// record of this one.
	ViolationOldWriter
	// ViolationOverwritten says that a new writer, which comes behind it, wrote
	// from the same number or a lower one.
	ViolationOverwritten
)

func (e *ViolationError) Error() string {
	what := "is invalid next to"
	switch e.Detail {
	case ViolationBackwards:
		what = "comes after number"
	case ViolationOldWriter:
		what = "comes from an old writer, after number"
	case ViolationOverwritten:
		what = "was overwritten by number"
	}
	return fmt.Sprintf("journal: replay filter: %q: event %d of writer %q %s %d of writer %q",
		e.ID, e.SequenceNr, e.Writer, what, e.OtherSequenceNr, e.OtherWriter)
}

// Is reports whether target is ErrViolation.
func (e *ViolationError) Is(target error) bool { return target == ErrViolation }

// Filter finds the traces of two writers of one ID in what a journal replays.
// Conditional appends make them impossible; it protects an entity from a history
// that was imported from a journal without them. It is immutable and safe for
// concurrent use.
type Filter struct{ cfg FilterConfig }

// NewFilter returns a Filter, or an error that matches ErrInvalid and names each
// bad setting.
func NewFilter(cfg FilterConfig) (*Filter, error) {
	var errs []error
	if cfg.Mode > FilterOff {
		errs = append(errs, fmt.Errorf("%w: FilterConfig.Mode is %v", ErrInvalid, cfg.Mode))
	}
	if cfg.WindowSize < 0 {
		errs = append(errs, fmt.Errorf("%w: FilterConfig.WindowSize is %d, it can't be negative", ErrInvalid, cfg.WindowSize))
	}
	if cfg.MaxOldWriters < 0 {
		errs = append(errs, fmt.Errorf("%w: FilterConfig.MaxOldWriters is %d, it can't be negative", ErrInvalid, cfg.MaxOldWriters))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.WindowSize = cmp.Or(cfg.WindowSize, 100)
	cfg.MaxOldWriters = cmp.Or(cfg.MaxOldWriters, 10)
	return &Filter{cfg: cfg}, nil
}

// Apply returns the records of id that pass the filter. An error of records is
// passed on behind what came before it.
//
// In mode FilterFail each record is yielded as it comes, and a *ViolationError
// ends the replay. FilterRepairByDiscardOld and FilterWarn hold the last
// WindowSize records back; what has left the window can't be dropped any more.
func (f *Filter) Apply(id string, records iter.Seq2[Event, error]) iter.Seq2[Event, error] {
	switch f.cfg.Mode {
	case FilterFail:
		return f.strict(id, records)
	case FilterRepairByDiscardOld, FilterWarn:
		return f.windowed(id, records)
	case FilterOff:
	}
	return records
}

// strict needs no window. As long as nothing was wrong the numbers have not
// decreased, so the record before a new writer's first has the highest of the
// window; if that one is lower, so are all. (A window of 1 has made room for the
// new record by then and holds none.)
func (f *Filter) strict(id string, records iter.Seq2[Event, error]) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		h := history{id: id, cfg: &f.cfg}
		for e, err := range records {
			if err != nil {
				yield(Event{}, err)
				return
			}
			var v *ViolationError
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
				yield(Event{}, v)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// windowed holds records back.
func (f *Filter) windowed(id string, records iter.Seq2[Event, error]) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		h := history{id: id, cfg: &f.cfg}
		window := newWindow(f.cfg.WindowSize)
		for e, err := range records {
			if err != nil {
				if window.drain(yield) {
					yield(Event{}, err)
				}
				return
			}
			if window.full() && !yield(window.pop(), nil) {
				return
			}
			changed, v := h.observe(&e)
			if changed {
				window.retain(func(old *Event) bool {
					if old.SequenceNr < e.SequenceNr {
						return true
					}
					f.report(h.overwritten(old.SequenceNr, old.Writer))
					return f.cfg.Mode == FilterWarn
				})
			}
			if v != nil {
				f.report(v)
				if f.cfg.Mode != FilterWarn {
					continue
				}
			}
			window.push(e)
		}
		window.drain(yield)
	}
}

func (f *Filter) report(v *ViolationError) {
	if f.cfg.OnViolation != nil {
		f.cfg.OnViolation(v)
	}
}

// history is what a Filter remembers of the records that it has seen.
type history struct {
	id      string
	cfg     *FilterConfig
	started bool
	writer  string   // the current one
	last    uint64   // its last number
	old     []string // the writers before it, the oldest first
}

// observe takes note of a record. It reports whether a new writer took over from
// another, and what is wrong with the record itself.
func (h *history) observe(e *Event) (changed bool, v *ViolationError) {
	switch {
	case !h.started:
		h.started = true
	case e.Writer == h.writer:
		if e.SequenceNr < h.last {
			return false, h.violation(e.SequenceNr, e.Writer, ViolationBackwards)
		}
	case slices.Contains(h.old, e.Writer):
		return false, h.violation(e.SequenceNr, e.Writer, ViolationOldWriter)
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

// overwritten describes a record that the current writer, which is new, wrote
// over.
func (h *history) overwritten(seqNr uint64, writer string) *ViolationError {
	return h.violation(seqNr, writer, ViolationOverwritten)
}

func (h *history) violation(seqNr uint64, writer string, kind ViolationKind) *ViolationError {
	return &ViolationError{
		ID: h.id, SequenceNr: seqNr, Writer: writer, Detail: kind,
		OtherSequenceNr: h.last, OtherWriter: h.writer,
	}
}

// window holds the last records of a replay in a ring.
type window struct {
	ring  []Event
	first int
	count int
}

func newWindow(size int) *window { return &window{ring: make([]Event, size)} }

func (w *window) full() bool { return w.count == len(w.ring) }

func (w *window) at(i int) *Event { return &w.ring[(w.first+i)%len(w.ring)] }

func (w *window) push(e Event) {
	*w.at(w.count) = e
	w.count++
}

func (w *window) pop() Event {
	e := *w.at(0)
	*w.at(0) = Event{}
	w.first = (w.first + 1) % len(w.ring)
	w.count--
	return e
}

// retain drops the records for which keep is false.
func (w *window) retain(keep func(*Event) bool) {
	kept := 0
	for i := range w.count {
		if e := w.at(i); keep(e) {
			*w.at(kept) = *e
			kept++
		}
	}
	for i := kept; i < w.count; i++ {
		*w.at(i) = Event{}
	}
	w.count = kept
}

// drain yields all that is left. It returns false when the loop was left.
func (w *window) drain(yield func(Event, error) bool) bool {
	for w.count > 0 {
		if !yield(w.pop(), nil) {
			return false
		}
	}
	return true
}
