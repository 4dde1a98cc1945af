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
// There is no checksum: each block of a log or table has its own.
const eventVersion = 1

const (
	flagTags = 1 << iota
	flagMetadata
)

const eventFixed = 10

// maxTags bounds the allocation for a damaged count.
const maxTags = 1 << 12

var (
	errShort     = errors.New("truncated record")
	errMalformed = errors.New("malformed record")
	errFlags     = errors.New("unknown record flags")
	errTags      = errors.New("too many tags in record")
)

// appendEvent appends the encoded event to b.
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
	b = b[eventFixed:]
	writer, b, ok := cutBytes(b)
	if !ok {
		return e, errShort
	}
	manifest, b, ok := cutBytes(b)
	if !ok {
		return e, errShort
	}
	e.Writer, e.Manifest = names.getLast(&names.writer, writer), names.getLast(&names.manifest, manifest)
	if flags&flagTags != 0 {
		var err error
		if e.Tags, b, err = cutTags(b, names); err != nil {
			return e, err
		}
	}
	if flags&flagMetadata != 0 {
		if e.Metadata, b, ok = cutBytes(b); !ok {
			return e, errShort
		}
	}
	if len(b) > 0 {
		e.Payload = slices.Clip(b)
	}
	return e, nil
}

func cutTags(b []byte, names *stringPool) (tags []string, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	switch {
	case size <= 0:
		return nil, nil, errShort
	case n > maxTags:
		return nil, nil, errTags
	case n > uint64(len(b)-size): //nolint:gosec // not negative; each tag takes at least a byte
		return nil, nil, errShort
	}
	b = b[size:]
	tags = make([]string, n)
	for i := range tags {
		tag, rest, ok := cutBytes(b)
		if !ok {
			return nil, nil, errShort
		}
		tags[i], b = names.get(tag), rest
	}
	return tags, b, nil
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
