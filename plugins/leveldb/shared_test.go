// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// gatedLogs counts the syncs of logs. While the gate exists, each sync receives from it first.
type gatedLogs struct {
	storage.Storage

	gate   chan struct{}
	syncs  int
	synced func() // called after each sync
}

func (s *gatedLogs) Create(fd storage.FileDesc) (storage.Writer, error) {
	w, err := s.Storage.Create(fd)
	if err != nil || fd.Type != storage.TypeJournal {
		return w, err
	}
	return &gatedLog{w, s}, nil
}

type gatedLog struct {
	storage.Writer

	s *gatedLogs
}

func (w *gatedLog) Sync() error {
	if w.s.gate != nil {
		<-w.s.gate
	}
	w.s.syncs++
	err := w.Writer.Sync()
	if w.s.synced != nil {
		w.s.synced()
	}
	return err
}

// sharing is a database in a synctest bubble. Each call runs on its own goroutine and has either ended
// or waits when start returns.
type sharing struct {
	t     *testing.T
	disk  *disk
	files *gatedLogs
	db    *leveldb.DB

	opened bool // the gate
}

// share runs a test with a database that has the events 1 to 10 of "a" and of "b", and the snapshots 1
// and 2 of "a". An append waits in its sync, so that the calls that the test starts wait for it.
func share(t *testing.T, test func(s *sharing, running *pendingCall)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(faultNone, 0, 1)
		s := &sharing{t: t, disk: d, files: &gatedLogs{Storage: d}}
		cfg := leveldb.Config{}.WithLogSize(4 << 20).WithReopenPause(time.Nanosecond)
		var err error
		if s.db, err = leveldb.OpenStorage(s.files, d.syncDir, cfg); err != nil {
			t.Fatal(err)
		}
		defer func() {
			s.open()
			_ = s.db.Close()        // may fail after an injected fault
			time.Sleep(time.Minute) // the engine drains its pool for a second
		}()
		mustAppend(t, s.db.TestJournal(), write("a", 0, 10), write("b", 0, 10))
		for nr := range uint64(2) {
			if err := s.save("a", nr+1, 10); err != nil {
				t.Fatal(err)
			}
		}
		s.files.gate, s.files.syncs = make(chan struct{}), 0
		test(s, s.append(write("first", 0, 1)))
	})
}

func (s *sharing) save(id string, nr uint64, size int) error {
	return s.db.TestSnapshots().Save(s.t.Context(), snapshot.Snapshot{
		Metadata: snapshot.Metadata{ID: id, SequenceNr: nr, Time: time.UnixMicro(1).UTC()}, Payload: bytes.Repeat([]byte{1}, size),
	})
}

// pendingCall is a call on another goroutine.
type pendingCall struct {
	ended bool
	errs  []error
}

func (s *sharing) start(call func() []error) *pendingCall {
	c := new(pendingCall)
	go func() {
		c.errs = call()
		c.ended = true
	}()
	synctest.Wait()
	return c
}

func (s *sharing) append(writes ...journal.Write) *pendingCall {
	return s.start(func() []error { return s.db.TestJournal().Append(s.t.Context(), writes) })
}

func (s *sharing) deleteTo(id string, to uint64) *pendingCall {
	return s.start(func() []error { return []error{s.db.TestJournal().DeleteTo(s.t.Context(), id, to)} })
}

func (s *sharing) deleteSnapshots(id string, to uint64) *pendingCall {
	return s.start(func() []error {
		return []error{s.db.TestSnapshots().Delete(s.t.Context(), id, snapshot.UpTo(to))}
	})
}

func (s *sharing) saving(id string, nr uint64, size int) *pendingCall {
	return s.start(func() []error { return []error{s.save(id, nr, size)} })
}

// sync lets one sync continue, and then passes the time in which changes wait for an append.
func (s *sharing) sync() {
	s.files.gate <- struct{}{}
	time.Sleep(time.Second)
	synctest.Wait()
}

// open lets all syncs continue.
func (s *sharing) open() {
	if !s.opened {
		close(s.files.gate)
	}
	s.opened = true
	time.Sleep(time.Second)
	synctest.Wait()
}

