// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import "encoding/binary"

const (
	tagTypes      = 0b0000_1111
	tagMore       = 0b0100_0000
	tagCompressed = 0b1000_0000
)

// entry is a message in a frame, or a part of one:
//
//	tag | kind | correlation | rest, if there is more | length | payload
type entry struct {
	Message

	// rest is how many bytes of the message are still to come, in later frames.
	rest uint64
}

func appendEntry(dst []byte, e entry) []byte {
	tag := byte(e.Type)
	if e.rest > 0 {
		tag |= tagMore
	}
	if e.Compressed {
		tag |= tagCompressed
	}
	dst = append(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(e.Kind))
	dst = binary.AppendUvarint(dst, e.Correlation)
	if e.rest > 0 {
		dst = binary.AppendUvarint(dst, e.rest)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.Payload)))
	return append(dst, e.Payload...)
}

// reader reads from the front of b. Once something is missing it has failed, and
// returns zeros.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) entry() (entry, bool) {
	tag := r.byte()
	e := entry{Message: Message{Type: Type(tag & tagTypes), Compressed: tag&tagCompressed != 0}}
	kind := r.uvarint()
	e.Kind, e.Correlation = Kind(kind), r.uvarint() //nolint:gosec // checked below
	if tag&tagMore != 0 {
		e.rest = r.uvarint()
	}
	e.Payload = r.bytes(r.uvarint())
	return e, !r.failed && kind <= 1<<16-1 && (tag&tagMore == 0 || e.rest > 0)
}

func (r *reader) byte() byte {
	if b := r.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || r.failed {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) bytes(n uint64) []byte {
	if r.failed || n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) fail() { r.b, r.failed = nil, true }
