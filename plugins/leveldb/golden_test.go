// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
	plugin "github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// goldenEvents returns the events in testdata/*/records.golden. The files also contain
// goldenSnapshot and the deletion of the first event of "b".
func goldenEvents() []journal.Write {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	return []journal.Write{
		{ID: "account|42", Writer: "node-1", Events: []journal.Event{
			{SequenceNr: 1, Time: at, Writer: "node-1", Manifest: "opened", Payload: []byte{1, 2, 3}},
			{
				SequenceNr: 2, Time: at.Add(time.Second), Writer: "node-1", Manifest: "deposited", Payload: []byte("ten"),
				Tags: []string{"red", "blau"}, Metadata: []byte{0xff},
			},
			{SequenceNr: 3, Time: at.Add(time.Second), Writer: "node-1"}, // a fence
		}},
		{ID: "b", Writer: "", Events: []journal.Event{
			{SequenceNr: 1, Time: time.Time{}, Manifest: "x", Payload: []byte("gone")},
			{SequenceNr: 2, Time: time.Time{}, Manifest: "x", Payload: []byte("there")},
		}},
	}
}

func goldenSnapshot() snapshot.Snapshot {
	return snapshot.Snapshot{
		Metadata: snapshot.Metadata{ID: "account|42", SequenceNr: 2, Time: time.Date(2026, 1, 2, 3, 4, 6, 6000, time.UTC)},
		Manifest: "account", Payload: []byte("balance"),
	}
}

// The golden files have a line for each record: key and value in hexadecimal. They are never
// changed; a new version of the format adds new files.
const goldenV2 = "testdata/v2/records.golden"

func readGolden(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// putGolden writes the records of a golden file into a directory.
func putGolden(t *testing.T, dir, name string) {
	t.Helper()
	raw, err := leveldb.OpenFile(dir, plugin.Options())
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(strings.NewReader(readGolden(t, name)))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		k, kerr := hex.DecodeString(key)
		v, verr := hex.DecodeString(value)
		if err := errors.Join(kerr, verr, raw.Put(k, v, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
}

// wantGolden compares the records in a directory with those of a golden file.
func wantGolden(t *testing.T, dir, name string) {
	t.Helper()
	raw, err := leveldb.OpenFile(dir, plugin.Options())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	it := raw.NewIterator(&util.Range{}, nil)
	for it.Next() {
		got.WriteString(hex.EncodeToString(it.Key()) + " " + hex.EncodeToString(it.Value()) + "\n")
	}
	it.Release()
	if err := errors.Join(it.Error(), raw.Close()); err != nil {
		t.Fatal(err)
	}
	if want := readGolden(t, name); got.String() != want {
		to := filepath.Join(t.ArtifactDir(), filepath.Base(name))
		if err := os.WriteFile(to, []byte(got.String()), 0o600); err != nil {
			t.Error(err)
		}
		t.Errorf("the encoded records differ from %s:\n%s", name, got.String())
	}
}

func TestReadsGolden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	putGolden(t, dir, goldenV2)
	db := mustOpen(t, dir, plugin.Config{})
	wantOrder(t, db, "account|42 1", "account|42 2", "b 2")
	if got := found(t, db.TestJournal(), journal.Criteria{Tag: "blau"}); !slices.Equal(got, []string{"account|42 2"}) {
		t.Errorf("the tag finds %q, want account|42 2", got)
	}
	for _, w := range goldenEvents() {
		var got []journal.Event
		for e, err := range db.TestJournal().Replay(t.Context(), w.ID, 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		want := w.Events
		if w.ID == "b" {
			want = want[1:]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", w.ID, got, want)
		}
	}
	if got, err := db.TestSnapshots().Load(t.Context(), "account|42", snapshot.Latest()); err != nil || !reflect.DeepEqual(got, goldenSnapshot()) {
		t.Errorf("the snapshot is %+v, %v, want the golden snapshot", got, err)
	}
	mustAppend(t, db.TestJournal(), write("new", 0, 1), write("b", 2, 1)) // with an unused number
	if got := numbers(t, db.TestJournal(), "new", 0, 9); len(got) != 1 {
		t.Errorf("new has the events %v, want one", got)
	}
}

func TestWritesGolden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, plugin.Config{})
	mustAppend(t, db.TestJournal(), goldenEvents()...)
	if err := db.TestJournal().DeleteTo(t.Context(), "b", 1); err != nil {
		t.Fatal(err)
	}
	if err := db.TestSnapshots().Save(t.Context(), goldenSnapshot()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	wantGolden(t, dir, goldenV2)
}

// A payload in parts has its own golden file.
func TestGoldenParts(t *testing.T) {
	t.Parallel()
	const name = "testdata/v2/parts.golden"
	written, read := t.TempDir(), t.TempDir()
	db := mustOpen(t, written, plugin.Config{}.WithPart(3))
	if err := errors.Join(db.TestSnapshots().Save(t.Context(), goldenSnapshot()), db.Close()); err != nil {
		t.Fatal(err)
	}
	wantGolden(t, written, name)
	putGolden(t, read, name)
	if got, err := mustOpen(t, read, plugin.Config{}).TestSnapshots().Load(t.Context(), "account|42", snapshot.Latest()); err != nil || !reflect.DeepEqual(got, goldenSnapshot()) {
		t.Errorf("the snapshot is %+v, %v, want the golden snapshot", got, err)
	}
}
