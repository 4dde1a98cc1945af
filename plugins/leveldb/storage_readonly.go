// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// readOnlyFiles presents several logs to the engine as one. In read-only mode the engine can read
// only one log.
type readOnlyFiles struct {
	storage.Storage
	logs []storage.FileDesc // the logs to read, at least two
}

func (f *readOnlyFiles) shown() storage.FileDesc { return f.logs[len(f.logs)-1] }

// List implements storage.Storage.
func (f *readOnlyFiles) List(types storage.FileType) ([]storage.FileDesc, error) {
	all, err := f.Storage.List(types)
	return slices.DeleteFunc(all, func(fd storage.FileDesc) bool {
		return fd.Type == storage.TypeJournal && fd != f.shown()
	}), err
}

// Open implements storage.Storage.
func (f *readOnlyFiles) Open(fd storage.FileDesc) (storage.Reader, error) {
	if fd != f.shown() {
		return f.Storage.Open(fd)
	}
	joined := new(joinedLogs)
	var parts []io.Reader
	for i, fd := range f.logs {
		r, err := f.Storage.Open(fd)
		if err != nil {
			return nil, errors.Join(err, joined.Close())
		}
		joined.logs, parts = append(joined.logs, r), append(parts, r)
		if i == len(f.logs)-1 {
			break
		}
		size, err := r.Seek(0, io.SeekEnd)
		if _, serr := r.Seek(0, io.SeekStart); err != nil || serr != nil {
			return nil, errors.Join(err, serr, joined.Close())
		}
		parts = append(parts, bytes.NewReader(make([]byte, (blockSize-size%blockSize)%blockSize)))
	}
	joined.Reader = io.MultiReader(parts...)
	return joined, nil
}

// joinedLogs reads logs one after the other. Each but the last is padded with zeros to a whole
// block, as the format permits.
type joinedLogs struct {
	io.Reader
	logs []storage.Reader
}

var errOnlyRead = errors.New("leveldb: joined logs can only be read sequentially")

// Seek implements io.Seeker. It always fails.
func (j *joinedLogs) Seek(int64, int) (int64, error) { return 0, errOnlyRead }

// ReadAt implements io.ReaderAt. It always fails.
func (j *joinedLogs) ReadAt([]byte, int64) (int, error) { return 0, errOnlyRead }

// Close implements io.Closer.
func (j *joinedLogs) Close() error {
	var err error
	for _, r := range j.logs {
		err = errors.Join(err, r.Close())
	}
	return err
}
