// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"errors"
	"io"
	"slices"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// readOnlyFiles shows the engine one log instead of several: it can't read more
// than one when it may not write.
type readOnlyFiles struct {
	storage.Storage
	logs []storage.FileDesc // those that count, at least two
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
	for _, fd := range f.logs {
		r, err := f.Storage.Open(fd)
		if err != nil {
			return nil, errors.Join(err, joined.Close())
		}
		joined.logs = append(joined.logs, r)
	}
	return joined, nil
}

// joinedLogs reads one log after the other. Each but the last is filled up with
// zeros to a whole block, as the format allows.
type joinedLogs struct {
	logs []storage.Reader
	at   int   // the log that is being read
	pad  int   // zeros that are missing behind it
	read int64 // bytes read of it
}

// Read implements io.Reader.
func (j *joinedLogs) Read(b []byte) (int, error) {
	for {
		if j.pad > 0 {
			n := min(j.pad, len(b))
			clear(b[:n])
			j.pad -= n
			return n, nil
		}
		if j.at == len(j.logs) {
			return 0, io.EOF
		}
		n, err := j.logs[j.at].Read(b)
		j.read += int64(n)
		if errors.Is(err, io.EOF) {
			j.at++
			if j.at < len(j.logs) {
				j.pad = int((blockSize - j.read%blockSize) % blockSize)
			}
			j.read, err = 0, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

var errOnlyRead = errors.New("leveldb: the joined logs can only be read in order")

// Seek implements io.Seeker. It fails.
func (j *joinedLogs) Seek(int64, int) (int64, error) { return 0, errOnlyRead }

// ReadAt implements io.ReaderAt. It fails.
func (j *joinedLogs) ReadAt([]byte, int64) (int, error) { return 0, errOnlyRead }

// Close implements io.Closer.
func (j *joinedLogs) Close() error {
	var err error
	for _, r := range j.logs {
		err = errors.Join(err, r.Close())
	}
	return err
}
