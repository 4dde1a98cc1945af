// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"testing"

	engine "github.com/syndtr/goleveldb/leveldb"
	log "github.com/syndtr/goleveldb/leveldb/journal"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// bounded fails the test if f allocates much more than the length of its input.
func bounded(t *testing.T, input int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(64*input+1<<20); got > limit {
		t.Errorf("an input of %d bytes allocates %d bytes, want at most %d", input, got, limit)
	}
}

func FuzzDecodeEvent(f *testing.F) {
	for _, w := range goldenEvents() {
		for i := range w.Events {
			f.Add(leveldb.EncodeEvent(&w.Events[i]))
		}
	}
	f.Add([]byte{1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0x1f})
	f.Fuzz(func(t *testing.T, b []byte) {
		kept := bytes.Clone(b)
		var e journal.Event
		var err error
		bounded(t, len(b), func() { e, err = leveldb.DecodeEvent(b) })
		if !bytes.Equal(b, kept) {
			t.Error("decoding changed its input")
		}
		if err != nil {
			return
		}
		again, err := leveldb.DecodeEvent(leveldb.EncodeEvent(&e))
		if len(e.Tags) == 0 {
			e.Tags = nil
		}
		if len(e.Metadata) == 0 {
			e.Metadata = nil
		}
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%+v is encoded and decoded as %+v, %v", e, again, err)
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add([]byte("key"), append(make([]byte, 30), 1))
	f.Add([]byte("key"), []byte{1, 0xfe, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 1, 2, 3, 4, 'm', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, key, b []byte) {
		bounded(t, len(b)+len(key), func() {
			again, err := leveldb.DecodeSnapshot(key, b)
			if err == nil && !bytes.Equal(again[:len(again)-4], b[:len(b)-4]) {
				t.Errorf("%x is decoded and encoded as %x", b, again)
			}
		})
	})
}

func FuzzDecodeSmall(f *testing.F) {
	f.Add([]byte{1, 5})
	f.Add([]byte{1, 5, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, len(b), func() {
			number, deleted, err := leveldb.DecodeSmall(b)
			if number > 1<<56 || deleted[1] > deleted[0] || err == nil {
				t.Errorf("%x is decoded as number %d and deletion %v, %v", b, number, deleted, err) // b cannot be both
			}
		})
	})
}

// engineRecords returns the records of a log as the engine reads it.
func engineRecords(t *testing.T, b []byte) [][]byte {
	t.Helper()
	r := log.NewReader(bytes.NewReader(b), nil, false, true)
	var records [][]byte
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(record)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, data)
	}
}

// FuzzLog checks that the engine reads a log completely if the log passes the check, and that both
// find the same records. Its seeds are small, because the fuzzer is a thousand times slower with
// inputs of more than a block; TestLongLogs covers such inputs.
func FuzzLog(f *testing.F) {
	b := logOf(f, 0, 1, 100, 600, 3)
	f.Add(b, uint32(0), byte(0), uint16(0))
	f.Add(b, uint32(7), byte(1), uint16(9))
	f.Add(b, uint32(300), byte(255), uint16(0))
	f.Add(b[:200], uint32(0), byte(0), uint16(0)) // a record without its end
	f.Add(b[:100], uint32(6), byte(3), uint16(600))
	f.Fuzz(checkLog)
}

// TestLongLogs damages a log of several blocks in all of its parts. It measures allocations, so no
// other test runs at the same time.
func TestLongLogs(t *testing.T) { //nolint:paralleltest // see above
	b := logOf(t, 0, 1, 100, 5000, 40_000, 33_000, 3)
	checkLog(t, b, uint32(len(b)), 0, 0)
	checkLog(t, slices.Concat(b[:32<<10], b[:200]), 0, 0, 0) // a record without its end
	for at := 0; at < len(b); at += 997 {
		checkLog(t, b, uint32(at), 255, 0)
		checkLog(t, b, uint32(at), 1, 600)
		checkLog(t, b[:at], 0, 0, 0)
	}
}

