// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

var (
	errPower = errors.New("the power is off")
	errFault = errors.New("input/output error")
)

// disk is a storage in memory that tracks which data survives a power cut: synced bytes, and synced
// entries of the directory.
type disk struct {
	mu      sync.Mutex
	files   map[storage.FileDesc]*diskFile
	durable map[storage.FileDesc]*diskFile // entries of the directory that are on disk
	meta    storage.FileDesc
	locked  bool

	ops      int // changes so far
	at       int // the change that fails, 0 for none
	mode     faultMode
	rnd      *rand.Rand
	off      bool
	full     bool // no space is left
	loseNext bool // the next sync fails and loses its data
	failNext bool // the next sync fails; its data can be read until the power is cut
}

type faultMode int

const (
	faultNone   faultMode = iota
	faultCut              // the power is cut at that change, and unsynced data is lost
	faultTear             // the same, but some unsynced data is kept
	faultPrefix           // the same, but a prefix of the unsynced data of each file is kept
	faultError            // that change fails, possibly half done, and later changes succeed
)

type diskFile struct {
	data   []byte
	synced int // bytes that are on disk
	// forgotten is set when a sync of the file failed. Later syncs treat the bytes of the failed
	// sync as written, so these bytes never reach the disk.
	forgotten bool
}

func newDisk(mode faultMode, at int, seed uint64) *disk {
	return &disk{
		files: make(map[storage.FileDesc]*diskFile), durable: make(map[storage.FileDesc]*diskFile),
		mode: mode, at: at, rnd: rand.New(rand.NewPCG(seed, uint64(at))),
	}
}

// change counts a change and returns its error. The caller holds the lock.
func (d *disk) change() error {
	if d.off {
		return errPower
	}
	d.ops++
	if d.full {
		return errNoSpace
	}
	if d.at == 0 || d.ops != d.at {
		return nil
	}
	if d.mode == faultError {
		return errFault
	}
	d.off = true
	return errPower
}

var errNoSpace = &os.PathError{Op: "write", Path: "disk", Err: errors.New("no space left on device")}

// afterCut returns the disk after the power was cut and restored, without faults.
func (d *disk) afterCut() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	return d.survivors()
}

// ifCut returns the result of afterCut and leaves the power on.
func (d *disk) ifCut() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.survivors()
}

func (d *disk) survivors() *disk {
	after := newDisk(faultNone, 0, 1)
	after.meta = d.meta
	keep := d.mode == faultTear || d.mode == faultPrefix
	all := make(map[storage.FileDesc]*diskFile)
	for fd, f := range d.durable {
		if d.files[fd] == f || !keep || d.rnd.IntN(2) == 0 { // a removal that was not synced
			all[fd] = f
		}
	}
	for fd, f := range d.files {
		if d.durable[fd] != f && keep && d.rnd.IntN(2) == 0 { // a creation that was not synced
			all[fd] = f
		}
	}
	fds := make([]storage.FileDesc, 0, len(all))
	for fd := range all {
		fds = append(fds, fd)
	}
	slices.SortFunc(fds, func(a, b storage.FileDesc) int { return int(a.Type-b.Type)<<20 + int(a.Num-b.Num) })
	for _, fd := range fds {
		f := all[fd]
		data := slices.Clone(f.data[:f.synced])
		if keep {
			data = append(data, d.tear(f.data[f.synced:], len(data))...)
		}
		copied := &diskFile{data: data, synced: len(data)}
		after.files[fd], after.durable[fd] = copied, copied
	}
	return after
}

// clone returns a copy without faults.
func (d *disk) clone() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newDisk(faultNone, 0, 1)
	c.meta = d.meta
	for fd, f := range d.files {
		copied := &diskFile{data: slices.Clone(f.data), synced: len(f.data)}
		c.files[fd], c.durable[fd] = copied, copied
	}
	return c
}

// only returns the only file of a type.
func (d *disk) only(tb testing.TB, kind storage.FileType) (storage.FileDesc, []byte) {
	tb.Helper()
	var found []storage.FileDesc
	for fd := range d.files {
		if fd.Type == kind {
			found = append(found, fd)
		}
	}
	if len(found) != 1 {
		tb.Fatalf("found the files %v, want one", found)
	}
	return found[0], d.files[found[0]].data
}

// with returns a copy with other contents of a file.
func (d *disk) with(fd storage.FileDesc, data []byte) *disk {
	c := d.clone()
	f := &diskFile{data: data, synced: len(data)}
	c.files[fd], c.durable[fd] = f, f
	return c
}

