// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"errors"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// TestDamagedIndex changes records of the index. VerifyOrder detects each change. A query that
// reads a changed record fails and does not skip events.
func TestDamagedIndex(t *testing.T) {
	t.Parallel()
	const unseen = "not detected by queries"
	runs := func(tag bool, runs ...leveldb.Run) []byte { return leveldb.EncodeRuns(runs, tag) }
	newer := []byte{2, 1, 1, 1}
	for subject, c := range map[string]struct {
		key, value []byte // nil deletes
		all, red   string // the expected results of the queries
	}{
		"no group":            {leveldb.GroupKey(1), nil, unseen, ""},
		"no last group":       {leveldb.GroupKey(2), nil, unseen, ""},
		"no name":             {leveldb.NameKey(1), nil, "corrupt", "corrupt"},
		"another name":        {leveldb.NameKey(1), []byte("\x01b"), unseen, unseen},
		"a damaged name":      {leveldb.NameKey(1), []byte{1, 0}, "corrupt", "corrupt"},
		"a newer name":        {leveldb.NameKey(1), []byte{2, 'a'}, "newer", "newer"},
		"no event":            {leveldb.EventKey(1, 2), nil, "corrupt", ""},
		"a damaged event":     {leveldb.EventKey(1, 2), []byte{1}, "corrupt", ""},
		"an extra event":      {leveldb.EventKey(2, 9), leveldb.EncodeEvent(&journal.Event{Manifest: "m"}), unseen, unseen},
		"another event":       {leveldb.EventKey(1, 1), leveldb.EncodeEvent(&journal.Event{Manifest: "m"}), unseen, "corrupt"},
		"a fence":             {leveldb.EventKey(1, 1), leveldb.EncodeEvent(&journal.Event{Tags: []string{"red"}}), "corrupt", "corrupt"},
		"an empty group":      {leveldb.GroupKey(1), []byte{1}, "corrupt", ""},
		"an empty value":      {leveldb.GroupKey(1), nil, unseen, ""},
		"a truncated group":   {leveldb.GroupKey(1), []byte{1, 1, 1}, "corrupt", ""},
		"a newer group":       {leveldb.GroupKey(1), newer, "newer", ""},
		"an event twice":      {leveldb.GroupKey(1), runs(false, leveldb.Run{0, 1, 1, 3}, leveldb.Run{3, 1, 3, 1}, leveldb.Run{4, 2, 1, 1}), unseen, ""},
		"a missing event":     {leveldb.GroupKey(1), runs(false, leveldb.Run{0, 1, 1, 5}, leveldb.Run{5, 2, 1, 1}), "corrupt", ""},
		"a missing ID":        {leveldb.GroupKey(1), runs(false, leveldb.Run{0, 7, 1, 1}), "corrupt", ""},
		"another order":       {leveldb.GroupKey(1), runs(false, leveldb.Run{0, 1, 2, 2}, leveldb.Run{2, 1, 1, 1}, leveldb.Run{3, 2, 1, 1}), unseen, ""},
		"no tag":              {leveldb.TagKey("red", 1), nil, "", unseen},
		"another place":       {leveldb.TagKey("red", 1), runs(true, leveldb.Run{0, 1, 1, 1}, leveldb.Run{3, 1, 3, 1}), "", unseen},
		"a tag of no event":   {leveldb.TagKey("red", 1), runs(true, leveldb.Run{0, 1, 1, 3}), "", "corrupt"},
		"another tag":         {leveldb.TagKey("blue", 1), runs(true, leveldb.Run{0, 1, 1, 1}), "", ""},
		"a newer tag":         {leveldb.TagKey("red", 1), newer, "", "newer"},
		"a damaged tag":       {leveldb.TagKey("red", 1), []byte{1, 0xff}, "", "corrupt"},
		"a malformed key":     {[]byte{'o', 1}, []byte{1, 1, 1, 1}, "corrupt", "corrupt"},
		"a malformed tag key": {append(leveldb.TagKey("red", 1), 1), []byte{1, 0, 1, 1, 1}, "", "corrupt"},
	} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			db := mustOpen(t, t.TempDir(), leveldb.Config{NoSync: true})
			j := db.TestJournal()
			red := []string{"red"}
			mustAppend(t, j, tagged("a", 0, red, nil, red), write("b", 0, 1))
			mustAppend(t, j, tagged("b", 1, red))
			if err := db.VerifyOrder(t.Context()); err != nil {
				t.Fatal(err)
			}
			var err error
			if c.value == nil {
				err = db.Raw().Delete(c.key, nil)
			} else {
				err = db.Raw().Put(c.key, c.value, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := db.VerifyOrder(t.Context()); !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrNewerVersion) {
				t.Errorf("VerifyOrder: %v, want ErrCorrupt or ErrNewerVersion", err)
			}
			for _, q := range []struct {
				query journal.Criteria
				want  string
			}{{journal.Criteria{}, c.all}, {journal.Criteria{Tag: "red"}, c.red}} {
				want := map[string]error{"corrupt": journal.ErrCorrupt, "newer": journal.ErrNewerVersion}[q.want]
				if _, err := j.Query(t.Context(), q.query, ""); !errors.Is(err, want) {
					t.Errorf("%+v: %v, want %v", q.query, err, want)
				}
			}
		})
	}
}
