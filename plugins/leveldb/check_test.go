// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	log "github.com/syndtr/goleveldb/leveldb/journal"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// image is a disk with a log, and the offset at which each append in this log ends. Each append
// stores one event of the same ID.
type image struct {
	*disk
	log  storage.FileDesc
	data []byte
	ends []int
}

const imageID = "id"

// damageConfig returns a Config with a log that is just large enough for an image, because the
// engine allocates the size of the log.
func damageConfig() leveldb.Config { return leveldb.Config{}.WithLogSize(256 << 10) }

func newImage(t *testing.T, sizes ...int) image {
	t.Helper()
	d := newDisk(faultNone, 0, 1)
	db, err := leveldb.OpenStorage(d, d.syncDir, damageConfig())
	if err != nil {
		t.Fatal(err)
	}
	im := image{}
	for i, size := range sizes {
		nr := uint64(i) + 1
		w := journal.Write{ID: imageID, Writer: "w", Expect: nr - 1, Events: []journal.Event{{
			SequenceNr: nr, Time: time.UnixMicro(0).UTC(), Manifest: "m", Payload: imagePayload(nr, size),
		}}}
		mustAppend(t, db.TestJournal(), w)
		_, data := d.only(t, storage.TypeJournal)
		im.ends = append(im.ends, len(data))
	}
	im.disk = d.clone()
	im.log, im.data = im.only(t, storage.TypeJournal)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return im
}

func imagePayload(nr uint64, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(1 + (i*7+int(nr))%251)
	}
	return b
}

// record returns the index of the append that the byte at an offset belongs to.
func (im image) record(offset int) int {
	return slices.IndexFunc(im.ends, func(end int) bool { return offset < end })
}

// contents opens a disk, checks that each of its appends is complete, and returns their number. The
// error is that of opening or reading the disk.
func contents(t *testing.T, d *disk, sizes []int, cfg leveldb.Config) (n int, err error) {
	t.Helper()
	db, err := leveldb.OpenStorage(d, d.syncDir, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for e, err := range db.TestJournal().Replay(t.Context(), imageID, 1, journal.MaxSequenceNr) {
		if err != nil {
			return 0, err
		}
		if n++; e.SequenceNr != uint64(n) || !bytes.Equal(e.Payload, imagePayload(e.SequenceNr, sizes[n-1])) {
			t.Fatalf("event %d is %+v, want its number and its payload", n, e)
		}
	}
	highest, err := db.TestJournal().HighestSequenceNr(t.Context(), imageID)
	if err == nil && highest != uint64(n) {
		t.Fatalf("%d events were read, but the highest sequence number is %d", n, highest)
	}
	if err == nil {
		err = db.VerifyOrder(t.Context()) // the index is stored together with the events
	}
	return n, err
}

func TestDamagedByteOfLog(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 200, 1, 30, 120, 64}
	im := newImage(t, sizes...)
	last := len(sizes) - 1
	for at := range im.data {
		for _, mask := range masks(at) {
			damaged := slices.Clone(im.data)
			damaged[at] ^= mask
			n, err := contents(t, im.with(im.log, damaged), sizes, damageConfig())
			if im.record(at) == last { // no record follows, so this one may be torn
				if err != nil || n != last {
					t.Errorf("byte %d of the last record is damaged: got %d events, %v, want %d and no error", at, n, err, last)
				}
				continue
			}
			corrupt, ok := errors.AsType[*journal.CorruptError](err)
			if !ok || !errors.Is(err, journal.ErrCorrupt) {
				t.Errorf("byte %d of record %d: %d events, %v, want ErrCorrupt", at, im.record(at), n, err)
				continue
			}
			if begin := im.ends[im.record(at)] - im.length(im.record(at)); corrupt.File != im.log.String() || corrupt.Offset != int64(begin) {
				t.Errorf("byte %d is damaged: got %v, want a CorruptError of %v at offset %d", at, err, im.log, begin)
			}
		}
	}
}

func (im image) length(record int) int {
	if record == 0 {
		return im.ends[0]
	}
	return im.ends[record] - im.ends[record-1]
}

func TestTruncatedLog(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 90, 1, 30}
	im := newImage(t, sizes...)
	for size := range im.data {
		whole := 0
		for whole < len(im.ends) && im.ends[whole] <= size {
			whole++
		}
		zeros := []int{0, []int{1, 7}[size%2]}
		switch {
		case effort.Soak():
			zeros = []int{0, 1, 7, 40_000}
		case size%64 == 0: // a whole block of zeros takes long to scan
			zeros = append(zeros, 40_000)
		}
		for _, zeros := range zeros {
			torn := append(slices.Clone(im.data[:size]), make([]byte, zeros)...)
			if n, err := contents(t, im.with(im.log, torn), sizes, damageConfig()); err != nil || n != whole {
				t.Errorf("%d bytes and %d zeros are left: got %d events, want %d: %v", size, zeros, n, whole, err)
			}
		}
	}
}

