// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

func (d *disk) setFull(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// TestFullDisk fills the disk at different points of a log. A failed write is reported as not
// stored, stored events stay readable, and writes succeed again when the disk has space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for filled := range 24 {
		if !effort.Soak() && filled > 3 && filled%5 != 0 {
			continue
		}
		d := newDisk(faultTear, 0, uint64(filled))
		db, err := leveldb.OpenStorage(d, d.syncDir, small())
		if err != nil {
			t.Fatal(err)
		}
		j := db.TestJournal()
		next := uint64(0)
		for range 3 {
			for range filled { // number of events that are certainly stored before the disk is full
				appendAgain(t, j, eventWrite("a", next, 1))
				next++
			}
			d.setFull(true)
			for range 5 { // one attempt is not enough: a small write may fit into space that is already allocated
				errs := j.Append(t.Context(), []journal.Write{eventWrite("a", next, 1), eventWrite("a", next+1, 1)})
				if errs == nil {
					t.Fatal("Append on a full disk returned nil, want an error")
				}
				if !journal.NotStored(errs[0]) || !errors.Is(errs[0], journal.ErrUnavailable) || !errors.Is(errs[0], errNoSpace) ||
					!strings.Contains(errs[0].Error(), `"storage"`) || !journal.NotStored(errs[1]) {
					t.Fatalf("after %d events Append returned %v, want a certain error that names the full disk", next, errs)
				}
				if err = db.TestSnapshots().Save(t.Context(), snapshotOf("a", 1)); !errors.Is(err, errNoSpace) {
					t.Fatalf("save: %v, want the error of the full disk", err)
				}
				if got := len(numbersOf(t, j)); got != int(next) {
					t.Fatalf("%d events can be read, want %d", got, next)
				}
			}
			d.setFull(false)
		}
		appendAgain(t, j, eventWrite("a", next, 1))
		if err = db.TestSnapshots().Save(t.Context(), snapshotOf("a", 1)); err != nil {
			t.Fatal(err)
		}
		if err = db.Close(); err != nil {
			t.Fatal(err)
		}
		d = d.afterCut()
		if db, err = leveldb.OpenStorage(d, d.syncDir, small()); err != nil {
			t.Fatal(err)
		}
		if got := len(numbersOf(t, db.TestJournal())); got != int(next)+1 {
			t.Errorf("%d events, want %d", got, next+1)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// appendAgain retries an append until the journal is available, because the engine retries failed
// background work only after a pause.
func appendAgain(t *testing.T, j journal.Journal, w journal.Write) {
	t.Helper()
	for {
		errs := j.Append(t.Context(), []journal.Write{w})
		if errs == nil {
			return
		}
		if !journal.NotStored(errs[0]) || !errors.Is(errs[0], journal.ErrUnavailable) {
			t.Fatal(errs[0])
		}
		runtime.Gosched()
	}
}

// numbersOf returns the sequence numbers of the stored events of "a".
func numbersOf(t *testing.T, j journal.Journal) []uint64 {
	t.Helper()
	var nrs []uint64
	for e, err := range j.Replay(t.Context(), "a", 1, journal.MaxSequenceNr) {
		if err != nil {
			t.Fatal(err)
		}
		nrs = append(nrs, e.SequenceNr)
	}
	return nrs
}

// TestUnknownOutcome loses a record in a failed sync. Reads must fail until the database is
// reopened. After a failed attempt to reopen, the next attempt waits for the reopen pause.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := newDisk(faultNone, 0, 1)
	db, err := leveldb.OpenStorage(d, d.syncDir, small().WithReopenPause(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	j := db.TestJournal()
	mustAppend(t, j, eventWrite("a", 0, 1))
	d.failNextSync()
	errs := j.Append(t.Context(), []journal.Write{eventWrite("a", 1, 1), eventWrite("b", 0, 1)})
	for i := range 2 {
		if len(errs) != 2 || journal.NotStored(errs[i]) || !errors.Is(errs[i], errFault) || !errors.Is(errs[i], journal.ErrUnavailable) {
			t.Fatalf("append: %v, want an unknown outcome that matches ErrUnavailable and the fault", errs)
		}
	}
	d.setFull(true)
	for range 2 {
		if _, err := j.HighestSequenceNr(t.Context(), "a"); !errors.Is(err, journal.ErrUnavailable) || !errors.Is(err, errNoSpace) {
			t.Errorf("highest: %v, want ErrUnavailable and the full disk", err)
		}
		if _, err := db.TestSnapshots().Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, errNoSpace) {
			t.Errorf("load: %v, want the error of the full disk", err)
		}
		d.setFull(false) // the second round must return the same errors, because the reopen pause has not passed
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoSync checks that NoSync loses events in a power cut, but not when the process dies or the
// database is closed first.
func TestNoSync(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.NoSync = true
	d := newDisk(faultCut, 0, 1)
	db, err := leveldb.OpenStorage(d, d.syncDir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(100) {
		mustAppend(t, db.TestJournal(), eventWrite("a", n, 1))
	}
	lost := d.clone() // the files that the next process finds
	cut := d.ifCut()
	after, err := leveldb.OpenStorage(cut, cut.syncDir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(numbersOf(t, after.TestJournal())); got == 0 || got >= 100 {
		t.Errorf("%d events after a power cut, want 1 to 99", got)
	}
	if err := after.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	for subject, d := range map[string]*disk{"the process died": lost, "closed before a power cut": d.afterCut()} {
		db, err := leveldb.OpenStorage(d, d.syncDir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(numbersOf(t, db.TestJournal())); got != 100 {
			t.Errorf("%s: %d events, want 100", subject, got)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// tableStorage counts the tables that are created, and the writes to them.
type tableStorage struct {
	storage.Storage

	tables, writes, bytes atomic.Int64
}

func (s *tableStorage) Create(fd storage.FileDesc) (storage.Writer, error) {
	w, err := s.Storage.Create(fd)
	if err != nil || fd.Type != storage.TypeTable {
		return w, err
	}
	s.tables.Add(1)
	return &tableWriter{w, s}, nil
}

type tableWriter struct {
	storage.Writer

	s *tableStorage
}

func (w *tableWriter) Write(b []byte) (int, error) {
	w.s.writes.Add(1)
	w.s.bytes.Add(int64(len(b)))
	return w.Writer.Write(b)
}

func TestTablesAreWrittenInLargePieces(t *testing.T) {
	t.Parallel()
	d := newDisk(faultNone, 0, 1)
	s := &tableStorage{Storage: d}
	db, err := leveldb.OpenStorage(s, d.syncDir, leveldb.Config{}.WithLogSize(testLog))
	if err != nil {
		t.Fatal(err)
	}
	w := write("a", 0, 500) // less than a log
	for i := range w.Events {
		w.Events[i].Payload = benchData(500)
	}
	mustAppend(t, db.TestJournal(), w)
	if err := errors.Join(db.Compact(t.Context()), db.Close()); err != nil {
		t.Fatal(err)
	}
	const piece = 64 << 10
	if s.tables.Load() == 0 || s.writes.Load() > s.bytes.Load()/piece+s.tables.Load() {
		t.Errorf("%d tables of %d bytes in total were written in %d writes, want pieces of %d bytes", s.tables.Load(), s.bytes.Load(), s.writes.Load(), piece)
	}
}
