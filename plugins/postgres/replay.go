// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/refold-io/refold/internal/plugin"
	"github.com/refold-io/refold/journal"
)

// Replay implements journal.Journal. It reads pages, each with one statement on any free
// connection. Concurrent replays of at most 100 events may share a statement. The payloads of a page
// share memory: a payload that is kept keeps the memory of the whole page. Copy payloads that are kept
// for long.
func (j *Journal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		if err := journal.CheckID(id); err != nil {
			yield(journal.Event{}, fmt.Errorf("postgres: replay %q: %w", id, err))
			return
		}
		next, last := max(from, 1), min(to, journal.MaxSequenceNr)
		var p replayPage
		for next != 0 && next <= last {
			if err := j.readPage(ctx, &p, id, next, last); err != nil {
				yield(journal.Event{}, fmt.Errorf("postgres: replay %q: %w", id, err))
				return
			}
			next = p.next
			for i := range p.events {
				if !yield(p.events[i], nil) {
					return
				}
			}
		}
	}
}

// replayPage is the result of one statement of a replay. The next statement reuses its buffers.
type replayPage struct {
	events  []journal.Event
	decoder rowDecoder
	next    uint64 // begin of the next page, or 0
	large   bool   // the next page may contain large events
	cut     bool   // the page ends before a large event
}

// readPage reads the events of the next range of numbers, or as many as fit a page.
func (j *Journal) readPage(ctx context.Context, p *replayPage, id string, from, to uint64) error {
	reset := func() {
		clear(p.events)
		p.events, p.next, p.cut = p.events[:0], 0, false
	}
	end := to
	if to-from >= pageRecords {
		end = from + pageRecords - 1
	}
	st, params := &j.db.sql.replayLarge, [][]byte{[]byte(id), int8Value(from), int8Value(end), int8Value(to)}
	if !p.large {
		p.decoder.usual = [2]string{p.decoder.writer, p.decoder.manifest}
		st, params = &j.db.sql.replay, append(params, []byte(p.decoder.writer), []byte(p.decoder.manifest))
	}
	row := func(values [][]byte) error {
		if err := p.row(values); err != nil {
			return &journal.CorruptError{File: j.db.target, Offset: -1, Detail: fmt.Sprintf("an event of %q: %v", id, err)}
		}
		return nil
	}
	var err error
	if to-from < gatherRecords && !p.large {
		err = j.gather(ctx, id, j.db.replay, st, params, reset, row)
	} else {
		reset()
		err = j.readRows(ctx, id, st, params, row)
	}
	if err != nil {
		return err
	}
	n := len(p.events)
	switch {
	case p.cut:
		p.large = true
		p.next = from
		if n > 0 {
			p.next = p.events[n-1].SequenceNr + 1
		}
	case p.large && n > 0 && p.events[n-1].SequenceNr < end:
		p.next = p.events[n-1].SequenceNr + 1 // more events may follow that did not fit
	case n == pageRecords:
		p.large = false
	}
	return nil
}

func (p *replayPage) row(values [][]byte) (err error) {
	if len(values) == 7 && values[1] == nil { // the first row of statements.replay
		if b := values[6]; len(b) == 8 {
			p.next = binary.BigEndian.Uint64(b)
		}
		return nil
	}
	if len(values) == 8 {
		if b := values[7]; len(b) == 8 {
			p.next = binary.BigEndian.Uint64(b)
		}
		values = values[:7]
	}
	if len(values) != 7 {
		return errRow
	}
	if values[0] == nil || p.cut { // no event, or after a large event
		return nil
	}
	if p.cut = values[4] == nil; p.cut {
		return nil
	}
	e, err := p.decoder.row(values)
	if err == nil {
		p.events = append(p.events, e)
	}
	return err
}

var errRow = errors.New("postgres: malformed row")

// rowColumns returns the columns that rowDecoder expects, qualified by the name or alias of a
// table.
func rowColumns(alias string) string {
	return strings.ReplaceAll("{a}.seq_nr, {a}.at, {a}.writer, {a}.manifest, {a}.payload, {a}.tags, {a}.metadata", "{a}", alias)
}

// rowDecoder decodes the rows of a result. It allocates payloads in blocks, and reuses the strings
// of the previous row.
type rowDecoder struct {
	writer, manifest string
	usual            [2]string // the writer and the manifest that the statement omits
	arena            plugin.Arena
}

// row decodes the columns of rowColumns. It copies the values.
func (d *rowDecoder) row(values [][]byte) (journal.Event, error) {
	if len(values) != 7 || len(values[0]) != 8 || len(values[1]) != 8 {
		return journal.Event{}, errRow
	}
	tags, err := decodeTexts(values[5])
	if err != nil {
		return journal.Event{}, err
	}
	if values[2] == nil {
		d.writer = d.usual[0]
	} else if string(values[2]) != d.writer {
		d.writer = string(values[2])
	}
	if values[3] == nil {
		d.manifest = d.usual[1]
	} else if string(values[3]) != d.manifest {
		d.manifest = string(values[3])
	}
	return journal.Event{
		SequenceNr: binary.BigEndian.Uint64(values[0]),
		Time:       decodeTime(values[1]),
		Writer:     d.writer,
		Manifest:   d.manifest,
		Payload:    d.arena.Keep(values[4]),
		Tags:       tags,
		Metadata:   d.arena.Keep(values[6]),
	}, nil
}

// decodeTexts decodes an array of texts; see array for the format.
func decodeTexts(b []byte) ([]string, error) {
	if len(b) < 12 || binary.BigEndian.Uint32(b) == 0 {
		return nil, nil
	}
	if len(b) < arrayHeader || binary.BigEndian.Uint32(b) != 1 {
		return nil, errRow
	}
	count := int(binary.BigEndian.Uint32(b[12:]))
	b = b[arrayHeader:]
	if count > len(b)/4 {
		return nil, errRow
	}
	texts := make([]string, count)
	for i := range texts {
		if len(b) < 4 {
			return nil, errRow
		}
		length := int64(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // its bits
		b = b[4:]
		if length < 0 || length > int64(len(b)) {
			return nil, errRow
		}
		texts[i], b = string(b[:length]), b[length:]
	}
	return texts, nil
}
