// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/snapshot"
)

// TestSimilarIDs checks that IDs with the same readable part have different directories. The test
// has more IDs than groups, so some IDs share a group.
func TestSimilarIDs(t *testing.T) {
	t.Parallel()
	files, err := snapshot.OpenFiles(t.TempDir(), snapshot.FilesConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	}()
	const odd = "!#$%&()*+,-.:;<=>?@[]^{}~"
	var ids []string
	for _, a := range odd {
		for _, b := range odd[:12] {
			ids = append(ids, string([]rune{a, b}))
		}
	}
	for _, id := range ids {
		s := snapshot.Snapshot{Manifest: "state", Payload: []byte(id)}
		s.Metadata = snapshot.Metadata{ID: id, SequenceNr: 1, Time: time.Unix(0, 0).UTC()}
		if err := files.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		s, err := files.Load(t.Context(), id, snapshot.Latest())
		if err != nil || string(s.Payload) != id {
			t.Errorf("load %q: %q, %v, want the ID as payload", id, s.Payload, err)
		}
	}
}
