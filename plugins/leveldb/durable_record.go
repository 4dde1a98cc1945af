// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"fmt"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/journal"
)

// The key of a record is tagRecord and its key, its value:
//
//	version   1 byte, and once more with its bits inverted
//	data
//	checksum  4 bytes, CRC-32C of the key and of all above, big-endian
//
// The engine has checksums of its own; this one finds what was damaged before it got
// there, and what belongs to another key.
const (
	tagRecord     = 'r'
	recordVersion = 1
	recordFixed   = 2 + 4
)

func recordKey(b []byte, key string) []byte { return append(append(b, tagRecord), key...) }

func appendRecord(b, key, data []byte) []byte {
	start := len(b)
	b = append(b, recordVersion, ^byte(recordVersion))
	b = append(b, data...)
	return binary.BigEndian.AppendUint32(b, checksum(checksum(0, key), b[start:]))
}

// decodeRecord returns the record of a key of the engine. It shares b.
func decodeRecord(key, b []byte) (durable.Record, error) {
	if len(key) == 0 || key[0] != tagRecord || len(key) == 1 || len(key) > 1+durable.MaxKey {
		return durable.Record{}, malformedKey(key)
	}
	r := durable.Record{Key: string(key[1:])}
	what := "the record of "
	if len(b) < 2 || b[0] != ^b[1] {
		return durable.Record{}, corruptRecord(what, r.Key, errMalformed)
	}
	if b[0] != recordVersion {
		return durable.Record{}, corruptRecord(what, r.Key, fmt.Errorf("%w: record version %d", journal.ErrNewerVersion, b[0]))
	}
	if len(b) <= recordFixed || len(b) > recordFixed+durable.MaxData {
		return durable.Record{}, corruptRecord(what, r.Key, errMalformed)
	}
	body := b[:len(b)-4]
	if binary.BigEndian.Uint32(b[len(body):]) != checksum(checksum(0, key), body) {
		return durable.Record{}, corruptRecord(what, r.Key, errChecksum)
	}
	r.Data = body[2:]
	return r, nil
}
