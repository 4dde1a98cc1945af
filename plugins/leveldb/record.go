// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/journal"
)

// The first byte of a key is its kind:
//
//	i ID                          the number of a persistence ID
//	e number(7) sequence number(8)  an event
//	d number(7)                   the deletions of that ID
//	s length(2) ID sequence number(8)  a snapshot without its payload
//	p length(2) ID sequence number(8)  the payload of a snapshot; with a number(4): a part of it
//	x length(2) ID sequence number(8)  a snapshot of which only some parts were stored
//	n number(7)                   the persistence ID with that number
//	o group(7)                    the events of a group of the order; see runReader
//	t length tag group(8)         the events of a group that have a tag
//
// Integers are big-endian, so that keys sort by their numbers. The length of a tag is a varint. The
// kinds u and w belonged to a format before version 2 and must not be reused.
const (
	tagID       = 'i'
	tagEvent    = 'e'
	tagDeleted  = 'd'
	tagSnapshot = 's'
	tagPayload  = 'p'
	tagName     = 'n'
	tagGroup    = 'o'
	tagTag      = 't'

	tagUnfinished = 'x'
)

const (
	eventKeySize   = 16
	deletedKeySize = 8
	groupKeySize   = 8
	// maxNumber is the highest number of a persistence ID, and of a group.
	maxNumber = 1<<56 - 1
)

func appendIDKey(b []byte, id string) []byte { return append(append(b, tagID), id...) }

func appendEventKey(b []byte, number, seqNr uint64) []byte {
	b = binary.BigEndian.AppendUint64(b, number|tagEvent<<56)
	return binary.BigEndian.AppendUint64(b, seqNr)
}

func appendDeletedKey(b []byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(b, number|tagDeleted<<56)
}

func eventNumber(key []byte) (seqNr uint64, ok bool) {
	if len(key) != eventKeySize || key[0] != tagEvent {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[8:]), true
}

// afterEvents returns the first key after the events of an ID up to a sequence number.
func afterEvents(b []byte, number, to uint64) []byte {
	return appendEventKey(b, number, min(to, journal.MaxSequenceNr)+1)
}

func snapshotKey(tag byte, id string, seqNr uint64) []byte {
	b := make([]byte, 0, 1+2+len(id)+8+4) // room for the number of a part
	b = append(b, tag)
	b = binary.BigEndian.AppendUint16(b, uint16(len(id))) //nolint:gosec // at most journal.MaxIDLength
	b = append(b, id...)
	return binary.BigEndian.AppendUint64(b, seqNr)
}

// keyNumber returns the number of the persistence ID in the key of an event or of a deletion.
func keyNumber(key []byte) (uint64, bool) {
	if len(key) != eventKeySize && len(key) != deletedKeySize {
		return 0, false
	}
	return binary.BigEndian.Uint64(key) & maxNumber, true
}

func appendNameKey(b []byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(b, number|tagName<<56)
}

func appendGroupKey(b []byte, group uint64) []byte {
	return binary.BigEndian.AppendUint64(b, group|tagGroup<<56)
}

func groupNumber(key []byte) (uint64, bool) {
	if len(key) != groupKeySize || key[0] != tagGroup {
		return 0, false
	}
	return binary.BigEndian.Uint64(key) & maxNumber, true
}

// appendTagPrefix appends the common prefix of the keys of a tag. It is never a prefix of another
// tag's keys.
func appendTagPrefix(b []byte, tag string) []byte { return appendString(append(b, tagTag), tag) }

func appendTagKey(b []byte, tag string, group uint64) []byte {
	return binary.BigEndian.AppendUint64(appendTagPrefix(b, tag), group)
}

// cutIndexKey returns the group in the key of an index record, and the tag of the record of a tag.
func cutIndexKey(key []byte) (tag []byte, group uint64, err error) {
	group, ok := groupNumber(key)
	if !ok {
		tag, group, ok = cutTagKey(key)
	}
	if !ok {
		return nil, 0, malformedKey(key)
	}
	return tag, group, nil
}

func cutTagKey(key []byte) (tag []byte, group uint64, ok bool) {
	if len(key) == 0 || key[0] != tagTag {
		return nil, 0, false
	}
	tag, rest, ok := cutBytes(key[1:])
	if !ok || len(rest) != 8 {
		return nil, 0, false
	}
	group = binary.BigEndian.Uint64(rest)
	return tag, group, group <= maxNumber
}

// The small values, version 1:
//
//	of an ID        version, number as a varint
//	of a deletion   version, two sequence numbers as varints
//	of a name       version, the persistence ID
const valueVersion = 1

func appendNumber(b []byte, number uint64) []byte {
	return binary.AppendUvarint(append(b, valueVersion), number)
}

func decodeNumber(b []byte) (uint64, error) {
	b, err := cutVersion(b)
	if err != nil {
		return 0, err
	}
	f := fields{rest: b}
	n := f.number()
	if f.malformed || len(f.rest) > 0 || n == 0 || n > maxNumber {
		return 0, errMalformed
	}
	return n, nil
}

type deletion struct {
	// to is the sequence number of the last deleted event. done is the sequence number of the last
	// event whose record is removed; it is lower than to after an interrupted deletion.
	to, done uint64
}

