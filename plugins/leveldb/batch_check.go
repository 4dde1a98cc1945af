// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// A record of a log is a batch, integers in little-endian order:
//
//	sequence  8 bytes, the engine's own number of the first entry
//	count     4 bytes, of entries
//	entries   1 byte type (0 deletion, 1 value), key; a value too. Each is a length and bytes.
//
// The engine skips a batch that does not look like that, and one whose sequence
// is not above those before it.
const (
	batchHeader = 12
	maxSequence = 1<<56 - 1
)

// batchCheck is a recordSink that checks batches without keeping them.
type batchCheck struct {
	sequence uint64 // what the next batch must have at least

	header  [batchHeader]byte
	filled  int
	entries uint32
	state   batchState
	value   bool   // the entry has a value
	length  uint64 // of the key or value; then what is missing of it
	shift   uint
}

type batchState int

const (
	inHeader batchState = iota
	atEntry
	inKeyLength
	inKey
	inValueLength
	inValue
)

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errBadRecord, fmt.Sprintf(format, args...))
}

func (c *batchCheck) part(b []byte) error {
	for len(b) > 0 {
		switch c.state {
		case inHeader:
			n := copy(c.header[c.filled:], b)
			b, c.filled = b[n:], c.filled+n
			if c.filled == batchHeader {
				c.state = atEntry
			}
		case atEntry:
			if b[0] > 1 {
				return bad("an entry of type %d", b[0])
			}
			c.value, b = b[0] == 1, b[1:]
			c.entries++
			c.state, c.length, c.shift = inKeyLength, 0, 0
		case inKeyLength, inValueLength:
			if bits.Len8(b[0]&0x7f) > 32-int(c.shift) {
				return bad("a length that is out of range")
			}
			c.length |= uint64(b[0]&0x7f) << c.shift
			c.shift += 7
			more := b[0]&0x80 != 0
			b = b[1:]
			if !more {
				c.state++
				c.skip(0)
			}
		case inKey, inValue:
			n := min(c.length, uint64(len(b)))
			b = b[n:]
			c.skip(n)
		}
	}
	return nil
}

// skip passes n bytes of a key or value.
func (c *batchCheck) skip(n uint64) {
	c.length -= n
	switch {
	case c.length > 0:
	case c.state == inKey && c.value:
		c.state, c.shift = inValueLength, 0
	default:
		c.state = atEntry
	}
}

func (c *batchCheck) end() error {
	sequence := binary.LittleEndian.Uint64(c.header[:])
	count := binary.LittleEndian.Uint32(c.header[8:])
	switch {
	case c.state != atEntry:
		return bad("a batch that ends in the middle of an entry")
	case count != c.entries:
		return bad("a batch of %d entries that says it has %d", c.entries, count)
	case sequence < c.sequence:
		return bad("a batch with sequence %d behind one below %d", sequence, c.sequence)
	case sequence > maxSequence-uint64(count):
		return bad("a batch with sequence %d", sequence)
	}
	*c = batchCheck{sequence: sequence + uint64(count)}
	return nil
}
