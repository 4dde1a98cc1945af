// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/journal"
)

// check verifies the manifest and the logs before the engine opens them, because the engine
// silently drops data that it cannot read. It returns the logs that hold data, in order.
func check(files storage.Storage, f format, readOnly bool) (logs []storage.FileDesc, err error) {
	all, err := files.List(storage.TypeAll)
	if err != nil {
		return nil, err
	}
	current, err := files.GetMeta()
	if err != nil {
		return nil, checkNew(files, all, readOnly, err)
	}
	m := manifest{tables: make(map[int64]uint64)}
	_, _, err = scanFile(files, current, m.add)
	if m.comparer != "" {
		// Check the version first, because a newer format may look like damage.
		if ferr := f.check(m.comparer); ferr != nil {
			return nil, ferr
		}
	}
	if err != nil {
		return nil, err
	}
	var required []storage.FileDesc
	for _, table := range slices.Sorted(maps.Keys(m.tables)) {
		required = append(required, storage.FileDesc{Type: storage.TypeTable, Num: table})
	}
	if m.log != 0 { // 0: power failure before the first log
		required = append(required, storage.FileDesc{Type: storage.TypeJournal, Num: m.log})
	}
	for _, fd := range required {
		if !slices.Contains(all, fd) {
			return nil, corruptf(fd.String(), "the file is missing")
		}
	}
	logs = slices.DeleteFunc(all, func(fd storage.FileDesc) bool {
		return fd.Type != storage.TypeJournal || fd.Num < m.log && (m.previousLog == 0 || fd.Num != m.previousLog)
	})
	slices.SortFunc(logs, func(a, b storage.FileDesc) int { return cmp.Compare(a.Num, b.Num) })
	return logs, checkLogs(files, logs, m.sequence)
}

// checkNew replaces check when no current manifest can be determined, for the given reason. The
// permitted cases are an empty directory and a power failure during the creation of the database.
// In both cases there is neither a log nor a table.
func checkNew(files storage.Storage, all []storage.FileDesc, readOnly bool, reason error) error {
	var damaged *storage.ErrCorrupted
	if !errors.Is(reason, os.ErrNotExist) && !errors.As(reason, &damaged) {
		return reason
	}
	for _, fd := range all {
		if fd.Type == storage.TypeJournal || fd.Type == storage.TypeTable {
			return corrupt("CURRENT", reason)
		}
	}
	if readOnly {
		return fmt.Errorf("no database: %w", os.ErrNotExist)
	}
	for _, fd := range all {
		if fd.Type == storage.TypeManifest { // the engine would treat it as a part of a damaged database
			if err := files.Remove(fd); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkLogs(files storage.Storage, logs []storage.FileDesc, sequence uint64) error {
	var tornLog storage.FileDesc
	tornAt := int64(-1)
	for _, fd := range logs {
		valid, torn, err := scanFile(files, fd, func(record []byte) (err error) {
			sequence, err = checkBatch(record, sequence)
			return err
		})
		if err != nil {
			return err
		}
		if valid && tornAt >= 0 {
			return &journal.CorruptError{File: tornLog.String(), Offset: tornAt, Detail: fmt.Sprintf("damaged record before valid records in %s", fd)}
		}
		if torn >= 0 && tornAt < 0 {
			tornLog, tornAt = fd, torn
		}
	}
	return nil
}

func scanFile(files storage.Storage, fd storage.FileDesc, add func(record []byte) error) (valid bool, torn int64, err error) {
	r, err := files.Open(fd)
	if err != nil {
		return false, -1, err
	}
	valid, torn, err = scanLog(fd.String(), r, add)
	return valid, torn, errors.Join(err, r.Close())
}

// A log record is a batch. Integers are little-endian. Keys and values have a varint length prefix:
//
//	sequence  8 bytes, the engine's number of the first entry
//	count     4 bytes, the number of entries
//	entries   1 byte type (0 deletion, 1 value), the key, and, for type 1, the value
const (
	batchHeader = 12
	maxSequence = 1<<56 - 1
)

// checkBatch returns an error if the engine would skip the batch, because the batch is malformed or
// its sequence is below the given one. It returns the lowest valid sequence of the next batch.
func checkBatch(b []byte, lowest uint64) (next uint64, err error) {
	if len(b) < batchHeader {
		return 0, fmt.Errorf("batch has %d bytes", len(b))
	}
	sequence, count := binary.LittleEndian.Uint64(b), uint64(binary.LittleEndian.Uint32(b[8:]))
	entries := uint64(0)
	for b = b[batchHeader:]; len(b) > 0; entries++ {
		kind := b[0]
		if kind > 1 {
			return 0, fmt.Errorf("entry of unknown type %d", kind)
		}
		_, rest, ok := cutBytes(b[1:])
		if ok && kind == 1 {
			_, rest, ok = cutBytes(rest)
		}
		if !ok {
			return 0, errors.New("batch ends within an entry")
		}
		b = rest
	}
	switch {
	case count != entries:
		return 0, fmt.Errorf("batch has %d entries, its header %d", entries, count)
	case sequence < lowest:
		return 0, fmt.Errorf("batch has sequence %d, want at least %d", sequence, lowest)
	case sequence > maxSequence-count:
		return 0, fmt.Errorf("batch sequence %d out of range", sequence)
	}
	return sequence + count, nil
}

// A record of a manifest describes a change to the set of files. It is a list of fields. Each field
// is a varint tag and its contents.
const (
	fieldComparer    = 1 // bytes
	fieldLog         = 2 // number of the oldest log to replay
	fieldNextFile    = 3 // number
	fieldSequence    = 4 // number: lower bound of the sequences in the logs
	fieldCompaction  = 5 // level, key
	fieldDeleteTable = 6 // level, number
	fieldAddTable    = 7 // level, number, size, key, key
	fieldPreviousLog = 9 // number of another log to replay
)

// manifest holds the result of all records. The engine rejects a manifest that lacks a field.
type manifest struct {
	comparer         string
	log, previousLog int64
	sequence         uint64
	tables           map[int64]uint64 // number to level
}

func (m *manifest) add(record []byte) error {
	f := fields{rest: record}
	for len(f.rest) > 0 && !f.malformed {
		m.apply(f.number(), &f)
	}
	if f.malformed {
		return errors.New("malformed field")
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
				f.malformed = true
			}
		}
		m.tables[table] = level
	default: // the engine has no other fields
		f.malformed = true
	}
}

// file reads the number or the size of a file.
func (f *fields) file() int64 {
	n := f.number()
	f.malformed = f.malformed || n > 1<<62
	return int64(n) //nolint:gosec // checked
}

func (f *fields) level() uint64 {
	n := f.number()
	f.malformed = f.malformed || n > 1<<10
	return n
}

// The footer of a table consists of two block handles (each a varint offset and a varint length),
// zeros, and the magic number. No checksum covers the footer.
const (
	footerSize       = 48
	blockTrailerSize = 5
)

var errFooter = errors.New("damaged table footer")

// checkFooter returns an error if the footer points outside the table. The engine checks the rest.
func checkFooter(r storage.Reader) error {
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil || size < footerSize {
		return err
	}
	var footer [footerSize]byte
	if _, err := r.ReadAt(footer[:], size-footerSize); err != nil {
		return err
	}
	end := uint64(size - footerSize)
	handles := fields{rest: footer[:]}
	for range 2 {
		offset, length := handles.number(), handles.number()
		if handles.malformed || offset > end || length > end-offset || blockTrailerSize > end-offset-length {
			return errFooter
		}
	}
	return nil
}
