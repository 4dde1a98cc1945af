// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

const maxManifest = 4096

var (
	errChecksum = errors.New("the checksum does not match")
	errTooLong  = errors.New("it is larger than Config.MaxSnapshotSize")
)

// snapshotRow is one row of the table of snapshots.
type snapshotRow struct {
	found    bool
	seqNr    uint64
	at       time.Time
	manifest string
	payload  []byte // nil if it is too long
	sum      uint64
}

func (r *snapshotRow) scan(values [][]byte) error {
	if len(values) != 5 || len(values[0]) != 8 || len(values[1]) != 8 || len(values[4]) != 8 {
		return errRow
	}
	r.found = true
	r.seqNr = binary.BigEndian.Uint64(values[0])
	r.at = decodeTime(values[1])
	r.manifest = string(values[2])
	if values[3] != nil {
		r.payload = append([]byte{}, values[3]...)
	}
	r.sum = binary.BigEndian.Uint64(values[4])
	return nil
}

// snapshot returns what the row holds, or a *snapshot.CorruptError.
func (r *snapshotRow) snapshot(id string) (snapshot.Snapshot, error) {
	var reason error
	if r.payload == nil {
		reason = errTooLong
	} else if r.sum != checksum(id, r.seqNr, timestamp(r.at), r.manifest, r.payload) {
		reason = errChecksum
	}
	if reason != nil {
		return snapshot.Snapshot{}, &snapshot.CorruptError{File: fmt.Sprintf("the snapshot of %q at %d", id, r.seqNr), Reason: reason}
	}
	return snapshot.Snapshot{
		Metadata: snapshot.Metadata{ID: id, SequenceNr: r.seqNr, Time: r.at},
		Manifest: r.manifest, Payload: r.payload,
	}, nil
}

func decodeTime(b []byte) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b)) + epoch).UTC() //nolint:gosec // its bits
}

// checksum is the CRC-32C of a snapshot: lengths and numbers are big-endian
// and stand before what they belong to.
func checksum(id string, seqNr, at uint64, manifest string, payload []byte) uint64 {
	table := crc32.MakeTable(crc32.Castagnoli)
	head := binary.BigEndian.AppendUint16(nil, uint16(len(id))) //nolint:gosec // at most 512
	head = append(head, id...)
	head = binary.BigEndian.AppendUint64(head, seqNr)
	head = binary.BigEndian.AppendUint64(head, at)
	head = binary.BigEndian.AppendUint16(head, uint16(len(manifest))) //nolint:gosec // at most 4,096
	head = append(head, manifest...)
	return uint64(crc32.Update(crc32.Checksum(head, table), table, payload))
}

// checkSnapshot returns an error unless the table can hold the snapshot.
func checkSnapshot(s *snapshot.Snapshot, maxSize int) error {
	switch {
	case s.SequenceNr == 0 || s.SequenceNr > math.MaxInt64:
		return fmt.Errorf("%w: sequence number %d is not between 1 and %d", snapshot.ErrInvalid, s.SequenceNr, int64(math.MaxInt64))
	case s.Time.Year() < 1 || s.Time.Year() > 9999:
		return fmt.Errorf("%w: time %v is not between the years 1 and 9999", snapshot.ErrInvalid, s.Time)
	case len(s.Manifest) > maxManifest:
		return fmt.Errorf("%w: manifest has %d bytes, at most %d are allowed", snapshot.ErrInvalid, len(s.Manifest), maxManifest)
	case len(s.Payload) > maxSize:
		return fmt.Errorf("%w: payload has %d bytes, at most %d are allowed", snapshot.ErrTooLarge, len(s.Payload), maxSize)
	}
	if err := checkName("manifest", s.Manifest); err != nil {
		return fmt.Errorf("%w: %w", snapshot.ErrInvalid, err)
	}
	return checkSnapshotID(s.ID)
}

// checkSnapshotID returns an error unless an ID is 1 to 512 bytes of UTF-8 without NUL.
func checkSnapshotID(id string) error {
	if id == "" || len(id) > journal.MaxIDLength {
		return fmt.Errorf("%w: persistence ID has %d bytes, not 1 to %d", snapshot.ErrInvalid, len(id), journal.MaxIDLength)
	}
	if err := checkName("persistence ID", id); err != nil {
		return fmt.Errorf("%w: %w", snapshot.ErrInvalid, err)
	}
	return nil
}
