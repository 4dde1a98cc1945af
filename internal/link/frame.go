// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// frameVersion is the first byte of a frame. Later minor versions may extend the header extension
// or add types of messages; this version skips the additions.
const frameVersion = 1

const (
	flagLanes          = 0b0011
	flagSequenced      = 0b0100
	flagRequestsCredit = 0b1000
)

const (
	// maxHeader and maxPrefix are the largest sizes of a frame header and of the fields before a
	// payload.
	maxHeader = 2 + 1 + identity.MaxNameLength + 8 + 8 + 3*binary.MaxVarintLen64 + 1
	maxPrefix = 1 + 3 + binary.MaxVarintLen64 + 2*binary.MaxVarintLen32
)

// Frame is the unit that two machines exchange:
//
//	version | flags | name | UID | receiver's UID | epoch, number, offset | extension | messages
type Frame struct {
	Lane Lane
	From identity.Node
	// To is the UID of the receiving incarnation, or 0 if the frame is for a bare name.
	To uint64
	// Sequenced marks a frame of a link. Epoch, Number and Offset are valid only if it is set.
	Sequenced bool
	Epoch     uint64
	Number    uint64
	// Offset is the number of bytes of credit that the link used before this frame.
	Offset uint64
	// RequestsCredit makes the receiver send a grant.
	RequestsCredit bool
	// Body holds the encoded messages.
	Body []byte
}

// AppendFrame appends the encoding of a frame.
func AppendFrame(dst []byte, f Frame) []byte {
	flags := byte(f.Lane)
	if f.Sequenced {
		flags |= flagSequenced
	}
	if f.RequestsCredit {
		flags |= flagRequestsCredit
	}
	dst = append(dst, frameVersion, flags, byte(len(f.From.Name))) //nolint:gosec // a name has at most 128 bytes
	dst = append(dst, f.From.Name...)
	dst = binary.BigEndian.AppendUint64(dst, f.From.UID)
	dst = binary.BigEndian.AppendUint64(dst, f.To)
	if f.Sequenced {
		dst = binary.AppendUvarint(dst, f.Epoch)
		dst = binary.AppendUvarint(dst, f.Number)
		dst = binary.AppendUvarint(dst, f.Offset)
	}
	dst = append(dst, 0) // no extension
	return append(dst, f.Body...)
}

// DecodeFrame decodes a frame and checks the encoding of its messages. The result refers to b. The
// error matches ErrMalformed.
func DecodeFrame(b []byte) (Frame, error) {
	r := reader{b: b}
	version, flags := r.byte(), r.byte()
	if len(b) > 0 && version != frameVersion {
		return Frame{}, ErrVersion
	}
	name := r.bytes(uint64(r.byte()))
	f := Frame{
		Lane:           Lane(flags & flagLanes),
		Sequenced:      flags&flagSequenced != 0,
		RequestsCredit: flags&flagRequestsCredit != 0,
		From:           identity.Node{Name: string(name), UID: r.uint64()},
		To:             r.uint64(),
	}
	if f.Sequenced {
		f.Epoch, f.Number, f.Offset = r.uvarint(), r.uvarint(), r.uvarint()
	}
	r.bytes(r.uvarint())
	switch {
	case r.failed:
		return Frame{}, fmt.Errorf("%w: truncated header", ErrMalformed)
	case f.Lane >= Lanes || f.From.UID == 0 || identity.CheckName(f.From.Name) != nil:
		return Frame{}, fmt.Errorf("%w: lane %d from %.140q", ErrMalformed, f.Lane, f.From.Name)
	case f.Sequenced && (f.Epoch == 0 || f.Number == 0 || f.To == 0 || f.Offset > math.MaxInt64):
		return Frame{}, fmt.Errorf("%w: epoch %d, number %d, offset %d to UID %d", ErrMalformed, f.Epoch, f.Number, f.Offset, f.To)
	}
	f.Body = r.b
	for body := (reader{b: f.Body}); len(body.b) > 0; {
		if _, ok := body.entry(); !ok {
			return Frame{}, fmt.Errorf("%w: truncated message", ErrMalformed)
		}
	}
	return f, nil
}

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

	// rest is the number of bytes of the message that follow in later frames.
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

// reader consumes b from the front. After the first failure it returns zero values.
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

// Kind is the subject of a message. The communicating packages choose it; package transport assigns
// their ranges.
type Kind uint16

// Type is the role of a message on the link.
type Type uint8

const (
	// Tell is a one-way message.
	Tell Type = 1
	// Request is a message that expects a Reply with the same correlation number.
	Request Type = 2
	// Reply answers a Request. Its kind is a status.
	Reply Type = 3
)

// Types that machines use among themselves.
const (
	continuation Type = 4 // the next part of the message that the previous frame began
	grant        Type = 5 // kind: the lane, correlation: its epoch, payload: the offset up to which the receiver may send
	notice       Type = 6 // correlation: the UID of the quarantined incarnation
)

// Message is one message, sent or delivered.
type Message struct {
	Type Type
	Kind Kind
	// Correlation is equal in a Request and its Reply. It is 0 in other messages.
	Correlation uint64
	// Compressed marks a compressed payload. Links do not interpret it.
	Compressed bool
	Payload    []byte
}

// messageOverhead is the cost of a message in addition to its payload, in bytes of credit. It is
// the memory of the bookkeeping of a waiting message, and part of the protocol: both sides count it.
const messageOverhead = 256

func cost(payload int) int { return payload + messageOverhead }

// Lane is one of the parallel paths between two nodes; see transport.Lane.
type Lane uint8

// The lanes.
const (
	Control Lane = iota
	Data
	Bulk

	// Lanes is the number of lanes.
	Lanes = 3
)

// String returns "control", "data" or "bulk".
func (l Lane) String() string {
	return enum.Name(l, "lane", "control", "data", "bulk")
}

// Credited reports whether a sender needs credit on the lane.
func (l Lane) Credited() bool { return l == Data || l == Bulk }

// Reason is the reason for dropping a frame or a message. transport.Reason documents the values.
// The zero value is no reason.
type Reason uint8

// The reasons, in the order of their names in String.
const (
	Malformed Reason = iota + 1
	Version
	Forged
	WrongReceiver
	WrongLane
	Quarantined
	Stale
	Old
	OverCredit
	TooLarge
	TooManyPeers
	Incomplete
	UnknownType
	Forgotten
	NoHandler
	LateReply
	Undecompressed
	Panicked
	Unsent
	Closing
	Overload
	Stranger

	// Reasons is the number of reasons, including the zero value.
	Reasons
)

// String returns the reason in snake case, as metrics use it.
func (r Reason) String() string {
	return enum.Name(r, "reason",
		"none", "malformed", "version", "forged", "wrong_receiver", "wrong_lane", "quarantined", "stale", "old",
		"over_credit", "too_large", "too_many_peers", "incomplete", "unknown_type", "forgotten",
		"no_handler", "late_reply", "undecompressed", "panicked", "unsent", "closing", "overload", "stranger", "none")
}
