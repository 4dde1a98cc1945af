// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb/opt"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// small returns a Config with which a few calls cause flushes and compactions.
//
// The engine delivers the error of a compaction to the writer that waits for it. Later the engine
// acknowledges the compaction to the same writer, on a channel that is already closed, and recovers
// from the panic of the send. The race detector reports this as a race. With the race detector
// there are therefore flushes but no compactions, and failed flushes are not repeated immediately.
func small() leveldb.Config {
	return leveldb.Config{}.WithReopenPause(time.Nanosecond).WithPart(8 << 10).WithTuning(func(o *opt.Options) {
		o.WriteBuffer, o.CompactionTableSize = 8<<10, 8<<10
		o.DisableCompactionBackoff = !effort.Race()
		if effort.Race() {
			o.CompactionL0Trigger, o.WriteL0SlowdownTrigger, o.WriteL0PauseTrigger = 1000, 1000, 1000
			o.DisableSeeksCompaction = true
		}
	})
}

const workloadSteps = 40

// stride returns the distance between the changes of the files that fail. REFOLD_SOAK selects every
// change. With the race detector, fewer changes fail: more changes reveal no further races, and the
// run without the race detector, in which the engine compacts, covers the recovery from each kind
// of change.
func stride() int {
	switch {
	case effort.Soak():
		return 1
	case effort.Race():
		return 101
	}
	return 7
}

// run runs a workload until the power is cut or the workload ends.
func run(t *testing.T, d *disk, m *model, seed uint64) {
	t.Helper()
	db, err := leveldb.OpenStorage(d, d.syncDir, small())
	if err != nil {
		if !errors.Is(err, errPower) {
			t.Fatal(err)
		}
		return
	}
	defer db.Close() //nolint:errcheck // the power is off
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range workloadSteps {
		if err := m.step(t.Context(), db, rnd); err != nil {
			if !errors.Is(err, errPower) {
				t.Fatal(err)
			}
			return
		}
	}
}

// changes returns the number of file changes of the workload.
func changes(t *testing.T, seed uint64) int {
	t.Helper()
	d := newDisk(faultNone, 0, seed)
	run(t, d, newModel(), seed)
	return d.ops
}

// TestPowerCut cuts the power at each change of the files.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	for seed, mode := range []faultMode{faultCut, faultTear, faultTear} {
		t.Run(fmt.Sprintf("mode %d seed %d", mode, seed), func(t *testing.T) {
			t.Parallel()
			for at, total := 1, changes(t, uint64(seed)); at <= total; at += stride() {
				powerCut(t, mode, at, uint64(seed))
				if t.Failed() {
					t.Fatalf("at change %d", at)
				}
			}
		})
	}
}

func powerCut(t *testing.T, mode faultMode, at int, seed uint64) {
	t.Helper()
	d, m := newDisk(mode, at, seed), newModel()
	run(t, d, m, seed)
	d = d.afterCut()
	for range 2 {
		db, err := leveldb.OpenStorage(d, d.syncDir, small())
		if err != nil {
			t.Errorf("change %d: %v", at, err)
			return
		}
		m.check(t, db)
		for id, h := range m.streams {
			mustAppend(t, db.TestJournal(), eventWrite(id, h.highest, 1))
			h.highest++
			h.maybeHighest++
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPowerCutWithoutSync checks that a power cut loses only the last appends of a history.
func TestPowerCutWithoutSync(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.NoSync = true
	seeds := uint64(15)
	if effort.Soak() {
		seeds = 60
	}
	for seed := range seeds {
		d := newDisk(faultPrefix, 0, seed)
		db, err := leveldb.OpenStorage(d, d.syncDir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		d.at = 50 + int(seed*180/seeds)
		next := uint64(0)
		for db.TestJournal().Append(t.Context(), []journal.Write{eventWrite("a", next, 1)}) == nil {
			next++
		}
		_ = db.Close()
		d = d.afterCut()
		if db, err = leveldb.OpenStorage(d, d.syncDir, cfg); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, nr := range numbersOf(t, db.TestJournal()) {
			if nr != uint64(i)+1 || nr > next+1 {
				t.Fatalf("seed %d: the event at index %[3]d has the number %[2]d, want %[5]d, of at most %[4]d", seed, nr, i, next+1, i+1)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedChange makes each change of the files fail once, half done. The journal recovers, and
// acknowledged data survives a later power cut.
func TestFailedChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			for at, total := 1, changes(t, seed); at <= total; at += stride() {
				failedChange(t, at, seed)
				if t.Failed() {
					t.Fatalf("at change %d", at)
				}
			}
		})
	}
}

func failedChange(t *testing.T, at int, seed uint64) {
	t.Helper()
	d, m := newDisk(faultError, at, seed), newModel()
	db, err := leveldb.OpenStorage(d, d.syncDir, small())
	if err != nil {
		if db, err = leveldb.OpenStorage(d, d.syncDir, small()); err != nil {
			t.Fatal(err)
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range workloadSteps {
		if err = m.step(t.Context(), db, rnd); err != nil {
			if !errors.Is(err, errFault) || !errors.Is(err, journal.ErrUnavailable) {
				t.Fatal(err)
			}
			m.check(t, db)
		}
	}
	m.check(t, db)
	if err = db.Close(); err != nil && !errors.Is(err, errFault) {
		t.Error(err)
	}
	d = d.afterCut()
	if db, err = leveldb.OpenStorage(d, d.syncDir, small()); err != nil {
		t.Fatal(err)
	}
	m.check(t, db)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
