// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/refold-io/refold/snapshot"
)

func benchmarked(b *testing.B, size int) (*snapshot.Files, snapshot.Snapshot) {
	b.Helper()
	store, err := snapshot.OpenFiles(b.TempDir(), snapshot.FilesConfig{})
	if err != nil {
		b.Fatal(err)
	}
	s := snapshot.Snapshot{Metadata: at("account|42", 1), Manifest: "account/v1", Payload: bytes.Repeat([]byte("x"), size)}
	if err := store.Save(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	return store, s
}

// BenchmarkFiles compares the store with the system calls for the same bytes. A save needs two
// syncs and a rename. The store also deletes the previous snapshot.
func BenchmarkFiles(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("save/%d", size), func(b *testing.B) {
			store, s := benchmarked(b, size)
			for b.Loop() {
				s.SequenceNr++
				if err := store.Save(b.Context(), s); err != nil {
					b.Fatal(err)
				}
				if err := store.Delete(b.Context(), s.ID, snapshot.At(s.SequenceNr-1)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("save-raw/%d", size), func(b *testing.B) {
			_, s := benchmarked(b, size)
			dir := b.TempDir()
			for b.Loop() {
				if err := rawSave(dir, s.Payload); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("load/%d", size), func(b *testing.B) {
			store, s := benchmarked(b, size)
			for b.Loop() {
				if _, err := store.Load(b.Context(), s.ID, snapshot.Latest()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("load-raw/%d", size), func(b *testing.B) {
			store, s := benchmarked(b, size)
			for b.Loop() {
				if _, err := os.ReadFile(store.Path(s.Metadata)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func rawSave(dir string, data []byte) error {
	partial := filepath.Join(dir, "partial")
	f, err := os.Create(partial)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close(), os.Rename(partial, filepath.Join(dir, "file"))); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