// masks returns the masks of bits to flip in the byte at an offset: one of three masks in turn, or
// all three with REFOLD_SOAK.
func masks(at int) []byte {
	all := []byte{0x01, 0x80, 0xff}
	if effort.Soak() {
		return all
	}
	return all[at%3 : at%3+1]
}

// TestDamagedBlock damages a log of several blocks at several places.
func TestDamagedBlock(t *testing.T) {
	t.Parallel()
	sizes := []int{100, 20_000, 40_000, 10, 12_000, 100_000}
	im := newImage(t, sizes...)
	last := len(sizes) - 1
	begin := im.ends[last-1]
	final := im.ends[last] / 32768 * 32768 // where the last chunk begins
	for at := 0; at < len(im.data); at += 4007 {
		damaged := slices.Clone(im.data)
		damaged[at] ^= 0x10
		n, err := contents(t, im.with(im.log, damaged), sizes, damageConfig())
		switch {
		case at >= final:
			if err != nil || n != last {
				t.Errorf("byte %d of the last chunk is damaged: got %d events, %v, want %d and no error", at, n, err, last)
			}
		case !errors.Is(err, journal.ErrCorrupt):
			t.Errorf("byte %d: %d events, %v, want ErrCorrupt", at, n, err)
		}
	}
	for at := 0; at < len(im.data); at += 5 * 512 {
		lost := slices.Clone(im.data)
		clear(lost[at:min(at+512, len(lost))])
		n, err := contents(t, im.with(im.log, lost), sizes, damageConfig())
		switch {
		case at >= begin: // the power may have been cut while the record was written
			if err != nil || n != last {
				t.Errorf("the sector at %d of the last record is lost: got %d events, %v, want %d and no error", at, n, err, last)
			}
		case !errors.Is(err, journal.ErrCorrupt) && (at+512 <= begin || err != nil || n != last-1):
			t.Errorf("the sector at %d is lost: got %d events, %v, want ErrCorrupt", at, n, err)
		}
	}
}

// split returns the disk with two logs instead of one; the second one begins with the given record.
func (im image) split(t *testing.T, record int) (d *disk, second storage.FileDesc) {
	t.Helper()
	r := log.NewReader(bytes.NewReader(im.data), nil, true, true)
	var first, rest bytes.Buffer
	writers := []*log.Writer{log.NewWriter(&first), log.NewWriter(&rest)}
	for i := range im.ends {
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		w := writers[0]
		if i >= record {
			w = writers[1]
		}
		to, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(rec); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(b.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range writers {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	second = storage.FileDesc{Type: storage.TypeJournal, Num: im.log.Num + 7}
	return im.with(im.log, first.Bytes()).with(second, rest.Bytes()), second
}

func TestTwoLogs(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 20, 30_000, 40_000}
	im := newImage(t, sizes...)
	d, second := im.split(t, 2)
	for _, readOnly := range []bool{false, true} {
		cfg := damageConfig()
		cfg.ReadOnly = readOnly
		if n, err := contents(t, d.clone(), sizes, cfg); err != nil || n != 4 {
			t.Errorf("read-only %v: %d events, %v, want 4", readOnly, n, err)
		}
		first := d.files[im.log].data
		torn := d.with(im.log, first[:len(first)-1])
		if _, err := contents(t, torn, sizes, cfg); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("read-only %v: the end of the first log is damaged: %v, want ErrCorrupt", readOnly, err)
		}
		if n, err := contents(t, torn.with(second, nil), sizes, cfg); err != nil || n != 1 {
			t.Errorf("read-only %v: the end of the first log is torn, and the second is empty: got %d events, %v, want 1 and no error", readOnly, n, err)
		}
		missing := d.clone()
		delete(missing.files, im.log)
		if _, err := contents(t, missing, sizes, cfg); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("read-only %v: the first log is missing: %v, want ErrCorrupt", readOnly, err)
		}
	}
}

