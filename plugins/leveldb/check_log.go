// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/refold-io/refold/journal"
)

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
