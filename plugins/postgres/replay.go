// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/refold-io/refold/journal"
)

// Replay implements journal.Journal. It reads pages, and each page is one
// statement on whatever connection is free then. The payloads of a page share memory: who
// keeps one for long without the others may want to copy it.
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

// replayPage is what one statement of a replay has read. Its memory is used
// again for the next one.
type replayPage struct {
	events  []journal.Event
	decoder rowDecoder
	next    uint64 // where the next page begins; 0 if there is none
	large   bool   // the next page may have large events
	cut     bool   // it ends before a large event
}

// readPage reads the events of the next range of numbers, or as many of them as
// fit.
func (j *Journal) readPage(ctx context.Context, p *replayPage, id string, from, to uint64) error {
	clear(p.events)
	p.events, p.next, p.cut = p.events[:0], 0, false
	end := to
	if to-from >= pageRecords {
		end = from + pageRecords - 1
	}
	st := &j.db.sql.replay
	if p.large {
		st = &j.db.sql.replayLarge
	}
	params := [][]byte{[]byte(id), int8Value(from), int8Value(end), int8Value(to)}
	err := j.ask(ctx, id, st, params, func(values [][]byte) error {
		if err := p.row(values); err != nil {
			return &journal.CorruptError{File: j.db.target, Offset: -1, Detail: fmt.Sprintf("an event of %q: %v", id, err)}
		}
		return nil
	})
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
		p.next = p.events[n-1].SequenceNr + 1 // there was no room for more, perhaps
	case n == pageRecords:
		p.large = false
	}
	return nil
}

// row takes in one row of a page.
func (p *replayPage) row(values [][]byte) (err error) {
	if len(values) != 8 {
		return errRow
	}
	if b := values[7]; len(b) == 8 {
		p.next = binary.BigEndian.Uint64(b)
	}
	if values[0] == nil || p.cut { // it is only there for the number, or behind a large event
		return nil
	}
	if p.cut = values[4] == nil; p.cut {
		return nil
	}
	e, err := p.decoder.row(values[:7])
	if err == nil {
		p.events = append(p.events, e)
	}
	return err
}

// rowDecoder makes events of the rows of a result. It is as quick as it is
// because it cuts payloads off one piece of memory, and because the names in a row are
// often those of the row before.
type rowDecoder struct {
	writer, manifest string
	arena            []byte // what was cut off it is never used again
}

// row makes an event of the columns that rowColumns names. It copies what it
// keeps.
func (d *rowDecoder) row(values [][]byte) (journal.Event, error) {
	if len(values) != 7 || len(values[0]) != 8 || len(values[1]) != 8 {
		return journal.Event{}, errRow
	}
	tags, err := decodeTexts(values[5])
	if err != nil {
		return journal.Event{}, err
	}
	if string(values[2]) != d.writer {
		d.writer = string(values[2])
	}
	if string(values[3]) != d.manifest {
		d.manifest = string(values[3])
	}
	return journal.Event{
		SequenceNr: binary.BigEndian.Uint64(values[0]),
		Time:       decodeTime(values[1]),
		Writer:     d.writer,
		Manifest:   d.manifest,
		Payload:    d.keep(values[4]),
		Tags:       tags,
		Metadata:   d.keep(values[6]),
	}, nil
}

const (
	minArena = 4 << 10
	maxArena = 256 << 10
)

// keep copies a value.
func (d *rowDecoder) keep(value []byte) []byte {
	if len(value) == 0 {
		return nil
	}
	if len(value) > cap(d.arena)-len(d.arena) {
		d.arena = make([]byte, 0, max(len(value), min(2*cap(d.arena), maxArena), minArena))
	}
	n := len(d.arena)
	d.arena = append(d.arena, value...)
	return d.arena[n:len(d.arena):len(d.arena)]
}
