// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// maxLoadAttempts is the number of matches that Load tries to read, youngest first.
const maxLoadAttempts = 3

// Load implements snapshot.Store. It tries the three youngest matches.
func (s *SnapshotStore) Load(ctx context.Context, id string, c snapshot.Criteria) (snap snapshot.Snapshot, err error) {
	defer wrap(&err, "load a snapshot of %q", id)
	e, err := s.use(ctx, id, false)
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	defer s.release()
	view, err := e.db.GetSnapshot() // consistent view of both records
	if err != nil {
		return snapshot.Snapshot{}, snapshotError(translate(err))
	}
	defer view.Release()
	var damaged []error
	for f, err := range heads(view, id, c) {
		if err != nil {
			return snapshot.Snapshot{}, err
		}
		if !f.matches(c) {
			continue
		}
		payload, err := s.payload(view, &f)
		if err == nil {
			return snapshot.Snapshot{Metadata: f.Metadata, Manifest: f.head.manifest, Payload: payload}, nil
		}
		if !errors.Is(err, snapshot.ErrCorrupt) {
			return snapshot.Snapshot{}, err
		}
		if damaged = append(damaged, err); len(damaged) == maxLoadAttempts {
			break
		}
	}
	return snapshot.Snapshot{}, cmp.Or(errors.Join(damaged...), snapshot.ErrNotFound)
}

func (s *SnapshotStore) payload(from leveldb.Reader, f *found) ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	if uint64(f.head.length) > uint64(s.db.cfg.MaxSnapshotSize) { //nolint:gosec // not negative
		return nil, f.corrupt(errTooLong)
	}
	payload, err := from.Get(snapshotKey(tagPayload, f.ID, f.SequenceNr), nil)
	if err != nil && !errors.Is(err, leveldb.ErrNotFound) {
		return nil, snapshotError(translate(err))
	}
	if err == nil {
		err = f.head.checkPayload(payload)
	}
	if err != nil {
		return nil, f.corrupt(err)
	}
	return payload, nil
}

// found is the decoded first record of a snapshot, or the error of decoding it.
type found struct {
	snapshot.Metadata
	head snapshotHead
	err  error
}

func (f *found) corrupt(reason error) error {
	return &snapshot.CorruptError{File: fmt.Sprintf("the snapshot of %q at %d", f.ID, f.SequenceNr), Reason: reason}
}

// matches reports whether the snapshot matches. A damaged snapshot matches regardless of its time.
func (f *found) matches(c snapshot.Criteria) bool {
	return f.err != nil || c.Matches(f.Metadata)
}

// heads yields the first records of an ID's snapshots in the range of sequence numbers, highest
// first. An error of the database is yielded last. An iterator of the engine is open while the loop
// body runs.
func heads(from leveldb.Reader, id string, c snapshot.Criteria) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		r := c.Bounded()
		if r.MinSequenceNr > r.MaxSequenceNr {
			return
		}
		limit := append(snapshotKey(tagSnapshot, id, r.MaxSequenceNr), 0)
		it := from.NewIterator(&util.Range{Start: snapshotKey(tagSnapshot, id, r.MinSequenceNr), Limit: limit}, nil)
		defer it.Release()
		for ok := it.Last(); ok; ok = it.Prev() {
			if !yield(readHead(id, it.Key(), it.Value()), nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(found{}, snapshotError(translate(err)))
		}
	}
}

// readHead decodes the first record of a snapshot.
func readHead(id string, key, value []byte) found {
	f := found{Metadata: snapshot.Metadata{ID: id, SequenceNr: binary.BigEndian.Uint64(key[len(key)-8:])}}
	var err error
	if f.head, err = decodeHead(key, value); err == nil {
		f.Time = f.head.time
	} else if f.err = err; !errors.Is(err, snapshot.ErrNewerVersion) {
		f.err = f.corrupt(err)
	}
	return f
}

// List implements snapshot.Store. It skips damaged snapshots and reports them with the error at the
// end.
func (s *SnapshotStore) List(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	return func(yield func(snapshot.Metadata, error) bool) {
		all, err := s.list(ctx, id, c)
		for i := range all {
			f := &all[i]
			err = errors.Join(err, f.err)
			if f.err == nil && c.Matches(f.Metadata) && !yield(f.Metadata, nil) {
				return
			}
		}
		if err != nil {
			yield(snapshot.Metadata{}, fmt.Errorf("leveldb: list the snapshots of %q: %w", id, err))
		}
	}
}

