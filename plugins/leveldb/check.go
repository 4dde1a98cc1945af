// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

// scanner reads a log and distinguishes damage from a torn tail. Data is acknowledged after a sync,
// and later data is written after this sync. Therefore only the end of a log may be broken: the
// data that was being written when the power failed.
//
// Damage is a torn tail if no valid chunk follows at any offset. There is one exception. A record
// of several blocks is written at once and its blocks reach the disk in any order, so later parts
// may be present without an earlier one. Such parts count as the rest of a torn record if nothing
// else follows and a whole sector of the damaged chunk is zero. A sector that was never written is
// zero.
type scanner struct {
	file string
	add  func(record []byte) error

	block    [blockSize]byte
	n        int    // valid bytes in block
	offset   int64  // of block in the file
	inRecord bool   // the record of the last chunk continues
	record   []byte // its data so far
	begin    int64  // its offset

	valid bool // a valid chunk was found
	torn  int64
	tail  tail
}

// tail is the data that may follow the first damage.
type tail int

const (
	tailNone    tail = iota // no damage so far
	tailNothing             // no data
	tailParts               // the later parts of the damaged record
)

// scanLog reads a log to its end and calls add with each record. It returns whether the log holds a
// valid chunk, and the offset of a torn tail or -1. The error is a *journal.CorruptError for damage
// or a failed add, or else the error of reading.
func scanLog(file string, r io.Reader, add func(record []byte) error) (valid bool, torn int64, err error) {
	s := scanner{file: file, add: add, torn: -1}
	for err == nil {
		s.n, err = io.ReadFull(r, s.block[:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, -1, fmt.Errorf("read %s: %w", file, err)
		}
		if serr := s.scanBlock(); serr != nil {
			return false, -1, serr
		}
		s.offset += int64(s.n)
	}
	if s.inRecord && s.torn < 0 {
		s.torn = s.begin
	}
	return s.valid, s.torn, nil
}

func (s *scanner) corrupt(offset int64, format string, args ...any) error {
	return &journal.CorruptError{File: s.file, Offset: offset, Detail: fmt.Sprintf(format, args...)}
}

func (s *scanner) scanBlock() error {
	if s.tail != tailNone {
		return s.scanTail()
	}
	pos := 0
	for s.n-pos >= chunkHeader || s.n < blockSize && pos < s.n {
		c, damage := cutChunk(s.block[pos:s.n])
		if damage != "" {
			return s.damaged(pos, damage)
		}
		if err := s.take(pos, c); err != nil {
			return err
		}
		pos += c.size()
	}
	return nil
}

func (s *scanner) take(pos int, c chunk) error {
	at := s.offset + int64(pos)
	s.valid = true
	switch {
	case c.starts() && s.inRecord:
		return s.corrupt(s.begin, "record without an end before another record")
	case !c.starts() && !s.inRecord:
		return s.corrupt(at, "record without a beginning")
	case c.starts():
		s.begin, s.record = at, s.record[:0]
	}
	s.inRecord = !c.ends()
	s.record = append(s.record, c.data...)
	if s.inRecord {
		return nil
	}
	if err := s.add(s.record); err != nil {
		return s.corrupt(s.begin, "malformed record: %v", err)
	}
	return nil
}

// damaged checks the data after the first damage, at pos.
func (s *scanner) damaged(pos int, damage string) error {
	s.torn = s.offset + int64(pos)
	if s.inRecord {
		s.torn = s.begin
	}
	s.tail = tailNothing
	if lostSector(s.block[:s.n], pos) {
		s.tail = tailParts
	}
	if findChunk(s.block[min(pos+1, s.n):s.n]) {
		return s.corrupt(s.offset+int64(pos), "%s before a valid chunk", damage)
	}
	return nil
}

// scanTail searches a block after the damage for valid chunks.
func (s *scanner) scanTail() error {
	pos := 0
	for s.tail == tailParts {
		c, damage := cutChunk(s.block[pos:s.n])
		if damage != "" || c.starts() {
			break
		}
		if c.ends() {
			s.tail = tailNothing
		}
		pos += c.size()
	}
	if findChunk(s.block[pos:s.n]) {
		return s.corrupt(s.torn, "damage before a valid chunk")
	}
	return nil
}

// A log is a sequence of blocks of 32 KiB, of which the last may be shorter. A block is a sequence
// of chunks; fewer than seven bytes after the last chunk are unused. A chunk is
//
//	checksum  4 bytes, CRC-32C of type and data, masked
//	length    2 bytes, of the data
//	type      1 byte: 1 a whole record; 2, 3, 4 its first, a middle, its last part
//	data
//
// with integers in little-endian order. Manifests have the same format.
const (
	blockSize   = 32 << 10
	chunkHeader = 7
)

const (
	chunkFull = 1 + iota
	chunkFirst
	chunkMiddle
	chunkLast
)

// chunk is a part of a record; data is part of the block.
type chunk struct {
	kind byte
	data []byte
}

func (c chunk) size() int { return chunkHeader + len(c.data) }

// starts reports whether the chunk begins a record, ends whether it ends one.
func (c chunk) starts() bool { return c.kind == chunkFull || c.kind == chunkFirst }
func (c chunk) ends() bool   { return c.kind == chunkFull || c.kind == chunkLast }

// cutChunk returns the chunk at the beginning of b, the rest of a block, or a description of its
// damage.
func cutChunk(b []byte) (c chunk, damage string) {
	if len(b) < chunkHeader {
		return c, "truncated chunk"
	}
	sum := binary.LittleEndian.Uint32(b)
	length := int(binary.LittleEndian.Uint16(b[4:]))
	kind := b[6]
	switch {
	case sum == 0 && length == 0 && kind == 0:
		return c, "zeros instead of a chunk"
	case kind < chunkFull || kind > chunkLast:
		return c, "chunk of an unknown type"
	case length > len(b)-chunkHeader:
		return c, "chunk exceeds its block"
	case sum != chunkChecksum(b[6:chunkHeader+length]):
		return c, "chunk checksum mismatch"
	}
	return chunk{kind: kind, data: b[chunkHeader : chunkHeader+length]}, ""
}

// chunkChecksum is the masked checksum of type and data.
func chunkChecksum(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

// findChunk reports whether b contains a valid chunk at any offset.
func findChunk(b []byte) bool {
	for ; len(b) >= chunkHeader; b = b[1:] {
		if _, damage := cutChunk(b); damage == "" {
			return true
		}
	}
	return false
}

// sectorSize is the number of bytes that a disk writes atomically.
const sectorSize = 512

// lostSector reports whether a sector of b, or its part within b, is all zeros. b ends at the end
// of a block, which is the end of a sector or of the file.
func lostSector(block []byte, from int) bool {
	for from < len(block) {
		end := min((from/sectorSize+1)*sectorSize, len(block))
		if bytes.Count(block[from:end], []byte{0}) == end-from {
			return true
		}
		from = end
	}
	return false
}
