// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/refold-io/refold/snapshot"
)

// A snapshot is two records, so that listing and deleting read no payloads. The first record,
// version 1, has integers in big-endian order:
//
//	version   1 byte, and once more with its bits inverted
//	time      8 bytes, microseconds since 1970
//	length    4 bytes, of the payload
//	checksum  4 bytes, CRC-32C of the payload
//	manifest  all but the last 4 bytes
//	checksum  4 bytes, CRC-32C of the key and of all above
//
// The second record is the payload. The engine has its own checksums. These detect damage from
// before the data reached the engine, and mismatched records.
const snapshotVersion = 1

const (
	snapshotFixed    = 2 + 8 + 4 + 4
	snapshotChecksum = 4
	maxManifest      = 4096
)

var (
	errChecksum = errors.New("checksum mismatch")
	errTooLong  = errors.New("payload exceeds Config.MaxSnapshotSize")
)

// snapshotHead is the first record.
type snapshotHead struct {
	time     time.Time
	length   uint32
	sum      uint32
	manifest string
}

func headOf(s *snapshot.Snapshot) snapshotHead {
	return snapshotHead{
		time:     s.Time,
		length:   uint32(len(s.Payload)), //nolint:gosec // checked against MaxSnapshotSize
		sum:      checksum(0, s.Payload),
		manifest: s.Manifest,
	}
}

func (h snapshotHead) append(b, key []byte) []byte {
	start := len(b)
	b = append(b, snapshotVersion, ^byte(snapshotVersion))
	b = binary.BigEndian.AppendUint64(b, uint64(h.time.UnixMicro()))
	b = binary.BigEndian.AppendUint32(b, h.length)
	b = binary.BigEndian.AppendUint32(b, h.sum)
	b = append(b, h.manifest...)
	return binary.BigEndian.AppendUint32(b, checksum(checksum(0, key), b[start:]))
}

func decodeHead(key, b []byte) (snapshotHead, error) {
	var h snapshotHead
	if len(b) < 2 || b[0] != ^b[1] {
		return h, errMalformed
	}
	if b[0] > snapshotVersion {
		return h, fmt.Errorf("%w: record version %d", snapshot.ErrNewerVersion, b[0])
	}
	if b[0] != snapshotVersion || len(b) < snapshotFixed+snapshotChecksum || len(b) > snapshotFixed+maxManifest+snapshotChecksum {
		return h, errMalformed
	}
	body := b[:len(b)-snapshotChecksum]
	if binary.BigEndian.Uint32(b[len(body):]) != checksum(checksum(0, key), body) {
		return h, errChecksum
	}
	h.time = time.UnixMicro(int64(binary.BigEndian.Uint64(body[2:]))).UTC() //nolint:gosec // two's complement
	h.length = binary.BigEndian.Uint32(body[10:])
	h.sum = binary.BigEndian.Uint32(body[14:])
	h.manifest = string(body[snapshotFixed:])
	return h, nil
}

// checkPayload returns an error unless the payload matches the head.
func (h snapshotHead) checkPayload(payload []byte) error {
	if uint64(len(payload)) != uint64(h.length) {
		return fmt.Errorf("payload has %d bytes, want %d", len(payload), h.length)
	}
	if checksum(0, payload) != h.sum {
		return errChecksum
	}
	return nil
}

func checksum(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b)
}
