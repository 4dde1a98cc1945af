// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	engine "github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// oldDisk returns a disk that the version without an order would have written,
// with those writes.
func oldDisk(t *testing.T, writes ...journal.Write) *disk {
	t.Helper()
	d := newDisk(faultNone, 0, 1)
	db, err := leveldb.OpenStorage(d, d.syncDir, damageConfig())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, db.TestJournal(), writes...)
	return oldCopy(t, db)
}

// oldCopy closes a database and returns a copy in the old format.
func oldCopy(t *testing.T, db *leveldb.DB) *disk {
	t.Helper()
	old := newDisk(faultNone, 0, 1)
	if err := errors.Join(db.CopyOld(old), db.Close()); err != nil {
		t.Fatal(err)
	}
	return old.clone()
}

// timed returns a write whose events have these times, in microseconds; 0 stands
// for a fence.
func timed(id string, times ...int64) journal.Write {
	w := write(id, 0, len(times))
	for i, micros := range times {
		w.Events[i].Time = time.UnixMicro(micros).UTC()
		if micros == 0 {
			w.Events[i].Manifest = ""
		}
		w.Events[i].Tags = []string{"of " + id, "all"}
	}
	return w
}

func TestUpgradeOrder(t *testing.T) {
	t.Parallel()
	d := oldDisk(t, timed("b", 5, 3, 0, 9), timed("a", 1, 5, 6), timed("c", -7, 5))
	want := []string{"c 1", "a 1", "b 1", "b 2", "a 2", "c 2", "a 3", "b 4"}
	for range 2 {
		db, err := leveldb.OpenStorage(d, d.syncDir, damageConfig())
		if err != nil {
			t.Fatal(err)
		}
		wantOrder(t, db, want...)
		if got := found(t, db.TestJournal(), journal.Criteria{Tag: "all"}); !slices.Equal(got, want[:8]) {
			t.Errorf("tagged: %q", got)
		}
		if got := found(t, db.TestJournal(), journal.Criteria{Tag: "of b"}); !slices.Equal(got, []string{"b 1", "b 2", "b 4"}) {
			t.Errorf("tagged: %q", got)
		}
		id := fmt.Sprintf("new%d", len(want))
		mustAppend(t, db.TestJournal(), write(id, 0, 1))
		want = append(want, id+" 1")
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// Who knows only the old format does not write to it any more.
	if db, err := engine.Open(d, leveldb.OptionsOf(1)); err == nil {
		t.Errorf("opened as %v in the old format", db.Close())
	}
}

func TestUpgradeEmpty(t *testing.T) {
	t.Parallel()
	d := oldDisk(t)
	db, err := leveldb.OpenStorage(d, d.syncDir, damageConfig())
	if err != nil {
		t.Fatal(err)
	}
	wantOrder(t, db)
	mustAppend(t, db.TestJournal(), write("a", 0, 1))
	wantOrder(t, db, "a 1")
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestUpgradeDamaged can't read an event. The upgrade goes on, and who comes upon
// it is told, as by a replay.
func TestUpgradeDamaged(t *testing.T) {
	t.Parallel()
	d := oldDisk(t, timed("a", 1, 3, 4), timed("b", 2, 5))
	raw, err := engine.Open(d, leveldb.OptionsOf(1))
	if err != nil {
		t.Fatal(err)
	}
	key, _ := hex.DecodeString("65000000000000010000000000000002")
	if err = errors.Join(raw.Put(key, []byte{1, 2}, nil), raw.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := leveldb.OpenStorage(d, d.syncDir, damageConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.TestJournal().Query(t.Context(), journal.Criteria{}, ""); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("query: %v", err)
	}
	if err := db.VerifyOrder(t.Context()); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("check: %v", err)
	}
	if got := found(t, db.TestJournal(), journal.Criteria{Tag: "of b"}); !slices.Equal(got, []string{"b 1", "b 2"}) {
		t.Errorf("%q", got)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// oldWorkload returns a disk in the old format after a workload, and what is in
// it.
func oldWorkload(t *testing.T) (*disk, *model) {
	t.Helper()
	d, m := newDisk(faultNone, 0, 1), newModel()
	run(t, d, m, 3)
	db, err := leveldb.OpenStorage(d, d.syncDir, small())
	if err != nil {
		t.Fatal(err)
	}
	return oldCopy(t, db), m
}

// records returns all records of a database, and its order.
func records(t *testing.T, db *leveldb.DB) []string {
	t.Helper()
	var all []string
	it := db.Raw().NewIterator(nil, nil)
	defer it.Release()
	for it.Next() {
		all = append(all, hex.EncodeToString(it.Key())+" "+hex.EncodeToString(it.Value()))
	}
	return all
}

// TestUpgradeCutShort cuts the power at each change of an upgrade, and once more
// while it goes on, and lets each change fail. In the end all is the same as if nothing had happened.
func TestUpgradeCutShort(t *testing.T) {
	t.Parallel()
	for seed, mode := range []faultMode{faultCut, faultTear, faultTear, faultError} {
		t.Run(fmt.Sprintf("mode %d seed %d", mode, seed), func(t *testing.T) {
			t.Parallel()
			cfg := small().WithPortion(5)
			old, m := oldWorkload(t)
			d := old.clone()
			db, err := leveldb.OpenStorage(d, d.syncDir, cfg)
			if err != nil {
				t.Fatal(err)
			}
			want := records(t, db)
			m.order = nil
			m.check(t, db)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			for at, total := 1, d.ops; at <= total; at += stride {
				d := old.clone()
				for _, again := range []int{at, at/2 + 1} {
					d.at, d.mode = again, mode
					if db, err := leveldb.OpenStorage(d, d.syncDir, cfg); err == nil {
						_ = db.Close()
					} else if !errors.Is(err, errPower) && !errors.Is(err, errFault) {
						t.Fatalf("change %d: %v", again, err)
					}
					d = d.afterCut()
					noOrderInOldFormat(t, d)
				}
				db, err := leveldb.OpenStorage(d, d.syncDir, cfg)
				if err != nil {
					t.Fatalf("change %d: %v", at, err)
				}
				if got := records(t, db); !slices.Equal(got, want) {
					t.Fatalf("change %d: %d records, want %d", at, len(got), len(want))
				}
				m.check(t, db)
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// noOrderInOldFormat makes sure that nothing is in order as long as an older
// version could append something that is not.
func noOrderInOldFormat(t *testing.T, d *disk) {
	t.Helper()
	o := leveldb.OptionsOf(1)
	o.ReadOnly = true
	db, err := engine.Open(d.clone(), o)
	if err != nil {
		return
	}
	defer db.Close() //nolint:errcheck // only read
	it := db.NewIterator(nil, nil)
	defer it.Release()
	for it.Next() {
		if kind := it.Key()[0]; kind == 'o' || kind == 't' || kind == 'w' || kind == 'n' {
			t.Errorf("there is a record %x in the old format", it.Key())
		}
	}
}
