// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/journal"
)

// history is what was seen of one persistence ID.
type history struct {
	id      string
	linked  *Linked // nil if the type is not linked in
	highest uint64
	first   uint64 // the first record, 0 if there is none
	last    uint64 // the last record, 0 if there is none
	time    time.Time
	broken  bool // the replay ended with an error
}

// history looks at the records of an ID.
func (v *verifier) history(ctx context.Context, id string) (history, error) {
	typeName, _ := journal.SplitID(id)
	h := history{id: id, linked: v.linked[typeName]}
	before, err := v.journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return h, v.unread(ctx, &h, fmt.Errorf("the highest number can't be read: %w", err))
	}
	h.highest = before
	for e, err := range v.journal.Replay(ctx, id, 1, journal.MaxSequenceNr) {
		if err != nil {
			if err = v.unread(ctx, &h, fmt.Errorf("the records behind it can't be read: %w", err)); err != nil {
				return h, err
			}
			break
		}
		v.record(&h, &e)
	}
	after, err := v.journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return h, v.unread(ctx, &h, fmt.Errorf("the highest number can't be read: %w", err))
	}
	if after < before {
		v.problem(id, 0, fmt.Errorf("the highest number went back from %d to %d", before, after))
	}
	h.highest = max(before, after)
	switch {
	case h.broken:
	case h.last > h.highest:
		v.problem(id, h.last, fmt.Errorf("the record is above the highest number, which is %d", h.highest))
	case h.first > 0 && h.last < before:
		v.problem(id, 0, &journal.GapError{ID: id, Want: h.last + 1})
	}
	return h, nil
}

// unread takes note of an error about the data, and returns the others.
func (v *verifier) unread(ctx context.Context, h *history, err error) error {
	if unreachable(ctx, err) {
		return err
	}
	h.broken = true
	v.problem(h.id, h.last, err)
	return nil
}

// record looks at the next record.
func (v *verifier) record(h *history, e *journal.Event) {
	v.report.Records++
	if v.id != nil {
		v.id.record(e)
	}
	switch {
	case e.SequenceNr == 0:
		v.problem(h.id, 0, errors.New("a record has the number 0"))
	case h.first == 0:
		h.first = e.SequenceNr
	case e.SequenceNr <= h.last:
		v.problem(h.id, e.SequenceNr, fmt.Errorf("the record comes behind record %d", h.last))
	case e.SequenceNr > h.last+1:
		v.problem(h.id, 0, &journal.GapError{ID: h.id, Want: h.last + 1, Got: e.SequenceNr})
	}
	if e.Time.Before(h.time) {
		v.problem(h.id, e.SequenceNr, fmt.Errorf("the time went back from %s to %s", stamp(h.time), stamp(e.Time)))
	}
	h.last, h.time = max(h.last, e.SequenceNr), e.Time
	if e.IsFence() {
		v.report.Fences++
		if len(e.Payload) > 0 {
			v.problem(h.id, e.SequenceNr, fmt.Errorf("the record has no manifest, but a payload of %d bytes", len(e.Payload)))
		}
		return
	}
	if err := v.event(h, e); err != nil {
		v.problem(h.id, e.SequenceNr, err)
	}
}

// event checks the payload of an event.
func (v *verifier) event(h *history, e *journal.Event) error {
	if h.linked != nil {
		return h.linked.checkEvent(&v.scratch, e.Manifest, e.Payload)
	}
	format := formatOf(e.Manifest)
	if format == unknownFormat {
		v.report.Unchecked++
	}
	return format.check(e.Payload)
}
