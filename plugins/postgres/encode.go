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
//	dimensions  4 bytes: 1
//	nulls       4 bytes: 1 if there are any
//	type        4 bytes, of the elements
//	length      4 bytes, and 4 bytes of the lowest index
//	elements    4 bytes length, -1 for NULL, and as many bytes
type array struct {
	buf    []byte
	length uint32
	nulls  uint32
	oid    uint32
}

const arrayHeader = 20

func (a *array) reset(oid uint32) {
	var header [arrayHeader]byte
	*a = array{buf: append(a.buf[:0], header[:]...), oid: oid}
}

func (a *array) text(s string) {
	a.length++
	a.buf = append(binary.BigEndian.AppendUint32(a.buf, uint32(len(s))), s...) //nolint:gosec // limited
}

// bytes adds a value, or NULL if it is empty and optional.
func (a *array) bytes(b []byte, optional bool) {
	a.length++
	if optional && len(b) == 0 {
		a.nulls++
		a.buf = append(a.buf, 0xff, 0xff, 0xff, 0xff)
		return
	}
	a.buf = append(binary.BigEndian.AppendUint32(a.buf, uint32(len(b))), b...) //nolint:gosec // limited
}

func (a *array) int2(n int) {
	a.length++
	a.buf = binary.BigEndian.AppendUint16(append(a.buf, 0, 0, 0, 2), uint16(n)) //nolint:gosec // at most 1,024
}

func (a *array) int4(n int) {
	a.length++
	a.buf = binary.BigEndian.AppendUint32(append(a.buf, 0, 0, 0, 4), uint32(n)) //nolint:gosec // below the size of a call
}

func (a *array) int8(n uint64) {
	a.length++
	a.buf = binary.BigEndian.AppendUint64(append(a.buf, 0, 0, 0, 8), n)
}

// value returns the array, or nil if all of its elements are NULL. It is valid until the next append
// after reset.
func (a *array) value() []byte {
	if a.length == a.nulls {
		return nil
	}
	b := a.buf
	b[3], b[7], b[19] = 1, byte(min(a.nulls, 1)), 1
	binary.BigEndian.PutUint32(b[8:], a.oid)
	binary.BigEndian.PutUint32(b[12:], a.length)
	return b
}

// epoch is the zero of the server's timestamps, the year 2000, in Unix microseconds.
const epoch = 946_684_800_000_000

// The range of times that can be stored. The server's own range is wider.
const (
	minYear = -4000
	maxYear = 200_000
)

// timestamp returns the server's form of a time. A time out of range becomes -infinity or infinity.
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

// elementOID returns the type of the elements of an array type.
func elementOID(array uint32) uint32 {
	switch array {
	case pgtype.Int8ArrayOID:
		return pgtype.Int8OID
	case pgtype.TimestamptzArrayOID:
		return pgtype.TimestamptzOID
	}
	return pgtype.TextOID
}

func int8Value(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// encoder encodes chains as the array parameters of append_many and append_batch.
type encoder struct {
	arrays  [len(appendManyTypes)]array
	literal []byte
}

// The parameters of append_many after the class: two arrays with one element for each chain, then
// those with one for each event.
const (
	paramIDs = iota
	paramExpects
	paramHeads
	paramEventIDs
	paramSeqNrs
	paramSlices
	paramTimes
	paramWriters
	paramManifests
	paramPayloads
	paramTags
	paramMetadata
)

// appendManyTypes are the element types of the parameters.
var appendManyTypes = [...]uint32{ //nolint:gochecknoglobals // a constant table
	paramIDs:       pgtype.TextOID,
	paramExpects:   pgtype.Int8OID,
	paramHeads:     pgtype.Int4OID,
	paramEventIDs:  pgtype.TextOID,
	paramSeqNrs:    pgtype.Int8OID,
	paramSlices:    pgtype.Int2OID,
	paramTimes:     pgtype.TimestamptzOID,
	paramWriters:   pgtype.TextOID,
	paramManifests: pgtype.TextOID,
	paramPayloads:  pgtype.ByteaOID,
	paramTags:      pgtype.TextOID,
	paramMetadata:  pgtype.ByteaOID,
}

// maxKeptEncoder is the largest size of an encoder that is reused.
const maxKeptEncoder = 8 << 20

var encoders = sync.Pool{New: func() any { return new(encoder) }} //nolint:gochecknoglobals // a cache of memory

func getEncoder() *encoder {
	e, _ := encoders.Get().(*encoder)
	e.reset()
	return e
}

func (e *encoder) reset() {
	for i, oid := range appendManyTypes {
		e.arrays[i].reset(oid)
	}
}

func putEncoder(e *encoder) {
	size := 0
	for i := range e.arrays {
		size += cap(e.arrays[i].buf)
	}
	if size <= maxKeptEncoder {
		encoders.Put(e)
	}
}

// head adds the ID of a chain and its expected highest number.
func (e *encoder) head(c *chain) {
	e.arrays[paramIDs].text(c.id)
	e.arrays[paramExpects].int8(c.expect)
}

// events adds the events of a chain, whose index counts from 0.
func (e *encoder) events(index int, b *batch, c *chain) {
	a := &e.arrays
	slice := journal.SliceOf(c.id)
	for _, at := range b.order[c.from:c.to] {
		w := &b.writes[at.write]
		for k := range w.Events {
			event := &w.Events[k]
			a[paramHeads].int4(index + 1) // arrays of the server begin at 1
			a[paramEventIDs].text(c.id)
			a[paramSeqNrs].int8(event.SequenceNr)
			a[paramSlices].int2(slice)
			a[paramTimes].int8(timestamp(event.Time))
			a[paramWriters].text(w.Writer)
			a[paramManifests].text(event.Manifest)
			a[paramPayloads].bytes(event.Payload, false)
			a[paramTags].bytes(e.tagLiteral(event.Tags), true)
			a[paramMetadata].bytes(event.Metadata, true)
		}
	}
}

// tagLiteral returns the tags of an event as an array in its text form, because the server requires
// that all inner arrays of an array have the same length. It returns nil for an event without tags.
func (e *encoder) tagLiteral(tags []string) []byte {
	if len(tags) == 0 {
		return nil
	}
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
	return e.literal
}

// params returns the parameters of append_many.
func (e *encoder) params() [][]byte {
	params := make([][]byte, len(e.arrays))
	for i := range e.arrays {
		params[i] = e.arrays[i].value()
	}
	return params
}

// batchParams returns the parameters of append_batch. They have the epoch in place of the heads, as
// the first one.
func (e *encoder) batchParams(epoch string) [][]byte {
	params := e.params()
	copy(params[1:], params[:paramHeads])
	params[0] = []byte(epoch)
	return params
}
