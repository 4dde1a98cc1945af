// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// between is a context that calls f between two parts of a snapshot, and then ends if f returns an
// error.
type between struct {
	context.Context //nolint:containedctx // it is one

	calls int // of Err until f is called; Save calls it once before the parts
	f     func() error
	err   error
}

func (c *between) Err() error {
	if c.calls--; c.calls == 0 {
		c.err = c.f()
	}
	return c.err
}

func largeSnapshot(id string, nr uint64, size int) snapshot.Snapshot {
	return snapshot.Snapshot{Metadata: snapshot.Metadata{ID: id, SequenceNr: nr, Time: time.UnixMicro(1).UTC()}, Manifest: "m", Payload: bytes.Repeat([]byte{byte(nr), 2, 3}, size/3)}
}

// payloads returns the sizes of the records of payloads and of unfinished snapshots.
func payloads(t *testing.T, db *leveldb.DB) (sizes []int, unfinished int) {
	t.Helper()
	it := db.Raw().NewIterator(&util.Range{Start: []byte("p"), Limit: []byte("z")}, nil)
	defer it.Release()
	for it.Next() {
		switch it.Key()[0] {
		case 'p':
			sizes = append(sizes, len(it.Value()))
		case 'x':
			unfinished++
		}
	}
	return sizes, unfinished
}

// An append between two parts of a large snapshot does not wait for the other parts. The snapshot is
// visible after the last part.
func TestAppendBetweenParts(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, t.TempDir(), leveldb.Config{})
	snap := largeSnapshot("large", 1, 16<<20)
	called := false
	ctx := &between{Context: t.Context(), calls: 30, f: func() error {
		called = true
		mustAppend(t, db.TestJournal(), write("a", 0, 1))
		if _, err := db.TestSnapshots().Load(t.Context(), "large", snapshot.Latest()); !errors.Is(err, snapshot.ErrNotFound) {
			t.Errorf("load between two parts: %v, want ErrNotFound", err)
		}
		return nil
	}}
	if err := db.TestSnapshots().Save(ctx, snap); err != nil || !called {
		t.Fatal(err, called)
	}
	sizes, unfinished := payloads(t, db)
	for _, size := range sizes {
		if size > 256<<10 {
			t.Errorf("a part has %d bytes, want at most 256 KiB", size)
		}
	}
	if len(sizes) != 64 || unfinished != 0 {
		t.Errorf("the snapshot has %d parts, and %d are unfinished, want 64 and 0", len(sizes), unfinished)
	}
	if got, err := db.TestSnapshots().Load(t.Context(), "large", snapshot.Latest()); err != nil || !bytes.Equal(got.Payload, snap.Payload) {
		t.Errorf("loaded %d bytes, %v", len(got.Payload), err)
	}
}

// No record remains of a snapshot that was replaced, deleted or interrupted.
func TestPartsAreDeleted(t *testing.T) {
	t.Parallel()
	cfg := leveldb.Config{}.WithPart(1000)
	d := newDisk(faultNone, 0, 1)
	open := func(d *disk) *leveldb.DB {
		t.Helper()
		db, err := leveldb.OpenStorage(d, d.syncDir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open(d)
	want := func(db *leveldb.DB, parts, unfinished int) {
		t.Helper()
		if sizes, x := payloads(t, db); len(sizes) != parts || x != unfinished {
			t.Errorf("there are %d parts and %d unfinished snapshots, want %d and %d", len(sizes), x, parts, unfinished)
		}
	}
	save := func(ctx context.Context, db *leveldb.DB, nr uint64, size int) error {
		t.Helper()
		snap := largeSnapshot("a", nr, size)
		err := db.TestSnapshots().Save(ctx, snap)
		if got, loadErr := db.TestSnapshots().Load(context.WithoutCancel(ctx), "a", snapshot.Latest()); err == nil && (loadErr != nil || !bytes.Equal(got.Payload, snap.Payload)) {
			t.Errorf("loaded %d bytes of a snapshot of %d, %v", len(got.Payload), size, loadErr)
		}
		return err
	}
	for _, size := range []int{9900, 4500, 12_000, 300, 3000, 990, 999_000} { // each replaces the one before
		if err := save(t.Context(), db, 1, size); err != nil {
			t.Fatal(err)
		}
		want(db, (size+999)/1000, 0)
	}
	// A replacement is complete or has no effect.
	replacing := &between{Context: t.Context(), calls: 4, f: func() error { return context.Canceled }}
	err := db.TestSnapshots().Save(replacing, largeSnapshot("a", 1, 30_000))
	got, loadErr := db.TestSnapshots().Load(t.Context(), "a", snapshot.Latest())
	if size := len(got.Payload); loadErr != nil || size != 30_000 && (size != 999_000 || err == nil) {
		t.Errorf("loaded %d bytes of a replaced snapshot, %v, after the save returned %v", size, loadErr, err)
	}
	if err = db.TestSnapshots().Delete(t.Context(), "a", snapshot.Criteria{All: true}); err != nil {
		t.Fatal(err)
	}
	want(db, 0, 0)

	canceled := &between{Context: t.Context(), calls: 4, f: func() error { return context.Canceled }}
	if err = save(canceled, db, 2, 9900); err == nil {
		t.Error("a canceled save returned no error")
	}
	want(db, 0, 0)

	var cut *disk
	if err = save(&between{Context: t.Context(), calls: 4, f: func() error { cut = d.ifCut(); return nil }}, db, 3, 9900); err != nil {
		t.Fatal(err)
	}
	if err = db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(cut)
	defer db.Close() //nolint:errcheck // the test has ended
	want(db, 2, 1)
	if _, err = db.TestSnapshots().Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("load after a crash between two parts: %v, want ErrNotFound", err)
	}
	if err = save(t.Context(), db, 4, 1200); err != nil {
		t.Fatal(err)
	}
	want(db, 2, 0)
}
