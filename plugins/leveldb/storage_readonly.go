// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
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
	for _, fd := range f.logs {
		r, err := f.Storage.Open(fd)
		if err != nil {
			return nil, errors.Join(err, joined.Close())
		}
		joined.logs = append(joined.logs, r)
	}
	return joined, nil
}

// joinedLogs reads logs one after the other. It pads each but the last with zeros to a whole block,
// as the format permits.
type joinedLogs struct {
	logs []storage.Reader
	at   int   // index of the current log
	pad  int   // zeros left to return after it
	read int64 // bytes read of the current log
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