func (s *SnapshotStore) list(ctx context.Context, id string, c snapshot.Criteria) ([]found, error) {
	e, err := s.use(ctx, id, false)
	if err != nil {
		return nil, err
	}
	defer s.release()
	var all []found
	for f, err := range heads(e.db, id, c) {
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, nil
}

// SnapshotStore is the snapshot store of a DB. It implements snapshot.Store. Concurrent saves and
// appends share a sync.
type SnapshotStore struct{ handle }

var (
	_ snapshot.Store = (*SnapshotStore)(nil)
	_ snapshot.Local = (*SnapshotStore)(nil)
)

// Close implements snapshot.Store. See DB.Journal.
func (s *SnapshotStore) Close() error { return s.db.handles.Close(s.open, s.db.Close) }

// Save implements snapshot.Store. It fails with snapshot.ErrTooLarge above Config.MaxSnapshotSize,
// and with snapshot.ErrInvalid for a sequence number or a time out of range and for a manifest of
// more than 4,096 bytes.
func (s *SnapshotStore) Save(ctx context.Context, snap snapshot.Snapshot) (err error) {
	defer wrap(&err, "save the snapshot of %q at %d", snap.ID, snap.SequenceNr)
	if err = snap.Check(int64(s.db.cfg.MaxSnapshotSize)); err != nil {
		return err
	}
	e, err := s.use(ctx, snap.ID, true)
	if err != nil {
		return err
	}
	defer s.release()
	key := snapshotKey(tagSnapshot, snap.ID, snap.SequenceNr)
	old, err := get(e.db, key)
	if err != nil {
		return snapshotError(err)
	}
	if _, err := decodeHead(key, old); errors.Is(err, snapshot.ErrNewerVersion) {
		return err // a newer version must not be replaced, damaged data may be
	}
	var batch leveldb.Batch
	head := snapshotHead{
		time:     snap.Time,
		length:   uint32(len(snap.Payload)), //nolint:gosec // checked against MaxSnapshotSize
		sum:      checksum(0, snap.Payload),
		manifest: snap.Manifest,
	}
	batch.Put(key, head.append(nil, key))
	batch.Put(snapshotKey(tagPayload, snap.ID, snap.SequenceNr), snap.Payload)
	return snapshotError(e.write(&batch))
}

// Delete implements snapshot.Store. It deletes a damaged snapshot if its sequence number matches,
// regardless of its time.
func (s *SnapshotStore) Delete(ctx context.Context, id string, c snapshot.Criteria) (err error) {
	defer wrap(&err, "delete snapshots of %q", id)
	if err = c.CheckDelete(); err != nil {
		return err
	}
	e, err := s.use(ctx, id, true)
	if err != nil {
		return err
	}
	defer s.release()
	var batch leveldb.Batch
	for f, err := range heads(e.db, id, c) {
		if err != nil {
			return err
		}
		if errors.Is(f.err, snapshot.ErrNewerVersion) {
			return f.err
		}
		if f.matches(c) {
			batch.Delete(snapshotKey(tagSnapshot, id, f.SequenceNr))
			batch.Delete(snapshotKey(tagPayload, id, f.SequenceNr))
		}
	}
	if batch.Len() == 0 {
		return nil
	}
	return snapshotError(e.write(&batch))
}

func (s *SnapshotStore) use(ctx context.Context, id string, writing bool) (*engine, error) {
	if err := snapshot.CheckID(id); err != nil {
		return nil, err
	}
	e, err := s.handle.use(ctx, writing)
	return e, snapshotError(err)
}

// snapshotError converts an error of the database to the errors of package snapshot.
func snapshotError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, journal.ErrClosed):
		return snapshot.ErrClosed
	case errors.Is(err, journal.ErrCorrupt):
		return fmt.Errorf("%w: %w", snapshot.ErrCorrupt, err)
	case errors.Is(err, journal.ErrNewerVersion):
		return fmt.Errorf("%w: %w", snapshot.ErrNewerVersion, err)
	}
	return err
}

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
// The second record is the payload. The engine has its own checksums. The checksums above also
// detect damage that occurred before the data reached the engine, and records that do not belong
// together.
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

type snapshotHead struct {
	time     time.Time
	length   uint32
	sum      uint32
	manifest string
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