func (s *sharing) stored(calls ...*pendingCall) {
	s.t.Helper()
	for i, c := range calls {
		if err := errors.Join(c.errs...); err != nil || !c.ended {
			s.t.Errorf("call %d has ended: %t, with the error %v, want a result without an error", i, c.ended, err)
		}
	}
}

// first returns the first event of an ID that is left.
func (s *sharing) first(id string) uint64 {
	s.t.Helper()
	return numbers(s.t, s.db.TestJournal(), id, 0, journal.MaxSequenceNr)[0]
}

func (s *sharing) snapshots(id string) (nrs []uint64) {
	s.t.Helper()
	for md, err := range s.db.TestSnapshots().List(s.t.Context(), id, snapshot.Latest()) {
		if err != nil {
			s.t.Fatal(err)
		}
		nrs = append(nrs, md.SequenceNr)
	}
	return nrs
}

// Saves and deletions that wait are stored with the batch of the next append, or, if there is none for
// some milliseconds, in one batch of their own. A batch is one sync.
func TestChangesShareASync(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"an append", "a later append", "each other"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			share(t, func(s *sharing, running *pendingCall) {
				calls := []*pendingCall{running}
				if with == "an append" {
					calls = append(calls, s.append(write("a", 10, 1), write("c", 0, 1)))
				}
				calls = append(calls, s.deleteTo("a", 4), s.deleteSnapshots("a", 1), s.saving("b", 3, 100), s.deleteTo("b", 7), s.deleteTo("none", 7), s.saving("c", 1, 100))
				if with == "a later append" {
					s.files.gate <- struct{}{}
					synctest.Wait()
					calls = append(calls, s.append(write("a", 10, 1), write("c", 0, 1)))
				} else {
					s.sync()
				}
				s.sync()
				s.stored(calls...)
				if s.files.syncs != 2 {
					t.Errorf("%d calls had %d syncs, want one of the first append and one of the others", len(calls), s.files.syncs)
				}
				if a, b := s.first("a"), s.first("b"); a != 5 || b != 8 {
					t.Errorf("the first events are %d and %d, want 5 and 8", a, b)
				}
				if a, b, c := s.snapshots("a"), s.snapshots("b"), s.snapshots("c"); !slices.Equal(a, []uint64{2}) || !slices.Equal(b, []uint64{3}) || !slices.Equal(c, []uint64{1}) {
					t.Errorf("the snapshots are %v, %v and %v, want 2, 3 and 1", a, b, c)
				}
			})
		})
	}
}

// A deletion sees the deletions that share its batch.
func TestDeletionsOfOneIDShareABatch(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing, running *pendingCall) {
		calls := []*pendingCall{running, s.append(write("a", 10, 1)), s.deleteTo("a", 5), s.deleteTo("a", 7), s.deleteTo("a", 7), s.deleteTo("a", 2)}
		s.sync()
		if calls[5].ended {
			t.Error("a deletion ended before the batch that stores it")
		}
		s.sync()
		s.stored(calls...)
		s.open()
		if err := s.db.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		if s.db, err = leveldb.OpenStorage(s.disk, s.disk.syncDir, leveldb.Config{}); err != nil {
			t.Fatal(err)
		}
		if got := numbers(t, s.db.TestJournal(), "a", 0, journal.MaxSequenceNr); !slices.Equal(got, []uint64{8, 9, 10, 11}) {
			t.Errorf("the events %v are left, want 8 to 11", got)
		}
		if err = s.db.VerifyOrder(t.Context()); err != nil { // reads the deletion records
			t.Error(err)
		}
	})
}

// Saves that wait delay an append by at most about 256 KiB.
func TestSharedBatchIsSmall(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing, running *pendingCall) {
		next := s.append(write("a", 10, 1))
		var saves []*pendingCall
		for nr := range uint64(5) {
			saves = append(saves, s.saving("large", nr+1, 200<<10))
		}
		s.sync()
		s.sync()
		s.stored(running, next)
		for i, c := range saves {
			if c.ended != (i < 2) {
				t.Errorf("save %d of 200 KiB ended with the append: %t, want the first two", i, c.ended)
			}
		}
		s.open()
		s.stored(saves...)
	})
}

