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
	"sync"
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
	var payload []byte
	for i := range f.head.parts() {
		part, err := from.Get(f.head.partKey(f.ID, f.SequenceNr, i), nil)
		switch {
		case errors.Is(err, leveldb.ErrNotFound):
			return nil, f.corrupt(err)
		case err != nil:
			return nil, snapshotError(translate(err))
		case f.head.part == 0:
			payload = part
		case i == 0:
			payload = append(make([]byte, 0, f.head.length), part...)
		default:
			payload = append(payload, part...)
		}
	}
	if err := f.head.checkPayload(payload); err != nil {
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
		first := snapshotKey(tagSnapshot, id, r.MinSequenceNr)
		if r.MinSequenceNr == r.MaxSequenceNr { // the engine finds a key faster than it makes an iterator
			switch value, err := get(from, first); {
			case err != nil:
				yield(found{}, snapshotError(err))
			case value != nil:
				yield(readHead(id, first, value), nil)
			}
			return
		}
		limit := append(snapshotKey(tagSnapshot, id, r.MaxSequenceNr), 0)
		it := from.NewIterator(&util.Range{Start: first, Limit: limit}, nil)
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

// SnapshotStore is the snapshot store of a DB. It implements snapshot.Store. Saves and deletions share
// the batches and syncs of appends: after an append, they wait for the next one for up to 5 ms. A
// snapshot of more than 256 KiB is saved in parts, so that an append waits at most for one part.
type SnapshotStore struct {
	handle

	large sync.Mutex // held while a snapshot is saved in parts
}

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
	head := snapshotHead{
		time:     snap.Time,
		length:   uint32(len(snap.Payload)), //nolint:gosec // checked against MaxSnapshotSize
		sum:      checksum(0, snap.Payload),
		manifest: snap.Manifest,
	}
	if len(snap.Payload) > s.db.cfg.part {
		head.part = uint32(s.db.cfg.part) //nolint:gosec // small
		s.large.Lock()
		defer s.large.Unlock()
	}
	key := snapshotKey(tagSnapshot, snap.ID, snap.SequenceNr)
	old, err := get(e.db, key)
	if err != nil {
		return snapshotError(err)
	}
	replaced, err := decodeHead(key, old)
	if errors.Is(err, snapshot.ErrNewerVersion) {
		return err // a newer version must not be replaced, damaged data may be
	}
	var batch leveldb.Batch
	if old != nil {
		replaced.deleteParts(&batch, snap.ID, snap.SequenceNr)
	} else if head.part > 0 {
		if err := s.saveParts(ctx, e, &head, &snap); err != nil {
			return err
		}
	}
	if old != nil || head.part == 0 {
		for i := range head.parts() {
			batch.Put(head.partKey(snap.ID, snap.SequenceNr, i), head.cut(snap.Payload, i))
		}
	}
	batch.Put(key, head.append(nil, key))
	if head.part > 0 {
		batch.Delete(snapshotKey(tagUnfinished, snap.ID, snap.SequenceNr))
		return snapshotError(e.write(&batch))
	}
	return snapshotError(e.share(&change{add: batch.Replay}))
}

// saveParts stores the payload of a new snapshot, each part in its own batch. Without the first record
// of the snapshot, the parts are not visible. If the process ends before this record is stored, the
// next call of saveParts deletes them.
func (s *SnapshotStore) saveParts(ctx context.Context, e *engine, head *snapshotHead, snap *snapshot.Snapshot) error {
	if err := deleteUnfinished(e); err != nil {
		return snapshotError(err)
	}
	var batch leveldb.Batch
	key := snapshotKey(tagUnfinished, snap.ID, snap.SequenceNr)
	batch.Put(key, head.append(nil, key))
	for i := range head.parts() {
		if ctx.Err() != nil {
			return cmp.Or(snapshotError(deleteUnfinished(e)), context.Cause(ctx))
		}
		batch.Put(head.partKey(snap.ID, snap.SequenceNr, i), head.cut(snap.Payload, i))
		if err := e.write(&batch); err != nil {
			return snapshotError(err)
		}
		batch.Reset()
	}
	return nil
}

