// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/refold-io/refold/journal"
)

var _ journal.Querier = (*Journal)(nil)

// Query implements journal.Querier. It is one statement; close to the end of
// the journal, where what is settled changes, one or two short ones go before.
func (j *Journal) Query(ctx context.Context, q journal.Criteria, after journal.Offset) (journal.Page, error) {
	page, err := j.query(ctx, q, after)
	if err != nil {
		return journal.Page{}, fmt.Errorf("postgres: query: %w", err)
	}
	return page, nil
}

// End implements journal.Querier.
func (j *Journal) End(ctx context.Context) (journal.Offset, error) {
	if !j.enter() {
		return "", fmt.Errorf("postgres: end: %w", journal.ErrClosed)
	}
	defer j.leave()
	found, err := j.db.tail.watermark.refresh(ctx)
	if err != nil {
		return "", fmt.Errorf("postgres: end: %w", err)
	}
	return formatOffset(found.settled), nil
}

func (j *Journal) query(ctx context.Context, q journal.Criteria, after journal.Offset) (journal.Page, error) {
	if err := q.Check(); err != nil {
		return journal.Page{}, err
	}
	from, err := parseOffset(after)
	if err != nil {
		return journal.Page{}, err
	}
	if !j.enter() {
		return journal.Page{}, journal.ErrClosed
	}
	defer j.leave()
	known := j.db.tail.watermark.now()
	shape := newShape(j.db.schema, q)
	if known.settled-from <= shape.window { // the page may reach the end, which must be the one of now
		before := known.settled
		if known, err = j.db.tail.watermark.refresh(ctx); err != nil {
			return journal.Page{}, err
		}
		if known.settled > before {
			j.db.tail.wake() // others may wait for it
		}
	}
	switch {
	case from > known.drawn:
		return journal.Page{}, fmt.Errorf("%w: %q lies behind all that was ever appended to schema %q of %s: it is of another journal, or this one was restored from before",
			journal.ErrOffset, after, j.db.cfg.Schema, j.db.target)
	case from >= known.settled:
		return journal.Page{Next: after}, nil
	}
	return j.page(ctx, shape, from, known.settled)
}

// page runs the statement of a shape, which looks behind from and not behind
// settled.
func (j *Journal) page(ctx context.Context, s *shape, from, settled int64) (journal.Page, error) {
	params := append([][]byte{int8Value(uint64(from)), int8Value(uint64(settled)), int8Value(uint64(s.window))}, s.params...) //nolint:gosec // not negative
	var p reader
	if err := j.db.run(ctx, &s.statement, params, p.row); err != nil {
		return journal.Page{}, j.db.fail(ctx, err)
	}
	switch {
	case p.standby:
		return journal.Page{}, j.db.onStandby()
	case len(p.events) >= pageRecords || p.bytes >= pageBytes:
		p.next = p.last // there was more than fits
	}
	return journal.Page{Events: p.events, Next: formatOffset(p.next), More: p.next < settled}, nil
}

// reader collects the rows of a page. There is always one: if it has no event,
// its other columns are NULL.
type reader struct {
	events  []journal.Envelope
	bytes   int
	standby bool
	next    int64 // up to where the statement has looked
	last    int64 // where the last event is
}

func (p *reader) row(values [][]byte) error {
	p.next = int64(binary.BigEndian.Uint64(values[0])) //nolint:gosec // from an int64
	p.standby = values[1][0] != 0
	if values[2] == nil {
		return nil
	}
	p.last = int64(binary.BigEndian.Uint64(values[2])) //nolint:gosec // from an int64
	event, err := decodeRow(values[4:])
	if err != nil {
		return fmt.Errorf("event at %d: %w", p.last, err)
	}
	p.bytes += len(event.Payload) + len(event.Metadata)
	p.events = append(p.events, journal.Envelope{Event: event, ID: string(values[3]), Offset: formatOffset(p.last)})
	return nil
}
