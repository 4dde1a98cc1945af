// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"encoding/binary"

	"github.com/refold-io/refold/journal"
)

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