// deleteUnfinished deletes the parts of snapshots whose first records were not stored. The caller
// holds SnapshotStore.large.
func deleteUnfinished(e *engine) error {
	it := e.db.NewIterator(&util.Range{Start: []byte{tagUnfinished}, Limit: []byte{tagUnfinished + 1}}, nil)
	defer it.Release()
	for it.Next() {
		var batch leveldb.Batch
		head, err := decodeHead(it.Key(), it.Value())
		if err != nil {
			return corrupt("an unfinished snapshot", err)
		}
		id, seqNr := it.Key()[3:len(it.Key())-8], binary.BigEndian.Uint64(it.Key()[len(it.Key())-8:])
		head.deleteParts(&batch, string(id), seqNr)
		batch.Delete(it.Key())
		if err := e.write(&batch); err != nil {
			return err
		}
	}
	return translate(it.Error())
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
			f.head.deleteParts(&batch, id, f.SequenceNr)
		}
	}
	if batch.Len() == 0 {
		return nil
	}
	return snapshotError(e.share(&change{add: batch.Replay}))
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

// A snapshot is several records, so that listing and deleting read no payloads. The first record has
// integers in big-endian order:
//
//	version   1 byte, and once more with its bits inverted
//	time      8 bytes, microseconds since 1970
//	length    4 bytes, of the payload
//	checksum  4 bytes, CRC-32C of the payload
//	part      4 bytes, the size of a part except for the last one; only in version 2
//	manifest  all but the last 4 bytes
//	checksum  4 bytes, CRC-32C of the key and of all above
//
// In version 1 the second record is the payload. In version 2 the payload is in parts. The engine has
// its own checksums. The checksums above also detect damage that occurred before the data reached the
// engine, and records that do not belong together.
const (
	snapshotVersion = 2
	wholeVersion    = 1 // of a snapshot with one record for the payload
)

const (
	snapshotFixed    = 2 + 8 + 4 + 4
	snapshotChecksum = 4
	maxManifest      = 4096
	// snapshotPart is the default size of a part, and the largest payload in one record.
	snapshotPart = 256 << 10
)

var (
	errChecksum = errors.New("checksum mismatch")
	errTooLong  = errors.New("payload exceeds Config.MaxSnapshotSize")
)

type snapshotHead struct {
	time     time.Time
	length   uint32
	sum      uint32
	part     uint32 // size of a part, 0 for a payload in one record
	manifest string
}

// parts returns the number of records of the payload. A damaged head counts as one of version 1.
func (h snapshotHead) parts() int {
	if h.part == 0 {
		return 1
	}
	return int((uint64(h.length) + uint64(h.part) - 1) / uint64(h.part)) //nolint:gosec // at most a gigabyte
}

func (h snapshotHead) partKey(id string, seqNr uint64, i int) []byte {
	key := snapshotKey(tagPayload, id, seqNr)
	if h.part == 0 {
		return key
	}
	return binary.BigEndian.AppendUint32(key, uint32(i)) //nolint:gosec // the number of parts
}

// cut returns a part of the payload.
func (h snapshotHead) cut(payload []byte, i int) []byte {
	if h.part == 0 {
		return payload
	}
	size := int(h.part)
	return payload[i*size : min((i+1)*size, len(payload))]
}

func (h snapshotHead) deleteParts(batch *leveldb.Batch, id string, seqNr uint64) {
	for i := range h.parts() {
		batch.Delete(h.partKey(id, seqNr, i))
	}
}

func (h snapshotHead) append(b, key []byte) []byte {
	start := len(b)
	version := byte(wholeVersion)
	if h.part > 0 {
		version = snapshotVersion
	}
	b = append(b, version, ^version)
	b = binary.BigEndian.AppendUint64(b, uint64(h.time.UnixMicro()))
	b = binary.BigEndian.AppendUint32(b, h.length)
	b = binary.BigEndian.AppendUint32(b, h.sum)
	if h.part > 0 {
		b = binary.BigEndian.AppendUint32(b, h.part)
	}
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
	fixed := snapshotFixed
	if b[0] == snapshotVersion {
		fixed += 4
	}
	if b[0] < wholeVersion || len(b) < fixed+snapshotChecksum || len(b) > fixed+maxManifest+snapshotChecksum {
		return h, errMalformed
	}
	body := b[:len(b)-snapshotChecksum]
	if binary.BigEndian.Uint32(b[len(body):]) != checksum(checksum(0, key), body) {
		return h, errChecksum
	}
	h.time = time.UnixMicro(int64(binary.BigEndian.Uint64(body[2:]))).UTC() //nolint:gosec // two's complement
	h.length = binary.BigEndian.Uint32(body[10:])
	h.sum = binary.BigEndian.Uint32(body[14:])
	if b[0] == snapshotVersion {
		if h.part = binary.BigEndian.Uint32(body[snapshotFixed:]); h.part == 0 {
			return snapshotHead{}, errMalformed
		}
	}
	h.manifest = string(body[fixed:])
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
