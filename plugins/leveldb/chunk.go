// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"hash/crc32"
)

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
