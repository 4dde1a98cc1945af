// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

func faulty() *snapshottest.Faulty { return snapshottest.NewFaulty(new(inmem.SnapshotStore)) }

func some() snapshot.Snapshot {
	return snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 1, Time: time.Unix(0, 0).UTC()}}
}

func stored(t *testing.T, store snapshot.Store, id string) bool {
	t.Helper()
	_, err := store.Load(t.Context(), id, snapshot.Latest())
	if err != nil && !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("Load: %v", err)
	}
	return err == nil
}

func TestFaultyWithoutFaultsKeepsTheContract(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, snapshottest.Config{Open: func(testing.TB) snapshot.Store { return faulty() }})
}

func TestFaultyLosesTheNextSave(t *testing.T) {
	t.Parallel()
	f := faulty()
	f.Inject(snapshottest.Fault{})
	if err := f.Save(t.Context(), some()); !errors.Is(err, snapshottest.ErrInjected) || stored(t, f, "a") {
		t.Errorf("Save: %v, want ErrInjected and nothing stored", err)
	}
	if err := f.Save(t.Context(), some()); err != nil || !stored(t, f, "a") {
		t.Errorf("Save after the fault: %v", err)
	}
}

func TestFaultyReturnsTheGivenError(t *testing.T) {
	t.Parallel()
	f, failure := faulty(), errors.New("other failure")
	f.Inject(snapshottest.Fault{Err: failure})
	if err := f.Save(t.Context(), some()); !errors.Is(err, failure) || stored(t, f, "a") {
		t.Errorf("Save: %v, want the error of the fault and nothing stored", err)
	}
}

func TestFaultyStrikesMatchingCalls(t *testing.T) {
	t.Parallel()
	f := faulty()
	f.Inject(snapshottest.Fault{Op: snapshottest.OpDelete, ID: "b", Skip: 1, Times: 2, When: func(c snapshottest.Call) bool {
		return c.Criteria.MaxSequenceNr > 1
	}})
	for i, step := range []struct {
		id   string
		upTo uint64
		fail bool
	}{
		{"a", 2, false}, {"b", 1, false}, {"b", 2, false}, {"b", 2, true}, {"b", 1, false}, {"b", 3, true}, {"b", 2, false},
	} {
		if err := f.Delete(t.Context(), step.id, snapshot.UpTo(step.upTo)); (err != nil) != step.fail {
			t.Errorf("deletion %d: %v, want a failure: %t", i, err, step.fail)
		}
	}
	f.Inject(snapshottest.Fault{Op: snapshottest.OpList, Times: -1})
	for range 3 {
		for _, err := range f.List(t.Context(), "a", snapshot.Latest()) {
			if !errors.Is(err, snapshottest.ErrInjected) {
				t.Errorf("List: %v, want ErrInjected", err)
			}
		}
	}
	f.Reset()
	for _, err := range f.List(t.Context(), "a", snapshot.Latest()) {
		t.Errorf("List after Reset yields an entry with the error %v, want nothing", err)
	}
}

func TestFaultyStalls(t *testing.T) {
	t.Parallel()
	f := faulty()
	injected := f.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, Do: snapshottest.Stall, Times: 2})
	loaded := make(chan error)
	go func() {
		_, err := f.Load(t.Context(), "a", snapshot.Latest())
		loaded <- err
	}()
	<-injected.Struck()
	if err := f.Save(t.Context(), some()); err != nil {
		t.Errorf("Save during the stalled Load: %v", err)
	}
	injected.Release()
	if err := <-loaded; err != nil {
		t.Errorf("Load after the release: %v, want the snapshot that was saved during the stall", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Load(ctx, "a", snapshot.Latest()); !errors.Is(err, context.Canceled) {
		t.Errorf("Load whose context ends: %v, want context.Canceled", err)
	}
}
