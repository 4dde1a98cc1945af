// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/snapshot"
)

// scenario is a sequence of saves, replacements and deletions, with the permitted contents after
// each step. A step may succeed or be interrupted.
type scenario struct {
	ctx   context.Context //nolint:containedctx // the context of the test
	store *snapshot.Files
	// allowed has for each snapshot the payloads that Load may return. An empty payload means that
	// the snapshot may be missing.
	allowed map[snapshot.Metadata][]string
}

func runScenario(ctx context.Context, fsys snapshot.FileSystem) (*scenario, error) {
	s := &scenario{ctx: ctx, allowed: map[snapshot.Metadata][]string{}}
	var err error
	if s.store, err = snapshot.OpenFilesOn(fsys, "/data/snapshots", snapshot.FilesConfig{}); err != nil {
		return s, err
	}
	return s, errors.Join(
		s.save("a", 1, "first"),
		s.save("a", 2, "second"),
		s.save("b", 1, "of another"),
		s.save("a", 2, "second, again"),
		s.delete("a", 1),
		s.save("a", 3, "third"),
		s.delete("b", 1),
		s.save("b", 1, "of another, again"),
	)
}

func at(id string, seqNr uint64) snapshot.Metadata {
	return snapshot.Metadata{ID: id, SequenceNr: seqNr, Time: moment(int(seqNr))}
}

func (s *scenario) save(id string, seqNr uint64, payload string) error {
	return s.settle(at(id, seqNr), payload, s.store.Save(s.ctx, snapshot.Snapshot{Metadata: at(id, seqNr), Payload: []byte(payload)}))
}

func (s *scenario) delete(id string, seqNr uint64) error {
	return s.settle(at(id, seqNr), "", s.store.Delete(s.ctx, id, snapshot.At(seqNr)))
}

func (s *scenario) settle(m snapshot.Metadata, payload string, err error) error {
	if s.allowed[m] == nil {
		s.allowed[m] = []string{""}
	}
	if err == nil {
		s.allowed[m] = nil
	}
	s.allowed[m] = append(s.allowed[m], payload)
	return err
}

// check opens the directory and compares its contents.
func (s *scenario) check(t *testing.T, fsys *disk) {
	t.Helper()
	store, err := snapshot.OpenFilesOn(fsys, "/data/snapshots", snapshot.FilesConfig{})
	if err != nil {
		t.Errorf("open again: %v", err)
		return
	}
	for _, file := range fsys.files() {
		if strings.Contains(file, "partial") {
			t.Errorf("the partial file %s was not removed", file)
		}
	}
	for m, allowed := range s.allowed {
		got, err := store.Load(t.Context(), m.ID, snapshot.At(m.SequenceNr))
		if err != nil && !errors.Is(err, snapshot.ErrNotFound) {
			t.Errorf("Load of %q at %d: %v", m.ID, m.SequenceNr, err)
		} else if !slices.Contains(allowed, string(got.Payload)) {
			t.Errorf("Load of %q at %d: %q, want one of %q", m.ID, m.SequenceNr, got.Payload, allowed)
		}
	}
	later := snapshot.Snapshot{Metadata: at("a", 4), Payload: []byte("after all that")}
	if err := store.Save(t.Context(), later); err != nil {
		t.Errorf("Save afterwards: %v", err)
	}
	if got, err := store.Load(t.Context(), "a", snapshot.Latest()); err != nil || string(got.Payload) != "after all that" {
		t.Errorf("Load afterwards: %q, %v, want the later snapshot", got.Payload, err)
	}
}

// steps returns the number of operations of the scenario without faults.
func steps(t *testing.T) int {
	t.Helper()
	d := newDisk()
	s, err := runScenario(t.Context(), d)
	if err != nil {
		t.Fatalf("without faults: %v", err)
	}
	n := len(d.steps)
	s.check(t, d)
	return n
}