// flushed returns a disk where the appends are in a table, and the manifest has several records.
func flushed(t *testing.T, sizes []int) *disk {
	t.Helper()
	d := newImage(t, sizes...).disk
	for range 3 {
		db, err := leveldb.OpenStorage(d, d.syncDir, damageConfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestDamagedManifestAndTable(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 200, 1, 30, 120, 64}
	d := flushed(t, sizes)
	for _, kind := range []storage.FileType{storage.TypeManifest, storage.TypeTable} {
		fd, data := d.only(t, kind)
		corrupt := 0
		for at := range data {
			for _, mask := range masks(at) {
				damaged := slices.Clone(data)
				damaged[at] ^= mask
				n, err := contents(t, d.with(fd, damaged), sizes, damageConfig())
				switch {
				case errors.Is(err, journal.ErrCorrupt):
					corrupt++
				case err != nil || n != len(sizes):
					t.Errorf("byte %d of %v is damaged: got %d events, %v, want %d or ErrCorrupt", at, fd, n, err, len(sizes))
				}
			}
		}
		step := 5
		if effort.Soak() {
			step = 1
		}
		for size := 0; size < len(data); size += step {
			n, err := contents(t, d.with(fd, data[:size:size]), sizes, damageConfig())
			if !errors.Is(err, journal.ErrCorrupt) && (err != nil || n != len(sizes)) {
				t.Errorf("%v is cut to %d bytes: got %d events, %v, want %d or ErrCorrupt", fd, size, n, err, len(sizes))
			}
		}
		if n := len(masks(0)) * len(data); corrupt < n/3 {
			t.Errorf("%v: %d of %d damages were reported, want at least a third", fd, corrupt, n)
		}
		for _, readOnly := range []bool{false, true} {
			missing := d.clone()
			delete(missing.files, fd)
			cfg := damageConfig()
			cfg.ReadOnly = readOnly
			_, err := leveldb.OpenStorage(missing, missing.syncDir, cfg)
			if corrupt, ok := errors.AsType[*journal.CorruptError](err); !ok || kind == storage.TypeTable && corrupt.File != fd.String() {
				t.Errorf("%v is missing, read-only %v: %v, want a CorruptError that names it", fd, readOnly, err)
			}
		}
	}
}

// TestHugeFooter writes invalid footers, which no checksum covers.
func TestHugeFooter(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 200}
	d := flushed(t, sizes)
	fd, data := d.only(t, storage.TypeTable)
	footer := len(data) - 48
	for _, huge := range []uint64{uint64(len(data)), 1 << 20, 1 << 40, 1<<63 - 10, 1<<63 + 10, 1<<64 - 1, 1<<64 - 5} {
		for _, handles := range [][]uint64{{huge, 0, huge, 0}, {0, huge, 0, huge}, {huge, huge, huge, huge}, {0, 10, 0, huge}} {
			damaged := slices.Clone(data)
			clear(damaged[footer : len(data)-8])
			var b []byte
			for _, n := range handles {
				b = binary.AppendUvarint(b, n)
			}
			copy(damaged[footer:], b)
			if n, err := contents(t, d.with(fd, damaged), sizes, damageConfig()); !errors.Is(err, journal.ErrCorrupt) {
				t.Errorf("%x: %d events, %v, want ErrCorrupt", handles, n, err)
			}
		}
	}
}

// TestSplicedLog builds logs in which each part is intact, but the sequence of parts is wrong.
func TestSplicedLog(t *testing.T) {
	t.Parallel()
	sizes := []int{100, 40_000, 50, 60}
	im := newImage(t, sizes...)
	const block = 32 << 10
	second := im.data[block:]
	rest := 7 + int(binary.LittleEndian.Uint16(second[4:])) // the end of the large record
	first, two, third, all := im.data[:im.ends[0]], im.data[:im.ends[1]], im.data[im.ends[1]:im.ends[2]], im.data
	fourth := im.data[im.ends[2]:]
	for _, c := range []struct {
		subject string
		data    []byte
		at      int
	}{
		{"a record without an end", slices.Concat(im.data[:block], second[rest:]), im.ends[0]},
		{"a record without a beginning", second, 0},
		{"a record twice", slices.Concat(all, fourth), len(all)},
		{"records in another order", slices.Concat(two, fourth, third), im.ends[1] + len(fourth)},
		{"the first record twice", slices.Concat(first, first), im.ends[0]},
	} {
		n, err := contents(t, im.with(im.log, c.data), sizes, damageConfig())
		if corrupt, ok := errors.AsType[*journal.CorruptError](err); !ok || corrupt.Offset != int64(c.at) {
			t.Errorf("%s: got %d events, %v, want a CorruptError at offset %d", c.subject, n, err, c.at)
		}
	}
}

func TestDamagedCurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	mustAppend(t, db.TestJournal(), write("a", 0, 3))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "CURRENT")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := range data {
		damaged := slices.Clone(data)
		damaged[at] ^= 1
		copied := t.TempDir()
		if err := os.CopyFS(copied+"/db", os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, "db", "CURRENT"), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := leveldb.Open(copied+"/db", leveldb.Config{}.WithLogSize(testLog))
		if err == nil {
			if got := numbers(t, db.TestJournal(), "a", 1, 9); len(got) != 3 {
				t.Errorf("byte %d: the events are %v, want 3", at, got)
			}
			err = db.Close()
		}
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("byte %d: %v, want nil or ErrCorrupt", at, err)
		}
	}
}