// Deletions that wait delay an append by at most about one page of 4,096 records.
func TestSharedBatchHasFewRecords(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing, running *pendingCall) {
		filling := s.append(write("x", 0, 4096), write("y", 0, 4096))
		s.sync()
		next := []*pendingCall{s.append(write("a", 10, 1)), s.append(write("b", 10, 1))}
		deletions := []*pendingCall{s.deleteTo("x", 4096), s.deleteTo("y", 4096)}
		s.sync()
		s.sync()
		s.stored(running, filling, next[0], deletions[0])
		if next[1].ended || deletions[1].ended {
			t.Errorf("the second append ended: %t, the second deletion ended: %t, want only the first ones", next[1].ended, deletions[1].ended)
		}
		s.open()
		s.stored(next[1], deletions[1])
	})
}

// An append waits at most for the batch that is being stored, although more changes wait for theirs.
func TestAppendPrecedesWaitingChanges(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing, running *pendingCall) {
		s.sync() // no append follows, so changes are stored without one
		var saves []*pendingCall
		for nr := range uint64(5) {
			saves = append(saves, s.saving("large", nr+1, 200<<10))
		}
		next := s.append(write("a", 10, 1))
		s.sync()
		s.sync()
		s.stored(running, saves[0], next)
		s.open()
		s.stored(saves...)
	})
}

// A batch that fails fails the calls that share it, and no other.
func TestSharedBatchFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		fault func(*disk)
		err   error
		sent  bool
	}{
		{"sync", (*disk).failNextSync, errFault, true},
		{"full", func(d *disk) { d.setFull(true) }, errNoSpace, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			share(t, func(s *sharing, running *pendingCall) {
				second := s.append(write("a", 10, 1), write("a", 5, 1))
				members := []*pendingCall{s.deleteTo("a", 4), s.saving("b", 1, 10), s.deleteSnapshots("a", 1), s.deleteTo("a", 2)}
				s.files.synced = sync.OnceFunc(func() { test.fault(s.disk) })
				s.sync()
				s.stored(running)
				var late *pendingCall
				if test.sent {
					late = s.saving("b", 2, 10)
				}
				s.open()
				if len(second.errs) != 2 || !errors.Is(second.errs[1], journal.ErrConflict) {
					t.Errorf("the writes of the append failed with %v, want a conflict of the second one", second.errs)
				} else {
					second.errs = second.errs[:1]
				}
				for i, c := range append(members, second) {
					if len(c.errs) != 1 || !errors.Is(c.errs[0], journal.ErrUnavailable) || !errors.Is(c.errs[0], test.err) || errors.Is(c.errs[0], journal.ErrNotSent) == test.sent {
						t.Errorf("call %d of the batch failed with %v, want %v, which may be stored: %t", i, c.errs, test.err, test.sent)
					}
				}
				if late != nil && !errors.Is(late.errs[0], journal.ErrNotSent) {
					t.Errorf("a save that waited for the next batch failed with %v, want ErrNotSent", late.errs)
				}
				s.disk.setFull(false)
				again := []*pendingCall{s.append(write("a", 10, 1)), s.deleteTo("a", 4), s.saving("b", 1, 10), s.deleteSnapshots("a", 1)}
				s.open()
				s.stored(again...)
				if got := s.first("a"); got != 5 {
					t.Errorf("the first event is %d, want 5", got)
				}
			})
		})
	}
}

// Close waits for changes that wait for their batch.
func TestCloseWaitsForSharedBatch(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing, running *pendingCall) {
		calls := []*pendingCall{running, s.append(write("a", 10, 1)), s.deleteTo("a", 4), s.saving("b", 1, 10)}
		closed := make(chan error)
		go func() { closed <- s.db.Close() }()
		s.open()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s.stored(calls...)
	})
}

// Changes wait for another append only if there was one a moment ago.
func TestChangesOfAQuietJournal(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing, running *pendingCall) {
		s.open()
		s.stored(running)
		time.Sleep(time.Second)
		began := time.Now()
		if err := errors.Join(s.save("b", 1, 10), s.db.TestJournal().DeleteTo(t.Context(), "a", 4), s.db.TestSnapshots().Delete(t.Context(), "a", snapshot.UpTo(1))); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("three changes of a quiet journal waited %v, want none", waited)
		}
	})
}