// logOf makes a log with records of these lengths.
func logOf(tb testing.TB, lengths ...int) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := log.NewWriter(&b)
	for _, n := range lengths {
		record, err := w.Next()
		if err == nil {
			_, err = record.Write(imagePayload(uint64(n), n))
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// checkLog damages a log at one place and compares the check with the engine.
func checkLog(t *testing.T, b []byte, at uint32, mask byte, zeros uint16) {
	t.Helper()
	b = slices.Clone(b)
	if n := int(at); n < len(b) {
		b[n] ^= mask
		clear(b[n+1 : min(n+1+int(zeros), len(b))])
	}
	var got [][]byte
	var err error
	bounded(t, len(b), func() { got, err = leveldb.LogRecords(b) })
	if err != nil {
		if corrupt, ok := errors.AsType[*journal.CorruptError](err); !ok || corrupt.Offset < 0 || corrupt.Offset > int64(len(b)) {
			t.Errorf("the check returned %v, want a CorruptError with an offset in the log", err)
		}
		return
	}
	if want := engineRecords(t, b); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("the check reads %d records, the engine %d", len(got), len(want))
	}
}

// FuzzBatch compares the check of a batch with the engine, and searches for panics in the check of
// a manifest record.
func FuzzBatch(f *testing.F) {
	var batch engine.Batch
	batch.Put([]byte("key"), []byte("value"))
	batch.Delete([]byte("other"))
	batch.Put(nil, nil)
	f.Add(batch.Dump(), uint32(3))
	f.Add(batch.Dump(), uint32(2))
	f.Add([]byte{2, 1, 3, 0, 4, 9, 1, 19}, uint32(0))
	f.Add([]byte("\x01\x98\x98\x98\x98\x92\x92\x92\x92\x92\x01"), uint32(162)) // the engine panics
	f.Fuzz(func(t *testing.T, b []byte, count uint32) {
		record := binary.LittleEndian.AppendUint64(nil, 1)
		record = binary.LittleEndian.AppendUint32(record, count)
		record = append(record, b...)
		var err error
		bounded(t, len(b), func() { err, _ = leveldb.CheckBatch(record) })
		var again engine.Batch
		lerr := load(&again, b)
		if err == nil && (lerr != nil || again.Len() != int(count)) {
			t.Errorf("the check accepts %x as a batch of %d entries, but the engine returns %v", b, count, lerr)
		}
		if err != nil && lerr == nil && again.Len() == int(count) && bytes.Equal(dump(&again), b) {
			t.Errorf("the check rejects %x, which the engine reads: %v", b, err)
		}
	})
}

// load decodes a batch with the engine and returns a panic of the engine as an error.
func load(into *engine.Batch, b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return into.Load(b)
}

// dump encodes a batch in the only form that the engine writes.
func dump(b *engine.Batch) []byte {
	var again engine.Batch
	if err := b.Replay(&again); err != nil {
		return nil
	}
	return again.Dump()
}

func FuzzFooter(f *testing.F) {
	f.Add(append(make([]byte, 200), "\x57\xfb\x80\x8b\x24\x75\x47\xdb"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, len(b), func() { _ = leveldb.CheckFooter(b) })
	})
}

// FuzzRuns decodes the records of groups and of tags.
func FuzzRuns(f *testing.F) {
	f.Add([]byte{1, 1, 1, 2, 2, 1, 2}, false)
	f.Add([]byte{1, 1, 1, 2, 1}, true)
	f.Add([]byte{1, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, true)
	f.Fuzz(func(t *testing.T, b []byte, tag bool) {
		var runs []leveldb.Run
		var err error
		bounded(t, len(b), func() { runs, err = leveldb.DecodeRuns(b, tag) })
		behind := uint64(0)
		for _, r := range runs {
			index, number, first, count := r[0], r[1], r[2], r[3]
			if index < behind || !tag && index != behind || index+count > 4096 || number == 0 || number >= 1<<56 ||
				first == 0 || count == 0 || first+count-1 > journal.MaxSequenceNr {
				t.Fatalf("%x is decoded to the invalid run %v after index %d", b, r, behind)
			}
			behind = index + count
		}
		if err != nil {
			return
		}
		if again, err := leveldb.DecodeRuns(leveldb.EncodeRuns(runs, tag), tag); len(runs) == 0 || err != nil || !slices.Equal(again, runs) {
			t.Errorf("%x is decoded as %v, and after encoding as %v, %v", b, runs, again, err)
		}
	})
}

func FuzzOffset(f *testing.F) {
	f.Add("ldb1-1-0001", "")
	f.Add("ldb1-1000-4096", "ldb1-999-0001")
	f.Fuzz(func(t *testing.T, a, b string) {
		var places [2][2]uint64
		for i, o := range []string{a, b} {
			group, index, err := leveldb.DecodeOffset(journal.Offset(o))
			if err != nil {
				if !errors.Is(err, journal.ErrOffset) || len(err.Error()) > 400 {
					t.Errorf("%q: %v, want ErrOffset", o, err)
				}
				return
			}
			if again := leveldb.EncodeOffset(group, index); string(again) != o || len(o) > 64 {
				t.Errorf("%q is decoded and encoded as %q", o, again)
			}
			places[i] = [2]uint64{group, index}
		}
		if got, want := journal.Offset(a).Compare(journal.Offset(b)), slices.Compare(places[0][:], places[1][:]); got != want {
			t.Errorf("%q compared with %q is %d, want %d", a, b, got, want)
		}
	})
}

func FuzzIndexKeys(f *testing.F) {
	f.Add(leveldb.TagKey("red", 7))
	f.Add([]byte("w12345678\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("\x01four"))
	f.Add([]byte{2, 1, 'a', 1, 'b'})
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, len(b), func() {
			for _, again := range leveldb.DecodeKeys(b) {
				if n := len(b) - len(again); n < 0 || b[0] == 'w' && !bytes.Equal(again, b) { // a varint may be longer than necessary
					t.Errorf("%x is decoded and encoded as %x", b, again)
				}
			}
		})
	})
}
