// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import "slices"

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
