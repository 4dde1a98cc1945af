// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/refold-io/refold/snapshot"
)

func ExampleOpenFiles() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	store, err := snapshot.OpenFiles(filepath.Join(dir, "snapshots"), snapshot.FilesConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()

	ctx := context.Background()
	for _, seqNr := range []uint64{100, 200, 300} {
		err = store.Save(ctx, snapshot.Snapshot{
			Metadata: snapshot.Metadata{ID: "account|42", SequenceNr: seqNr, Time: time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)},
			Manifest: "account/v1",
			Payload:  fmt.Appendf(nil, "state at %d", seqNr),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}

	newest, err := store.Load(ctx, "account|42", snapshot.UpTo(250))
	fmt.Printf("%d: %s %v\n", newest.SequenceNr, newest.Payload, err)

	if err := store.Delete(ctx, "account|42", snapshot.UpTo(200)); err != nil {
		fmt.Println(err)
	}
	for m, err := range store.List(ctx, "account|42", snapshot.Latest()) {
		fmt.Println(m.SequenceNr, err)
	}
	// Output:
	// 200: state at 200 <nil>
	// 300 <nil>
}
