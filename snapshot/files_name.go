// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	partialDir    = "partial"  // files being written
	partialSuffix = ".partial" // nothing else in there is ours to remove
	fileSuffix    = ".snapshot"
	numberWidth   = 19 // digits of the largest int64
	readableWidth = 40
)

// groupDir returns the directory that holds the directories of the IDs whose
// hash begins alike: a directory with a million entries is slow to list.
func (f *Files) groupDir(id string) string {
	return filepath.Join(f.dir, idHash(id)[:2])
}

// idDir returns the directory of an ID. The hash makes its name unique on any
// file system, whether it tells upper case from lower or one form of Unicode
// from another; the text before it is for people.
func (f *Files) idDir(id string) string {
	return filepath.Join(f.groupDir(id), readable(id)+"-"+idHash(id))
}

func (f *Files) partialPath() string {
	return filepath.Join(f.dir, partialDir, rand.Text()+partialSuffix)
}

func idHash(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:20])
}

func readable(id string) string {
	b := []byte(id[:min(len(id), readableWidth)])
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			b[i] = '_'
		}
	}
	return string(b)
}

func fileName(seqNr uint64) string {
	return fmt.Sprintf("%0*d%s", numberWidth, seqNr, fileSuffix)
}

// parseName returns the number in the name of a snapshot file, and false for a
// file of any other name.
func parseName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, fileSuffix)
	if !ok || len(digits) != numberWidth {
		return 0, false
	}
	seqNr, err := strconv.ParseUint(digits, 10, 63)
	return seqNr, err == nil && seqNr > 0
}

// numbers returns the sequence numbers of the snapshots of an ID, the highest first.
func (f *Files) numbers(id string) ([]uint64, error) {
	names, err := f.fs.ReadDir(f.idDir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]uint64, 0, len(names))
	for _, name := range names {
		if seqNr, ok := parseName(name); ok {
			found = append(found, seqNr)
		}
	}
	slices.SortFunc(found, func(a, b uint64) int { return cmp.Compare(b, a) })
	return found, nil
}

// candidates returns the numbers that are within the bounds; whether the times
// are too is in the files.
func (f *Files) candidates(id string, c Criteria) ([]uint64, error) {
	found, err := f.numbers(id)
	return slices.DeleteFunc(found, func(n uint64) bool {
		return n < c.MinSequenceNr || n > c.MaxSequenceNr
	}), err
}
