// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
)

// A record of a manifest is a change to the set of files: fields, each a varint tag and its
// contents.
const (
	fieldComparer    = 1 // bytes
	fieldLog         = 2 // number of the oldest log that counts
	fieldNextFile    = 3 // number
	fieldSequence    = 4 // number: lower bound of the sequences in the logs
	fieldCompaction  = 5 // level, key
	fieldDeleteTable = 6 // level, number
	fieldAddTable    = 7 // level, number, size, key, key
	fieldPreviousLog = 9 // number of another log that counts
)

const (
	maxManifestRecord = 256 << 20
	maxLevel          = 1 << 10
)

// manifest is the sum of its records. It is a recordSink.
type manifest struct {
	comparer         string
	log, previousLog uint64
	sequence         uint64
	has              [fieldPreviousLog + 1]bool
	tables           map[uint64]int // number to level

	record bytes.Buffer
}

func (m *manifest) part(b []byte) error {
	if m.record.Len()+len(b) > maxManifestRecord {
		return badRecordf("record of more than %d bytes", maxManifestRecord)
	}
	m.record.Write(b)
	return nil
}

func (m *manifest) end() error {
	f := fields{rest: m.record.Bytes()}
	for len(f.rest) > 0 && !f.bad {
		m.apply(f.number(), &f)
	}
	m.record.Reset()
	if f.bad {
		return badRecordf("malformed field")
	}
	return nil
}

func (m *manifest) apply(tag uint64, f *fields) {
	switch tag {
	case fieldComparer:
		m.comparer = string(f.bytes())
	case fieldLog:
		m.log = f.file()
	case fieldPreviousLog:
		m.previousLog = f.file()
	case fieldNextFile:
		f.file()
	case fieldSequence:
		m.sequence = f.number()
	case fieldCompaction:
		f.level()
		f.bytes()
	case fieldDeleteTable:
		level, table := f.level(), f.file()
		if at, ok := m.tables[table]; ok && at == level {
			delete(m.tables, table)
		}
	case fieldAddTable:
		level, table := f.level(), f.file()
		f.file()
		for range 2 {
			if len(f.bytes()) < 8 { // at least a sequence and a type
				f.bad = true
			}
		}
		if m.tables == nil {
			m.tables = make(map[uint64]int)
		}
		m.tables[table] = level
	default:
		f.bad = true // the engine has no other fields
		return
	}
	m.has[tag] = true
}

// incomplete returns the name of a missing field, or "".
func (m *manifest) incomplete() string {
	switch {
	case !m.has[fieldComparer]:
		return "comparer"
	case !m.has[fieldLog]:
		return "log"
	case !m.has[fieldNextFile]:
		return "next file"
	case !m.has[fieldSequence]:
		return "sequence"
	}
	return ""
}

func (m *manifest) tableNumbers() []uint64 { return slices.Sorted(maps.Keys(m.tables)) }

// fields decodes the fields of a record.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) number() uint64 {
	n, size := binary.Uvarint(f.rest)
	if size <= 0 {
		f.bad, f.rest = true, nil
		return 0
	}
	f.rest = f.rest[size:]
	return n
}

// file reads the number or the size of a file.
func (f *fields) file() uint64 {
	n := f.number()
	if n > 1<<62 {
		f.bad = true
	}
	return n
}

func (f *fields) level() int {
	n := f.number()
	if n > maxLevel {
		f.bad = true
	}
	return int(min(n, maxLevel))
}

func (f *fields) bytes() []byte {
	b, rest, ok := cutBytes(f.rest)
	if !ok {
		f.bad = true
	}
	f.rest = rest
	return b
}