// tear returns the part of unsynced bytes that survives: a prefix, possibly with zeros after it, or
// all bytes with some sectors lost.
func (d *disk) tear(b []byte, offset int) []byte {
	b = bytes.Clone(b)
	kind := d.rnd.IntN(4)
	if d.mode == faultPrefix && kind != 3 {
		kind = 0
	}
	switch kind {
	case 0:
		return b[:d.rnd.IntN(len(b)+1)]
	case 1:
		clear(b[d.rnd.IntN(len(b)+1):])
		return b
	case 2:
		for from := 0; from < len(b); {
			to := min((from+offset)/512*512+512-offset, len(b))
			if d.rnd.IntN(3) == 0 {
				clear(b[from:to])
			}
			from = to
		}
		return b
	}
	return b
}

func (d *disk) syncDir() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.change(); err != nil {
		return err
	}
	d.syncEntries()
	return nil
}

func (d *disk) syncEntries() {
	clear(d.durable)
	maps.Copy(d.durable, d.files)
}

type diskLock struct{ d *disk }

func (l diskLock) Unlock() {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.d.locked = false
}

func (d *disk) Lock() (storage.Locker, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locked {
		return nil, storage.ErrLocked
	}
	d.locked = true
	return diskLock{d}, nil
}

func (d *disk) Log(string) {}

func (d *disk) SetMeta(fd storage.FileDesc) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.change(); err != nil {
		if d.mode != faultCut && d.rnd.IntN(2) == 0 {
			d.meta = fd // renamed, although the call returns an error
		}
		return err
	}
	d.meta = fd
	d.syncEntries()
	return nil
}

func (d *disk) GetMeta() (storage.FileDesc, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return storage.FileDesc{}, errPower
	}
	if _, ok := d.files[d.meta]; !ok {
		return storage.FileDesc{}, os.ErrNotExist
	}
	return d.meta, nil
}

func (d *disk) List(types storage.FileType) ([]storage.FileDesc, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return nil, errPower
	}
	var fds []storage.FileDesc
	for fd := range d.files {
		if fd.Type&types != 0 {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

type diskReader struct{ *bytes.Reader }

func (diskReader) Close() error { return nil }

func (d *disk) Open(fd storage.FileDesc) (storage.Reader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return nil, errPower
	}
	f, ok := d.files[fd]
	if !ok {
		return nil, os.ErrNotExist
	}
	return diskReader{bytes.NewReader(slices.Clip(f.data))}, nil
}

func (d *disk) Create(fd storage.FileDesc) (storage.Writer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.change(); err != nil {
		return nil, err
	}
	f := new(diskFile)
	d.files[fd] = f
	return &diskWriter{d, f, fd.Type == storage.TypeManifest}, nil
}

func (d *disk) Remove(fd storage.FileDesc) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.change(); err != nil && !errors.Is(err, errNoSpace) {
		return err
	}
	if _, ok := d.files[fd]; !ok {
		return os.ErrNotExist
	}
	delete(d.files, fd)
	return nil
}

func (d *disk) Rename(from, to storage.FileDesc) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.change(); err != nil {
		return err
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

func (d *disk) Close() error { return nil }

type diskWriter struct {
	d        *disk
	f        *diskFile
	manifest bool
}

func (w *diskWriter) Write(b []byte) (int, error) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	if err := w.d.change(); err != nil {
		n := 0
		if w.d.mode != faultCut {
			n = w.d.rnd.IntN(len(b) + 1)
		}
		w.f.data = append(w.f.data, b[:n]...)
		return n, err
	}
	w.f.data = append(w.f.data, b...)
	return len(b), nil
}

// failNextSync makes the next sync fail and lose its data.
func (d *disk) failNextSync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loseNext = true
}

// refuseNextSync makes the next sync fail. Its data remains readable.
func (d *disk) refuseNextSync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failNext = true
}

func (w *diskWriter) Sync() error {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	if w.d.failNext {
		w.d.failNext, w.f.forgotten = false, true
		return errFault
	}
	if w.d.loseNext {
		w.d.loseNext = false
		w.f.data = w.f.data[:w.f.synced:w.f.synced]
		return errFault
	}
	if err := w.d.change(); err != nil {
		w.f.forgotten = true
		return err
	}
	if !w.f.forgotten {
		w.f.synced = len(w.f.data)
	}
	if w.manifest {
		w.d.syncEntries()
	}
	return nil
}

func (w *diskWriter) Close() error { return nil }
