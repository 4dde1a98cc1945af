// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"io"
)

// The file system interface of the file store, for tests with a faulty disk.
type (
	FileSystem = fileSystem
	InFile     = inFile
	OutFile    = outFile
)

// OpenFilesOn opens a file store on another disk.
func OpenFilesOn(fsys FileSystem, dir string, c FilesConfig) (*Files, error) {
	return openFiles(fsys, dir, c)
}

// Path returns the path of the file of a snapshot.
func (f *Files) Path(m Metadata) string { return f.path(m.ID, m.SequenceNr) }

// Dir returns the directory of the store.
func (f *Files) Dir() string { return f.dir }

// Encode writes the format of a snapshot file.
func Encode(w io.Writer, s Snapshot) error { return encode(w, s) }

// Decode reads a snapshot file from its bytes.
func Decode(data []byte) (Snapshot, error) {
	r, size := bytes.NewReader(data), int64(len(data))
	h, err := decodeHeader(r, size)
	if err != nil {
		return Snapshot{}, err
	}
	return decodePayload(r, h)
}
