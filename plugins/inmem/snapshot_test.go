// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

func TestSnapshotStoreConformance(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, snapshottest.Config{
		Open: func(testing.TB) snapshot.Store { return new(inmem.SnapshotStore) },
	})
}

func ExampleSnapshotStore() {
	var store inmem.SnapshotStore
	ctx := context.Background()
	err := store.Save(ctx, snapshot.Snapshot{
		Metadata: snapshot.Metadata{ID: "account|42", SequenceNr: 100, Time: time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)},
		Payload:  []byte("the state"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := store.Load(ctx, "account|42", snapshot.Latest())
	fmt.Printf("%d: %s %v\n", s.SequenceNr, s.Payload, err)
	// Output: 100: the state <nil>
}
