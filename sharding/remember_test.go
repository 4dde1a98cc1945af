// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/snapshot"
)

var update = flag.Bool("update", false, "write golden files that are missing")

func openEntities(tb testing.TB, stores sharding.RememberStores) sharding.RememberStore {
	tb.Helper()
	s, err := stores.OpenEntities(sharding.Scope{Type: "account"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// A shard whose update has an unknown outcome is loaded again. A write that is not stored before
// the load is never stored.
func TestLoadSettlesUpdate(t *testing.T) {
	t.Parallel()
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	s := openEntities(t, sharding.JournalStores{Journal: faulty})
	load := func(want ...string) {
		t.Helper()
		got, err := s.Load(t.Context(), 1)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Load = %q, %v, want %q", got, err, want)
		}
	}
	load()
	late := faulty.Inject(journaltest.Fault{Do: journaltest.Late})
	if err := s.Update(t.Context(), 1, []string{"x"}, nil); err == nil {
		t.Fatal("Update succeeded although its write was delayed")
	}
	load()
	if late.Release(); late.Landed() != 0 {
		t.Errorf("the update was stored after the load")
	}
	load()
	faulty.Inject(journaltest.Fault{Do: journaltest.Store})
	if err := s.Update(t.Context(), 1, []string{"x", "y"}, nil); err == nil {
		t.Fatal("Update succeeded although its acknowledgement was lost")
	}
	load("x", "y")
}

// TestEntitySnapshots checks that snapshots limit the events that a load replays, and that no
// entity is lost.
func TestEntitySnapshots(t *testing.T) {
	t.Parallel()
	j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
	cfg := sharding.JournalStores{Journal: j, Snapshots: s, SnapshotEvery: 4, KeepSnapshots: 1}
	var want []string
	for i := range 30 {
		store := openEntities(t, cfg) // after the end of background work
		got, err := store.Load(t.Context(), 1)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("after %d updates: %q, %v, want %q", i, got, err, want)
		}
		id := fmt.Sprintf("e%02d", i)
		want = append(want, id)
		var stopped []string
		if i%3 == 2 {
			stopped, want = want[:1], want[1:]
		}
		if err = store.Update(t.Context(), 1, []string{id}, stopped); err == nil {
			err = store.AddShards(t.Context(), []shard{shard(i)})
		}
		if err == nil {
			err = store.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"entities|account|1", "shards|account"} {
		snapshots, events := numbers(t, j, s, sharding.JournalPrefix+id)
		if len(snapshots) != 2 || len(events) > 12 || len(events) == 0 || events[0] != snapshots[1]+1 {
			t.Errorf("%s: snapshots %v and events %v, want two snapshots and the events after the older one", id, snapshots, events)
		}
	}
	if got, err := openEntities(t, cfg).Shards(t.Context()); err != nil || len(got) != 30 {
		t.Errorf("Shards returns %d shards, want 30: %v", len(got), err)
	}
}

// golden has the stored records of each release, by persistence ID.
func golden(t *testing.T) (*inmem.Journal, *inmem.SnapshotStore) {
	t.Helper()
	j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
	b, err := os.ReadFile(filepath.Join("testdata", "entities.v1.golden"))
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		payload, err := hex.DecodeString(f[3])
		if err != nil {
			t.Fatal(err)
		}
		if f[0] == "snapshot" {
			m := snapshot.Metadata{ID: f[1], SequenceNr: next[f[1]], Time: time.Unix(0, 0).UTC()}
			if err = s.Save(t.Context(), snapshot.Snapshot{Metadata: m, Manifest: f[2], Payload: payload}); err != nil {
				t.Fatal(err)
			}
			if err = j.DeleteTo(t.Context(), f[1], next[f[1]]); err != nil {
				t.Fatal(err)
			}
			continue
		}
		e := journal.Event{SequenceNr: next[f[1]] + 1, Time: time.Unix(0, 0).UTC(), Manifest: f[2], Payload: payload}
		if errs := j.Append(t.Context(), []journal.Write{{ID: f[1], Writer: "w", Expect: next[f[1]], Events: []journal.Event{e}}}); errs != nil {
			t.Fatal(errs)
		}
		next[f[1]]++
	}
	return j, s
}

// script creates the content of the golden file.
func script(t *testing.T, s sharding.RememberStore) {
	t.Helper()
	if _, err := s.Load(t.Context(), 300); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		s.Update(t.Context(), 300, []string{"x", "ä|\x00", strings.Repeat("y", 200)}, nil),
		s.Update(t.Context(), 300, []string{"z"}, []string{"x"}),
		s.AddShards(t.Context(), []shard{7, 300}),
		s.AddShards(t.Context(), []shard{99_999}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Records of an earlier release are decoded, and new ones have the same encoding.
func TestStoredEntities(t *testing.T) {
	t.Parallel()
	j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
	cfg := sharding.JournalStores{Journal: j, Snapshots: s, SnapshotEvery: 100}
	store := openEntities(t, cfg)
	script(t, store)
	var out bytes.Buffer
	ids := []string{"entities|account|300", "shards|account"}
	for _, id := range ids {
		for e, err := range j.Replay(t.Context(), sharding.JournalPrefix+id, 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			if !e.IsFence() {
				fmt.Fprintf(&out, "event %s %s %x\n", sharding.JournalPrefix+id, e.Manifest, e.Payload)
			}
		}
	}
	// The same as snapshots.
	cfg.SnapshotEvery = 1
	store = openEntities(t, cfg)
	if _, err := store.Load(t.Context(), 300); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(t.Context(), 300, []string{"w"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = openEntities(t, cfg)
	if err := store.AddShards(t.Context(), []shard{8}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		snap, err := s.Load(t.Context(), sharding.JournalPrefix+id, snapshot.Latest())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "snapshot %s %s %x\n", sharding.JournalPrefix+id, snap.Manifest, snap.Payload)
	}
	name := filepath.Join("testdata", "entities.v1.golden")
	if _, err := os.Stat(name); *update && os.IsNotExist(err) {
		if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(want, out.Bytes()) {
		t.Errorf("%v: the records are\n%s\nwant\n%s", err, out.Bytes(), want)
	}
	old := openEntities(t, func() sharding.JournalStores {
		j, s := golden(t)
		return sharding.JournalStores{Journal: j, Snapshots: s}
	}())
	got, err := old.Load(t.Context(), 300)
	if err != nil || !slices.Equal(got, []string{"w", strings.Repeat("y", 200), "z", "ä|\x00"}) {
		t.Errorf("Load of the golden records = %q, %v, want the stored entities", got, err)
	}
	if all, err := old.Shards(t.Context()); err != nil || !slices.Equal(all, []shard{7, 8, 300, 99_999}) {
		t.Errorf("Shards of the golden records = %v, %v, want [7 8 300 99999]", all, err)
	}
}

// FuzzEntities reads any record as an event and as a snapshot of entities and of shards: it must
// not panic, and the decoded data must be in proportion to the input.
func FuzzEntities(f *testing.F) {
	f.Add([]byte{1, 1, 1, 1, 'x'})
	f.Add([]byte{1, 2, 2, 1, 'x', 1, 'y'})
	f.Add([]byte{1, 2, 1, 'x', 1, 'y'})
	f.Add([]byte{1, 3, 1, 2, 200, 1})
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kind := range []string{"entities|account|1", "shards|account"} {
			name, _, _ := strings.Cut(kind, "|")
			j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
			store := openEntities(t, sharding.JournalStores{Journal: j, Snapshots: s})
			read := func() int {
				got, err := store.Load(t.Context(), 1)
				if err != nil {
					got = nil
				}
				all, err := store.Shards(t.Context())
				if err != nil {
					all = nil
				}
				return len(got) + len(all)
			}
			id := sharding.JournalPrefix + kind
			e := journal.Event{SequenceNr: 1, Time: time.Unix(0, 0).UTC(), Manifest: "refold." + name + ".event", Payload: b}
			if errs := j.Append(t.Context(), []journal.Write{{ID: id, Writer: "w", Events: []journal.Event{e}}}); errs != nil {
				return
			}
			if n := read(); n > len(b) {
				t.Errorf("%d bytes were decoded to %d entities, want at most one for each byte", len(b), n)
			}
			m := snapshot.Metadata{ID: id, SequenceNr: 1, Time: time.Unix(0, 0).UTC()}
			if err := s.Save(t.Context(), snapshot.Snapshot{Metadata: m, Manifest: "refold." + name + ".state", Payload: b}); err != nil {
				t.Fatal(err)
			}
			if n := read(); n > len(b) {
				t.Errorf("%d bytes were decoded to %d entities, want at most one for each byte", len(b), n)
			}
		}
	})
}
