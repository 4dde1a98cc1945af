// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/refold-io/refold/journal"
)

// recordSink is given the records of a log, in parts.
type recordSink interface {
	// part is given the next bytes of a record, which it must not keep.
	part(b []byte) error
	// end ends the record.
	end() error
}

// scanner reads a log and tells damage from a torn tail. What is acknowledged was
// synced before anything behind it was written, so at the end, and only there,
// may stand something broken: what was being written when the power was cut.
//
// Damage is a torn tail if no valid chunk follows, at any offset. One exception:
// a record of several blocks is written in one go and its blocks reach the disk
// in any order, so its later parts may be there when an earlier one is not. They
// are taken for the rest of a torn record if nothing else follows and if a
// whole sector of the damaged chunk is zeros, which is what a sector that was never
// written reads as.
type scanner struct {
	file string
	sink recordSink

	block    [blockSize]byte
	n        int   // valid bytes in block
	offset   int64 // of block in the file
	inRecord bool  // the record of the last chunk goes on
	record   int64 // where it began

	valid bool // there was a valid chunk
	torn  int64
	tail  tail
}

// tail is what may follow the first damage.
type tail int

const (
	tailNone    tail = iota // no damage yet
	tailNothing             // nothing
	tailParts               // the later parts of the damaged record
)

// scanLog reads a log to its end. It returns whether it holds a valid chunk, and
// the offset of a torn tail, -1 if there is none. The error is a
// *journal.CorruptError, or that of reading or of the sink.
func scanLog(file string, r io.Reader, sink recordSink) (valid bool, torn int64, err error) {
	s := scanner{file: file, sink: sink, torn: -1}
	for err == nil {
		s.n, err = io.ReadFull(r, s.block[:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, -1, fmt.Errorf("reading %s: %w", file, err)
		}
		if serr := s.scanBlock(); serr != nil {
			return false, -1, serr
		}
		s.offset += int64(s.n)
	}
	if s.inRecord && s.torn < 0 {
		s.torn = s.record
	}
	return s.valid, s.torn, nil
}

func (s *scanner) corrupt(offset int64, format string, args ...any) error {
	return &journal.CorruptError{File: s.file, Offset: offset, Detail: fmt.Sprintf(format, args...)}
}

func (s *scanner) scanBlock() error {
	pos := 0
	if s.tail != tailNone {
		return s.scanTail(pos)
	}
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

// take gives a valid chunk to the sink.
func (s *scanner) take(pos int, c chunk) error {
	at := s.offset + int64(pos)
	s.valid = true
	switch {
	case c.starts() && s.inRecord:
		return s.corrupt(s.record, "a record without an end, and another one behind it")
	case !c.starts() && !s.inRecord:
		return s.corrupt(at, "a record without a beginning")
	case c.starts():
		s.record = at
	}
	s.inRecord = !c.ends()
	err := s.sink.part(c.data)
	if err == nil && c.ends() {
		err = s.sink.end()
	}
	if errors.Is(err, errBadRecord) {
		return s.corrupt(s.record, "%v", err)
	}
	return err
}

// damaged looks at what follows the first damage, at pos.
func (s *scanner) damaged(pos int, damage string) error {
	s.torn = s.offset + int64(pos)
	if s.inRecord {
		s.torn = s.record
	}
	s.tail = tailNothing
	if lostSector(s.block[:s.n], pos) {
		s.tail = tailParts
	}
	if findChunk(s.block[min(pos+1, s.n):s.n]) {
		return s.corrupt(s.offset+int64(pos), "%s, and a valid one stands behind it", damage)
	}
	return nil
}

// scanTail looks for valid chunks in a block behind the damage.
func (s *scanner) scanTail(pos int) error {
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
		return s.corrupt(s.torn, "damaged, and a valid chunk stands behind it")
	}
	return nil
}

// errBadRecord is wrapped by a sink that finds nonsense in a record whose
// checksums match.
var errBadRecord = errors.New("a record makes no sense")

// A log is a sequence of blocks of 32 KiB, of which the last may be shorter. A
// block is a sequence of chunks; fewer than seven bytes behind the last one are
// unused. A chunk is
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

// starts reports whether a record begins with the chunk, ends whether it ends
// with it.
func (c chunk) starts() bool { return c.kind == chunkFull || c.kind == chunkFirst }
func (c chunk) ends() bool   { return c.kind == chunkFull || c.kind == chunkLast }

// cutChunk returns the chunk at the beginning of b, the rest of a block, or what
// is wrong with it.
func cutChunk(b []byte) (c chunk, damage string) {
	if len(b) < chunkHeader {
		return c, "a chunk is cut short"
	}
	sum := binary.LittleEndian.Uint32(b)
	length := int(binary.LittleEndian.Uint16(b[4:]))
	kind := b[6]
	switch {
	case sum == 0 && length == 0 && kind == 0:
		return c, "zeros instead of a chunk"
	case kind < chunkFull || kind > chunkLast:
		return c, "a chunk of an unknown type"
	case length > len(b)-chunkHeader:
		return c, "a chunk does not fit its block"
	case sum != chunkChecksum(b[6:chunkHeader+length]):
		return c, "the checksum of a chunk does not match"
	}
	return chunk{kind: kind, data: b[chunkHeader : chunkHeader+length]}, ""
}

// chunkChecksum is the masked checksum of type and data.
func chunkChecksum(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

// findChunk reports whether there is a valid chunk anywhere in b.
func findChunk(b []byte) bool {
	for ; len(b) >= chunkHeader; b = b[1:] {
		if _, damage := cutChunk(b); damage == "" {
			return true
		}
	}
	return false
}

// sectorSize is what a disk writes as a whole.
const sectorSize = 512

// lostSector reports whether a sector of b, or the part of it that is in b, has
// only zeros. b is the end of a block, which ends a sector or the file.
func lostSector(block []byte, from int) bool {
	for from < len(block) {
		end := min((from/sectorSize+1)*sectorSize, len(block))
		if allZero(block[from:end]) {
			return true
		}
		from = end
	}
	return false
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
