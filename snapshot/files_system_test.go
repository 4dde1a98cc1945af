// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/refold-io/refold/snapshot"
)

var errPower = errors.New("no power")

// disk is a file system in memory that tracks durability: the synced contents of files, and the
// names in directories at their last sync.
type disk struct {
	mu    sync.Mutex
	root  *node
	steps []string // one entry per operation
	room  int      // bytes that may still be written, below 0 for no limit

	// fail is called before each operation, without the lock. If it returns an error, the operation
	// fails with it.
	fail func(step int, subject string) error
}

var _ snapshot.FileSystem = (*disk)(nil)

type node struct {
	names   map[string]*node // nil for a file
	durable map[string]*node
	data    []byte
	synced  []byte
}

func newDir() *node { return &node{names: map[string]*node{}, durable: map[string]*node{}} }

func newDisk() *disk { return &disk{root: newDir(), room: -1} }

// begin counts an operation and takes the lock unless the operation fails.
func (d *disk) begin(op string, names ...string) error {
	d.mu.Lock()
	step, subject := len(d.steps), op
	for _, name := range names {
		subject += " " + name
	}
	d.steps = append(d.steps, subject)
	fail := d.fail
	d.mu.Unlock()
	if fail != nil {
		if err := fail(step, subject); err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
	}
	d.mu.Lock()
	return nil
}

func (d *disk) find(name string) (*node, error) {
	at := d.root
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if part == "" {
			continue
		}
		if at.names == nil {
			return nil, &fs.PathError{Op: "find", Path: name, Err: syscall.ENOTDIR}
		}
		next := at.names[part]
		if next == nil {
			return nil, &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
		}
		at = next
	}
	return at, nil
}

func (d *disk) findDir(name string) (*node, error) {
	n, err := d.find(name)
	if err == nil && n.names == nil {
		err = &fs.PathError{Op: "find", Path: name, Err: syscall.ENOTDIR}
	}
	return n, err
}

// add adds a node. The name must not exist.
func (d *disk) add(name string, n *node) error {
	dir, err := d.findDir(filepath.Dir(name))
	if err != nil {
		return err
	}
	if dir.names[filepath.Base(name)] != nil {
		return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	dir.names[filepath.Base(name)] = n
	return nil
}

func (d *disk) Mkdir(dir string) error {
	if err := d.begin("mkdir", dir); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.add(dir, newDir())
}

func (d *disk) ReadDir(dir string) ([]string, error) {
	if err := d.begin("readdir", dir); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	n, err := d.findDir(dir)
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(n.names)), nil
}

func (d *disk) Open(name string) (snapshot.InFile, error) {
	if err := d.begin("open", name); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	n, err := d.find(name)
	if err != nil {
		return nil, err
	}
	return &reading{Reader: bytes.NewReader(n.data), disk: d}, nil
}

func (d *disk) Create(name string) (snapshot.OutFile, error) {
	if err := d.begin("create", name); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	n := &node{}
	return &writing{disk: d, node: n}, d.add(name, n)
}

func (d *disk) Rename(from, to string) error {
	if err := d.begin("rename", from, to); err != nil {
		return err
	}
	defer d.mu.Unlock()
	n, err := d.find(from)
	if err != nil {
		return err
	}
	dir, err := d.findDir(filepath.Dir(to))
	if err != nil {
		return err
	}
	dir.names[filepath.Base(to)] = n
	return d.drop(from)
}

func (d *disk) Remove(name string) error {
	if err := d.begin("remove", name); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.drop(name)
}

func (d *disk) drop(name string) error {
	dir, err := d.findDir(filepath.Dir(name))
	if err == nil && dir.names[filepath.Base(name)] == nil {
		err = &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if err == nil {
		delete(dir.names, filepath.Base(name))
	}
	return err
}

func (d *disk) SyncDir(dir string) error {
	if err := d.begin("syncdir", dir); err != nil {
		return err
	}
	defer d.mu.Unlock()
	n, err := d.findDir(dir)
	if err != nil {
		return err
	}
	n.durable = maps.Clone(n.names)
	return nil
}

// afterPowerCut returns the disk after a power failure: all durable data and a random part of the
// rest.
func (d *disk) afterPowerCut(chance *rand.Rand) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &disk{root: d.root.survivor(chance), room: -1}
}

func (n *node) survivor(chance *rand.Rand) *node {
	if n.names == nil {
		data := n.synced
		if len(n.data) > len(n.synced) && chance.IntN(2) == 0 {
			data = bytes.Clone(n.data[:len(n.synced)+chance.IntN(len(n.data)-len(n.synced)+1)])
			if chance.IntN(2) == 0 {
				clear(data[len(n.synced):])
			}
		}
		return &node{data: data, synced: data}
	}
	survivors := newDir()
	all := maps.Clone(n.durable)
	maps.Copy(all, n.names)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		kept := n.durable[name]
		if kept != n.names[name] && chance.IntN(2) == 0 {
			kept = n.names[name]
		}
		if kept != nil {
			survivors.names[name] = kept.survivor(chance)
		}
	}
	survivors.durable = maps.Clone(survivors.names)
	return survivors
}

// files returns the paths of all files, in order.
func (d *disk) files() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []string
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		if n.names == nil {
			found = append(found, path)
		}
		for _, name := range slices.Sorted(maps.Keys(n.names)) {
			walk(path+"/"+name, n.names[name])
		}
	}
	walk("", d.root)
	return found
}

type reading struct {
	*bytes.Reader

	disk *disk
}

func (r *reading) Read(b []byte) (int, error) {
	if err := r.disk.begin("read"); err != nil {
		return 0, err
	}
	r.disk.mu.Unlock()
	return r.Reader.Read(b)
}

func (r *reading) Size() (int64, error) { return r.Reader.Size(), nil }

func (r *reading) Close() error { return nil }

type writing struct {
	disk *disk
	node *node
}

// Write writes half of b if a failure is due, and otherwise as much as the disk has room for.
func (w *writing) Write(b []byte) (int, error) {
	err := w.disk.begin("write")
	n := len(b)
	if err != nil {
		n = len(b) / 2
		w.disk.mu.Lock()
	}
	defer w.disk.mu.Unlock()
	if w.disk.room >= 0 && n > w.disk.room {
		n, err = w.disk.room, syscall.ENOSPC
	}
	if w.disk.room >= 0 {
		w.disk.room -= n
	}
	w.node.data = append(w.node.data, b[:n]...)
	return n, err
}

func (w *writing) Sync() error {
	if err := w.disk.begin("sync"); err != nil {
		return err
	}
	defer w.disk.mu.Unlock()
	w.node.synced = bytes.Clone(w.node.data)
	return nil
}

func (w *writing) Close() error { return nil }
