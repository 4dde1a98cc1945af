// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"os"
	"testing"

	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

func TestFilesConformance(t *testing.T) {
	t.Parallel()
	open := func(t snapshottest.T, dir string) snapshot.Store {
		t.Helper()
		store, err := snapshot.OpenFiles(dir, snapshot.FilesConfig{})
		if err != nil {
			t.Fatalf("OpenFiles: %v", err)
		}
		return store
	}
	snapshottest.Run(t, snapshottest.Config{
		Open: func(t snapshottest.T) snapshot.Store { return open(t, t.TempDir()) },
		Reopen: func(t snapshottest.T, store snapshot.Store) snapshot.Store {
			return open(t, store.(*snapshot.Files).Dir()) //nolint:errcheck // it is one
		},
		Damage: func(t snapshottest.T, store snapshot.Store, m snapshot.Metadata) {
			flipBit(t, store.(*snapshot.Files).Path(m), -1) //nolint:errcheck // it is one
		},
		MaxPayload: 8 << 20,
	})
}

// flipBit damages a file at an offset, counted from the end if it is negative.
func flipBit(t snapshottest.T, name string, offset int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("damage: %v", err)
	}
	data[(offset+len(data))%len(data)] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatalf("damage: %v", err)
	}
}