func (d deletion) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(b, valueVersion), d.to), d.done)
}

func decodeDeletion(b []byte) (deletion, error) {
	b, err := cutVersion(b)
	if err != nil {
		return deletion{}, err
	}
	f := fields{rest: b}
	d := deletion{to: f.number(), done: f.number()}
	if f.malformed || len(f.rest) > 0 || d.to > journal.MaxSequenceNr || d.done > d.to {
		return deletion{}, errMalformed
	}
	return d, nil
}

func cutVersion(b []byte) (rest []byte, err error) {
	switch {
	case len(b) == 0:
		return nil, errShort
	case b[0] > valueVersion:
		return nil, fmt.Errorf("%w: record version %d", journal.ErrNewerVersion, b[0])
	case b[0] != valueVersion:
		return nil, errMalformed
	}
	return b[1:], nil
}

func appendName(b []byte, id string) []byte { return append(append(b, valueVersion), id...) }

func decodeName(b []byte) (string, error) {
	b, err := cutVersion(b)
	if err != nil {
		return "", err
	}
	id := string(b)
	if journal.CheckID(id) != nil {
		return "", errMalformed
	}
	return id, nil
}

// The value of an event, version 1. Lengths and counts are varints.
//
//	version   1 byte
//	flags     1 byte: 1 tags follow, 2 metadata follow
//	time      8 bytes, microseconds since 1970, big-endian
//	writer    length, bytes
//	manifest  length, bytes
//	tags      count, each length, bytes
//	metadata  length, bytes
//	payload   the rest
//
// The record has no checksum, because each block of a log or table has one.
const eventVersion = 1

const (
	flagTags = 1 << iota
	flagMetadata
)

const eventFixed = 10

var (
	errShort     = errors.New("truncated record")
	errMalformed = errors.New("malformed record")
	errFlags     = errors.New("unknown record flags")
)

func appendEvent(b []byte, writer string, e *journal.Event) []byte {
	var flags byte
	if len(e.Tags) > 0 {
		flags |= flagTags
	}
	if len(e.Metadata) > 0 {
		flags |= flagMetadata
	}
	b = append(b, eventVersion, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time.UnixMicro()))
	b = appendString(b, writer)
	b = appendString(b, e.Manifest)
	if flags&flagTags != 0 {
		b = appendTags(b, e.Tags)
	}
	if flags&flagMetadata != 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Metadata)))
		b = append(b, e.Metadata...)
	}
	return append(b, e.Payload...)
}

func appendTags(b []byte, tags []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(tags)))
	for _, tag := range tags {
		b = appendString(b, tag)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeEvent decodes an event. The result refers to b. names deduplicates the strings of the
// writer, the manifest and the tags.
func decodeEvent(b []byte, names *stringPool) (journal.Event, error) {
	var e journal.Event
	if len(b) == 0 {
		return e, errShort
	}
	if b[0] > eventVersion {
		return e, fmt.Errorf("%w: record version %d", journal.ErrNewerVersion, b[0])
	}
	if b[0] != eventVersion || len(b) < eventFixed {
		return e, errShort
	}
	flags := b[1]
	if flags&^(flagTags|flagMetadata) != 0 {
		return e, errFlags
	}
	e.Time = time.UnixMicro(int64(binary.BigEndian.Uint64(b[2:]))).UTC() //nolint:gosec // two's complement
	r := fields{rest: b[eventFixed:]}
	writer, manifest := r.bytes(), r.bytes()
	e.Writer, e.Manifest = names.getLast(&names.writer, writer), names.getLast(&names.manifest, manifest)
	if flags&flagTags != 0 {
		e.Tags = r.tags(names)
	}
	if flags&flagMetadata != 0 {
		e.Metadata = r.bytes()
	}
	if r.malformed {
		return e, errShort
	}
	if len(r.rest) > 0 {
		e.Payload = slices.Clip(r.rest)
	}
	return e, nil
}

// fields decodes the fields of a record. After the first malformed one, all further ones are empty.
type fields struct {
	rest      []byte
	malformed bool
}

func (f *fields) number() uint64 {
	n, size := binary.Uvarint(f.rest)
	if size <= 0 {
		f.malformed, f.rest = true, nil
		return 0
	}
	f.rest = f.rest[size:]
	return n
}

func (f *fields) bytes() []byte {
	b, rest, ok := cutBytes(f.rest)
	f.malformed = f.malformed || !ok
	f.rest = rest
	return b
}

func (f *fields) tags(names *stringPool) []string {
	n := f.number()
	if n > uint64(len(f.rest)) { // each tag takes at least a byte
		f.malformed, f.rest = true, nil
		return nil
	}
	tags := make([]string, n)
	for i := range tags {
		tags[i] = names.get(f.bytes())
	}
	return tags
}

// cutBytes cuts a length-prefixed byte string off b.
func cutBytes(b []byte) (cut, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) { //nolint:gosec // not negative
		return nil, nil, false
	}
	end := size + int(n) //nolint:gosec // at most len(b)
	return b[size:end:end], b[end:], true
}
