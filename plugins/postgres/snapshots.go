// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/refold-io/refold/internal/plugin"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// SnapshotStore is the snapshot store of a DB. It implements snapshot.Store.
type SnapshotStore struct {
	handle *plugin.Handle
	db     *DB
}

var _ snapshot.Store = (*SnapshotStore)(nil)

// maxLoadAttempts is the number of matches that Load tries to read, youngest first.
const maxLoadAttempts = 3

// Close implements snapshot.Store. See DB.Journal.
func (s *SnapshotStore) Close() error { return s.db.handles.Close(s.handle, s.db.Close) }

// Save implements snapshot.Store. It fails with snapshot.ErrTooLarge above Config.MaxSnapshotSize,
// and with snapshot.ErrInvalid for an ID, a sequence number, a time or a manifest that the tables
// cannot store; a manifest has at most 4,096 bytes. A Save with an unknown outcome stores the
// snapshot completely or not at all.
func (s *SnapshotStore) Save(ctx context.Context, snap snapshot.Snapshot) (err error) {
	defer wrap(&err, "save the snapshot of %q at %d", snap.ID, snap.SequenceNr)
	if err = snap.Check(int64(s.db.cfg.MaxSnapshotSize)); err != nil {
		return err
	}
	if !utf8.ValidString(snap.Manifest) || strings.Contains(snap.Manifest, "\x00") {
		return fmt.Errorf("%w: manifest %.64q is not valid UTF-8 or contains a NUL byte", snapshot.ErrInvalid, snap.Manifest)
	}
	at := timestamp(snap.Time)
	sum := checksum(snap.ID, snap.SequenceNr, at, snap.Manifest, snap.Payload)
	return s.run(ctx, snap.ID, &s.db.sql.saveSnapshot, [][]byte{
		[]byte(snap.ID), int8Value(snap.SequenceNr), int8Value(at), []byte(snap.Manifest), notNull(snap.Payload), int8Value(sum),
	}, nil)
}

// Load implements snapshot.Store. It tries the three youngest matches.
func (s *SnapshotStore) Load(ctx context.Context, id string, c snapshot.Criteria) (found snapshot.Snapshot, err error) {
	defer wrap(&err, "load a snapshot of %q", id)
	var damaged []error
	c = c.Bounded()
	limit := int8Value(uint64(s.db.cfg.MaxSnapshotSize)) //nolint:gosec // validated
	for len(damaged) < maxLoadAttempts && c.MaxSequenceNr >= max(c.MinSequenceNr, 1) {
		var snap snapshot.Snapshot
		var reason error
		reset := func() {
			snap, reason = snapshot.Snapshot{Metadata: snapshot.Metadata{ID: id}}, nil
		}
		err = s.call(ctx, id, func() error {
			return s.db.load.run(ctx, &s.db.sql.loadSnapshot, append(bounds(id, c), limit), reset, func(values [][]byte) (err error) {
				reason, err = decodeSnapshot(&snap, values)
				return err
			})
		})
		switch {
		case err != nil:
			return found, err
		case snap.SequenceNr == 0: // no row
			return found, cmp.Or(errors.Join(damaged...), snapshot.ErrNotFound)
		case reason == nil:
			return snap, nil
		}
		damaged = append(damaged, &snapshot.CorruptError{File: fmt.Sprintf("the snapshot of %q at %d", id, snap.SequenceNr), Reason: reason})
		c.MaxSequenceNr = snap.SequenceNr - 1
	}
	return found, cmp.Or(errors.Join(damaged...), snapshot.ErrNotFound)
}

// List implements snapshot.Store. It reads pages of 1,000.
func (s *SnapshotStore) List(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	return func(yield func(snapshot.Metadata, error) bool) {
		rest := c.Bounded() // each iteration of the sequence starts from the beginning
		for {
			page, err := s.list(ctx, id, rest)
			if err != nil {
				yield(snapshot.Metadata{}, fmt.Errorf("postgres: list the snapshots of %q: %w", id, err))
				return
			}
			for _, m := range page {
				if !yield(m, nil) {
					return
				}
			}
			if len(page) < pageRecords {
				return
			}
			rest.MaxSequenceNr = page[len(page)-1].SequenceNr - 1
		}
	}
}