// TestPowerCutAtEveryStep checks that after a power failure at any step acknowledged snapshots
// exist, other snapshots exist as a whole or not at all, and the store is usable.
func TestPowerCutAtEveryStep(t *testing.T) {
	t.Parallel()
	for cut := range steps(t) {
		d := newDisk()
		d.fail = func(step int, _ string) error {
			if step >= cut {
				return errPower
			}
			return nil
		}
		s, err := runScenario(t.Context(), d)
		if err == nil {
			t.Errorf("power cut at step %d: the scenario returned nil, want an error", cut)
		}
		d.fail = nil
		last := d.steps[cut]
		for seed := range uint64(20) {
			survivor := d.afterPowerCut(rand.New(rand.NewPCG(uint64(cut), seed)))
			t.Run(fmt.Sprintf("%d-%d", cut, seed), func(t *testing.T) {
				t.Parallel()
				s.check(t, survivor)
				if t.Failed() {
					t.Logf("the power failed during %q", last)
				}
			})
		}
	}
}

// TestKillAtEveryStep kills the process at each step. The data that it has written remains, as the
// operating system keeps it.
func TestKillAtEveryStep(t *testing.T) {
	t.Parallel()
	for kill := range steps(t) {
		d := newDisk()
		d.fail = func(step int, _ string) error {
			if step >= kill {
				return errPower
			}
			return nil
		}
		s, err := runScenario(t.Context(), d)
		if err == nil {
			t.Errorf("killed at step %d: the scenario returned nil, want an error", kill)
		}
		d.fail = nil
		s.check(t, d)
		// A power cut after a save of the next process is also harmless.
		s.allowed[at("a", 4)] = []string{"after all that"}
		s.check(t, d.afterPowerCut(rand.New(rand.NewPCG(uint64(kill), 0))))
	}
}

// TestFaultAtEveryStep checks that a failed operation of the file system leads to an error of the
// call that needs it. A call that can succeed without the operation may succeed. Other calls are
// not affected.
func TestFaultAtEveryStep(t *testing.T) {
	t.Parallel()
	for fault := range steps(t) {
		d := newDisk()
		d.fail = func(step int, _ string) error {
			if step == fault {
				return errDisk
			}
			return nil
		}
		s, err := runScenario(t.Context(), d)
		if err != nil && !errors.Is(err, errDisk) {
			t.Errorf("step %d (%s) fails: %v, want its error", fault, d.steps[fault], err)
		}
		d.fail = nil
		s.check(t, d)
	}
}

// TestFullDisk checks that a save that does not fit leaves no file.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk()
	store, err := snapshot.OpenFilesOn(d, "/data", snapshot.FilesConfig{})
	if err != nil {
		t.Fatal(err)
	}
	old := snapshot.Snapshot{Metadata: at("a", 1), Payload: []byte("old")}
	if err := store.Save(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	before := d.files()
	size := len(encoded(t, snapshot.Snapshot{Metadata: at("a", 2), Payload: []byte("new one")}))
	for room := range size {
		d.room = room
		for seqNr := uint64(1); seqNr <= 2; seqNr++ {
			if err := store.Save(t.Context(), snapshot.Snapshot{Metadata: at("a", seqNr), Payload: []byte("new one")}); err == nil {
				t.Fatalf("Save of %d bytes with room for %d returned nil, want an error", size, room)
			}
		}
		if after := d.files(); !slices.Equal(after, before) {
			t.Errorf("room for %d bytes: files %q, want %q", room, after, before)
		}
		got, err := store.Load(t.Context(), "a", snapshot.Latest())
		if err != nil || string(got.Payload) != "old" {
			t.Errorf("room for %d bytes: Load = %q, %v, want the old one", room, got.Payload, err)
		}
	}
	d.room = size
	if err := store.Save(t.Context(), snapshot.Snapshot{Metadata: at("a", 2), Payload: []byte("new one")}); err != nil {
		t.Errorf("Save with just enough room: %v", err)
	}
}
