// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/refold-io/refold/journal"
)

// array builds a one-dimensional array in the binary format of the server. Numbers are big-endian:
//
//	dimensions  4 bytes: 1, or 0 without elements
//	nulls       4 bytes: 1 if there are any
//	type        4 bytes, of the elements
//	length      4 bytes, and 4 bytes of the lowest index
//	elements    4 bytes length, -1 for NULL, and as many bytes
type array struct {
	buf    []byte
	length uint32
	nulls  byte
	oid    uint32
}

const arrayHeader = 20

// reset empties the array.
func (a *array) reset(oid uint32) {
	var header [arrayHeader]byte
	*a = array{buf: append(a.buf[:0], header[:]...), oid: oid}
}

func (a *array) null() {
	a.length++
	a.nulls = 1
	a.buf = append(a.buf, 0xff, 0xff, 0xff, 0xff)
}

func (a *array) text(s string) {
	a.length++
	a.buf = append(binary.BigEndian.AppendUint32(a.buf, uint32(len(s))), s...) //nolint:gosec // limited
}

func (a *array) bytes(b []byte) {
	a.length++
	a.buf = append(binary.BigEndian.AppendUint32(a.buf, uint32(len(b))), b...) //nolint:gosec // limited
}

func (a *array) int2(n int16) {
	a.length++
	a.buf = binary.BigEndian.AppendUint16(append(a.buf, 0, 0, 0, 2), uint16(n)) //nolint:gosec // its bits
}

func (a *array) int4(n int32) {
	a.length++
	a.buf = binary.BigEndian.AppendUint32(append(a.buf, 0, 0, 0, 4), uint32(n)) //nolint:gosec // its bits
}

func (a *array) int8(n uint64) {
	a.length++
	a.buf = binary.BigEndian.AppendUint64(append(a.buf, 0, 0, 0, 8), n)
}

// value returns the array, which is valid until the next append after reset.
func (a *array) value() []byte {
	b := a.buf
	if a.length > 0 {
		b[3] = 1
	} else {
		b = b[:12]
	}
	b[7] = a.nulls
	binary.BigEndian.PutUint32(b[8:], a.oid)
	if a.length > 0 {
		binary.BigEndian.PutUint32(b[12:], a.length)
		b[19] = 1
	}
	return b
}

// epoch is the zero of the server's timestamps, the year 2000, in Unix microseconds.
const epoch = 946_684_800_000_000

// The range of times that can be stored. The server's own range is wider.
const (
	minYear = -4000
	maxYear = 200_000
)

func storableTime(t time.Time) bool { return t.Year() >= minYear && t.Year() <= maxYear }

// timestamp returns the server's form of a time. Times out of range become one of its infinities.
func timestamp(t time.Time) uint64 {
	micros := int64(math.MaxInt64)
	switch {
	case t.Year() < minYear:
		micros = math.MinInt64
	case t.Year() <= maxYear:
		micros = t.UnixMicro() - epoch
	}
	return uint64(micros) //nolint:gosec // its bits
}

func int2Value(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) } //nolint:gosec // small

func int8Value(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

const (
	oidInt2      = pgtype.Int2OID
	oidInt4      = pgtype.Int4OID
	oidInt8      = pgtype.Int8OID
	oidText      = pgtype.TextOID
	oidBytes     = pgtype.ByteaOID
	oidTimestamp = pgtype.TimestamptzOID

	oidInt2s      = pgtype.Int2ArrayOID
	oidInt4s      = pgtype.Int4ArrayOID
	oidInt8s      = pgtype.Int8ArrayOID
	oidTexts      = pgtype.TextArrayOID
	oidBytess     = pgtype.ByteaArrayOID
	oidTimestamps = pgtype.TimestamptzArrayOID
)

// encoder encodes chains as the array parameters of append_many.
type encoder struct {
	ids, expects                           array // one element for each chain
	heads, eventIDs, seqNrs, slices, times array // one for each event
	writers, manifests, payloads           array
	tags, metadata                         array

	tagged, annotated bool // some event has tags, or metadata
	literal           []byte
}

// maxKeptEncoder is the largest size of an encoder that is reused.
const maxKeptEncoder = 8 << 20

var encoders = sync.Pool{New: func() any { return new(encoder) }} //nolint:gochecknoglobals // a cache of memory

func getEncoder() *encoder {
	e, _ := encoders.Get().(*encoder)
	for _, each := range []struct {
		a   *array
		oid uint32
	}{
		{&e.ids, oidText},
		{&e.expects, oidInt8},
		{&e.heads, oidInt4},
		{&e.eventIDs, oidText},
		{&e.seqNrs, oidInt8},
		{&e.slices, oidInt2},
		{&e.times, oidTimestamp},
		{&e.writers, oidText},
		{&e.manifests, oidText},
		{&e.payloads, oidBytes},
		{&e.tags, oidText},
		{&e.metadata, oidBytes},
	} {
		each.a.reset(each.oid)
	}
	e.tagged, e.annotated = false, false
	return e
}

func putEncoder(e *encoder) {
	if cap(e.payloads.buf)+cap(e.metadata.buf)+cap(e.tags.buf)+cap(e.manifests.buf) <= maxKeptEncoder {
		encoders.Put(e)
	}
}

// chain adds the events of the chain with the given index.
func (e *encoder) chain(index int, c *chain, writes []journal.Write) {
	e.ids.text(c.id)
	e.expects.int8(c.expect)
	slice := int16(journal.SliceOf(c.id)) //nolint:gosec // below 1,024
	for _, i := range c.writes {
		w := &writes[i]
		for k := range w.Events {
			event := &w.Events[k]
			e.heads.int4(int32(index + 1)) //nolint:gosec // small; arrays of the server begin at 1
			e.eventIDs.text(c.id)
			e.seqNrs.int8(event.SequenceNr)
			e.slices.int2(slice)
			e.times.int8(timestamp(event.Time))
			e.writers.text(w.Writer)
			e.manifests.text(event.Manifest)
			e.payloads.bytes(event.Payload)
			e.eventTags(event.Tags)
			if len(event.Metadata) == 0 {
				e.metadata.null()
			} else {
				e.metadata.bytes(event.Metadata)
				e.annotated = true
			}
		}
	}
}

// eventTags adds the tags of an event as an array in its text form, because an array of arrays
// would have to be rectangular.
func (e *encoder) eventTags(tags []string) {
	if len(tags) == 0 {
		e.tags.null()
		return
	}
	e.tagged = true
	b := append(e.literal[:0], '{')
	for i, tag := range tags {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		for k := range len(tag) {
			if tag[k] == '"' || tag[k] == '\\' {
				b = append(b, '\\')
			}
			b = append(b, tag[k])
		}
		b = append(b, '"')
	}
	e.literal = append(b, '}')
	e.tags.bytes(e.literal)
}

func (e *encoder) params() [][]byte {
	params := [][]byte{
		e.ids.value(), e.expects.value(), e.heads.value(), e.eventIDs.value(), e.seqNrs.value(), e.slices.value(), e.times.value(),
		e.writers.value(), e.manifests.value(), e.payloads.value(), nil, nil,
	}
	if e.tagged {
		params[10] = e.tags.value()
	}
	if e.annotated {
		params[11] = e.metadata.value()
	}
	return params
}