func (s *SnapshotStore) list(ctx context.Context, id string, c snapshot.Criteria) (page []snapshot.Metadata, err error) {
	err = s.run(ctx, id, &s.db.sql.listSnapshots, bounds(id, c), func(values [][]byte) error {
		if len(values[0]) != 8 || len(values[1]) != 8 {
			return errRow
		}
		page = append(page, snapshot.Metadata{ID: id, SequenceNr: binary.BigEndian.Uint64(values[0]), Time: decodeTime(values[1])})
		return nil
	})
	return page, err
}

// Delete implements snapshot.Store.
func (s *SnapshotStore) Delete(ctx context.Context, id string, c snapshot.Criteria) (err error) {
	defer wrap(&err, "delete snapshots of %q", id)
	if err = c.CheckDelete(); err != nil {
		return err
	}
	return s.run(ctx, id, &s.db.sql.deleteSnapshots, bounds(id, c.Bounded()), nil)
}

func (s *SnapshotStore) run(ctx context.Context, id string, st *statement, params [][]byte, row func([][]byte) error) error {
	return s.call(ctx, id, func() error { return s.db.run(ctx, st, params, row) })
}

// call executes a statement on the store, unless the ID is invalid or the store is closed.
func (s *SnapshotStore) call(ctx context.Context, id string, statement func() error) error {
	if err := snapshot.CheckID(id); err != nil {
		return err
	}
	if !s.handle.Enter() {
		return snapshot.ErrClosed
	}
	defer s.handle.Leave()
	err := s.db.fail(ctx, statement())
	if errors.Is(err, journal.ErrCorrupt) {
		return fmt.Errorf("%w: %w", snapshot.ErrCorrupt, err)
	}
	return err
}

func bounds(id string, c snapshot.Criteria) [][]byte {
	number := func(n uint64) []byte { return int8Value(min(n, math.MaxInt64)) }
	return [][]byte{[]byte(id), number(c.MinSequenceNr), number(c.MaxSequenceNr), int8Value(lowerBound(c.MinTime)), int8Value(timestamp(c.MaxTime))}
}

// lowerBound rounds a time up to a whole microsecond.
func lowerBound(t time.Time) uint64 {
	if whole := t.Truncate(time.Microsecond); whole.Before(t) {
		t = whole.Add(time.Microsecond)
	}
	return timestamp(t)
}

var (
	errChecksum = errors.New("checksum mismatch")
	errTooLong  = errors.New("payload exceeds Config.MaxSnapshotSize")
)

// decodeSnapshot decodes a row into a snapshot with its ID. damage is the reason why the stored
// snapshot cannot be used.
func decodeSnapshot(s *snapshot.Snapshot, values [][]byte) (damage, err error) {
	if len(values) != 5 || len(values[0]) != 8 || len(values[1]) != 8 || len(values[4]) != 8 {
		return nil, errRow
	}
	s.SequenceNr, s.Time = binary.BigEndian.Uint64(values[0]), decodeTime(values[1])
	s.Manifest = string(values[2])
	if values[3] == nil {
		return errTooLong, nil
	}
	s.Payload = append([]byte{}, values[3]...)
	if binary.BigEndian.Uint64(values[4]) != checksum(s.ID, s.SequenceNr, timestamp(s.Time), s.Manifest, s.Payload) {
		return errChecksum, nil
	}
	return nil, nil
}

func decodeTime(b []byte) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b)) + epoch).UTC() //nolint:gosec // its bits
}

// checksum is the CRC-32C of a snapshot. Numbers and lengths are big-endian, and a length precedes
// its string.
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