// observedTables calls a function before each read of a table.
type observedTables struct {
	storage.Storage

	read func()
}

func (s *observedTables) Open(fd storage.FileDesc) (storage.Reader, error) {
	r, err := s.Storage.Open(fd)
	if err != nil || fd.Type != storage.TypeTable {
		return r, err
	}
	return &observedTable{r, s}, nil
}

type observedTable struct {
	storage.Reader

	s *observedTables
}

func (r *observedTable) ReadAt(b []byte, offset int64) (int, error) {
	if r.s.read != nil {
		r.s.read()
	}
	return r.Reader.ReadAt(b, offset)
}

// HighestSequenceNr returns the number of the last event also if a deletion of all events is stored
// between two of its reads.
func TestHighestSequenceNrDuringDeletion(t *testing.T) {
	t.Parallel()
	d := newDisk(faultNone, 0, 1)
	files := &observedTables{Storage: d}
	cfg := leveldb.Config{}.WithTuning(func(o *opt.Options) { o.DisableBlockCache = true })
	db, err := leveldb.OpenStorage(files, d.syncDir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	const ids = 20
	name := func(n int) string { return fmt.Sprint("id ", n) }
	for n := range ids {
		mustAppend(t, db.TestJournal(), write(name(n), 0, 10))
		if err = db.TestJournal().DeleteTo(t.Context(), name(n), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err = db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = leveldb.OpenStorage(files, d.syncDir, cfg); err != nil { // writes a table
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	j := db.TestJournal()
	for n := range ids {
		reads := -1 // the first ID opens the table
		if n > 0 {
			files.read = func() {
				if reads++; reads == n-1 {
					if err := j.DeleteTo(t.Context(), name(n), 10); err != nil {
						t.Error(err)
					}
				}
			}
		}
		if highest, err := j.HighestSequenceNr(t.Context(), name(n)); highest != 10 || err != nil {
			t.Errorf("a deletion before read %d: the highest sequence number is %d, %v, want 10", n-1, highest, err)
		}
		files.read = nil
		if n > 0 && reads < n-1 {
			if n < 3 {
				t.Errorf("%d reads, want some", n-1)
			}
			return // there are no more reads
		}
	}
}

// A failed write reopens the database although VerifyOrder runs, and other calls do not wait for the end of
// VerifyOrder.
func TestReopenDuringVerifyOrder(t *testing.T) {
	t.Parallel()
	d := newDisk(faultNone, 0, 1)
	files := &observedTables{Storage: d}
	cfg := leveldb.Config{}.WithTuning(func(o *opt.Options) { o.DisableBlockCache = true }).WithPortion(5).WithReopenPause(time.Nanosecond)
	open := func() *leveldb.DB {
		db, err := leveldb.OpenStorage(files, d.syncDir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	for n := range 20 {
		mustAppend(t, db.TestJournal(), tagged(fmt.Sprint("id ", n), 0, []string{"red"}, nil))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open() // writes a table
	defer func() { _ = db.Close() }()
	j := db.TestJournal()
	if err := db.VerifyOrder(t.Context()); err != nil {
		t.Fatal(err)
	}
	appended := make(chan []error, 1)
	var once atomic.Bool
	files.read = func() {
		if !once.CompareAndSwap(false, true) {
			return
		}
		d.setFull(true)
		if errs := j.Append(t.Context(), []journal.Write{write("new", 0, 1)}); errs == nil || !errors.Is(errs[0], journal.ErrNotSent) {
			t.Errorf("an append to a full disk: %v, want ErrNotSent", errs)
		}
		d.setFull(false)
		go func() { appended <- j.Append(t.Context(), []journal.Write{write("new", 0, 1)}) }()
		for !db.Replacing() { // the append waits for the present call of VerifyOrder
			runtime.Gosched()
		}
	}
	err := db.VerifyOrder(t.Context())
	if err == nil || errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), "reopened after a disk failure") {
		t.Errorf("VerifyOrder, with a database that is reopened: %v, want an error about it", err)
	}
	if errs := <-appended; errs != nil {
		t.Errorf("the append that reopens the database: %v", errs)
	}
	if err = db.VerifyOrder(t.Context()); err != nil {
		t.Error(err)
	}
}
