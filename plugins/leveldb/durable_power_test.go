// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

func durableID() durable.ID { return durable.ID{Node: "a:1", Replicator: "carts"} }

// durableModel holds the possible values of each key. A key has one value after an acknowledged
// call, and may have several after failed calls.
type durableModel map[string][]string

func (m durableModel) step(t *testing.T, s durable.Store, rnd *rand.Rand) error {
	t.Helper()
	var batch []durable.Record
	last := map[string]string{}
	for range 1 + rnd.IntN(4) {
		r := durable.Record{Key: fmt.Sprint("key-", rnd.IntN(6))}
		if rnd.IntN(3) > 0 {
			r.Data = []byte(strings.Repeat(fmt.Sprint(rnd.Uint32(), " "), 1+rnd.IntN(100)))
		}
		batch = append(batch, r)
		last[r.Key] = string(r.Data)
		if rnd.IntN(8) == 0 { // whole and half batches
			batch = append(batch, durable.Record{Key: "large", Data: make([]byte, 1+rnd.IntN(20_000))})
			last["large"] = string(batch[len(batch)-1].Data)
		}
	}
	err := s.Write(t.Context(), batch)
	for _, r := range batch {
		if err == nil {
			m[r.Key] = []string{last[r.Key]}
		} else { // a key that the batch already contains, because a batch may be split
			m[r.Key] = append(m.of(r.Key), string(r.Data))
		}
	}
	return err
}

func (m durableModel) of(key string) []string {
	if known := m[key]; len(known) > 0 {
		return known
	}
	return []string{""}
}

// check compares the stored records with the model. Afterwards each key has one possible value.
func (m durableModel) check(t *testing.T, s durable.Store) {
	t.Helper()
	stored := map[string]string{}
	for r, err := range s.Load(t.Context()) {
		if err != nil {
			t.Errorf("load: %v", err)
			return
		}
		stored[r.Key] = string(r.Data)
		if _, known := m[r.Key]; !known {
			t.Errorf("the store contains the key %q, which was never written", r.Key)
		}
	}
	for key := range m {
		if !slices.Contains(m.of(key), stored[key]) {
			t.Errorf("%q is %.30q, want one of %d values, of which the last is %.30q", key, stored[key], len(m.of(key)), m.of(key)[len(m.of(key))-1])
		}
		m[key] = []string{stored[key]}
	}
}

func tinyDurable() leveldb.Config { return small() }

// durableRun runs a workload until the power is cut or the workload ends.
func durableRun(t *testing.T, d *disk, m durableModel, seed uint64) {
	t.Helper()
	s, err := leveldb.OpenDurable(durableID(), d, d.syncDir, tinyDurable())
	if err != nil {
		if !errors.Is(err, errPower) {
			t.Fatal(err)
		}
		return
	}
	defer s.Close() //nolint:errcheck // the power is off
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range workloadSteps {
		if err := m.step(t, s, rnd); err != nil {
			if !errors.Is(err, errPower) {
				t.Fatal(err)
			}
			return
		}
	}
}

// TestDurablePowerCut cuts the power at each change of the files.
func TestDurablePowerCut(t *testing.T) {
	t.Parallel()
	for _, mode := range []faultMode{faultCut, faultTear} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("mode %d, seed %d", mode, seed), func(t *testing.T) {
				t.Parallel()
				whole := newDisk(faultNone, 0, seed)
				durableRun(t, whole, durableModel{}, seed)
				for at := 1; at <= whole.ops && !t.Failed(); at += stride() {
					d, m := newDisk(mode, at, seed), durableModel{}
					durableRun(t, d, m, seed)
					d = d.afterCut()
					for range 2 {
						s, err := leveldb.OpenDurable(durableID(), d, d.syncDir, tinyDurable())
						if err != nil {
							t.Fatalf("change %d: %v", at, err)
						}
						m.check(t, s)
						if err := m.step(t, s, rand.New(rand.NewPCG(seed, 2))); err != nil {
							t.Errorf("change %d: %v", at, err)
						}
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
					}
					if t.Failed() {
						t.Errorf("at change %d", at)
					}
				}
			})
		}
	}
}

// TestDurableFailedChange makes each change of the files fail once, half done. The store recovers,
// and acknowledged data survives a later power cut.
func TestDurableFailedChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			whole := newDisk(faultNone, 0, seed)
			durableRun(t, whole, durableModel{}, seed)
			for at := 1; at <= whole.ops && !t.Failed(); at += stride() {
				durableFailedChange(t, at, seed)
				if t.Failed() {
					t.Errorf("at change %d", at)
				}
			}
		})
	}
}

func durableFailedChange(t *testing.T, at int, seed uint64) {
	t.Helper()
	d, m := newDisk(faultError, at, seed), durableModel{}
	s, err := leveldb.OpenDurable(durableID(), d, d.syncDir, tinyDurable())
	if err != nil {
		if s, err = leveldb.OpenDurable(durableID(), d, d.syncDir, tinyDurable()); err != nil {
			t.Fatal(err)
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range workloadSteps {
		if err = m.step(t, s, rnd); err != nil {
			if !errors.Is(err, errFault) || !errors.Is(err, journal.ErrUnavailable) {
				t.Fatal(err)
			}
			m.check(t, s)
		}
	}
	m.check(t, s)
	if err = s.Close(); err != nil && !errors.Is(err, errFault) {
		t.Error(err)
	}
	d = d.afterCut()
	if s, err = leveldb.OpenDurable(durableID(), d, d.syncDir, tinyDurable()); err != nil {
		t.Fatal(err)
	}
	m.check(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestDurableLoadDuringFailure makes the disk fail during a load, while the body of the loop causes
// the store to reopen its files. The load returns an error instead of a mixture of two states, and
// does not deadlock.
func TestDurableLoadDuringFailure(t *testing.T) {
	t.Parallel()
	d := newDisk(faultNone, 0, 1)
	s, err := leveldb.OpenDurable(durableID(), d, d.syncDir, leveldb.Config{}.WithPortion(2).WithReopenPause(1))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 6 {
		if err = s.Write(t.Context(), []durable.Record{{Key: fmt.Sprint(n), Data: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for r, lerr := range s.Load(t.Context()) {
		if lerr != nil {
			err = lerr
			break
		}
		if keys = append(keys, r.Key); r.Key == "1" {
			d.failNextSync()
			for range 2 { // the second one opens the files
				err = s.Write(t.Context(), []durable.Record{{Key: "5", Data: []byte("y")}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err == nil || !slices.Equal(keys, []string{"0", "1"}) {
		t.Errorf("loaded %q, %v, want 0 and 1 and then an error", keys, err)
	}
	m := durableModel{"0": {"x"}, "1": {"x"}, "2": {"x"}, "3": {"x"}, "4": {"x"}, "5": {"y"}}
	m.check(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
