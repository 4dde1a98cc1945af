// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"strconv"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// A view continues at its own snapshot after a restart, and applies only the events after it.
func TestViewContinuesAtItsSnapshot(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		ctx := within(t)
		for run, want := range []struct {
			applied, sum int
			saved        uint64
		}{{applied: 5, sum: 15, saved: 4}, {applied: 6, sum: 30, saved: 10}, {applied: 5, sum: 45, saved: 14}} {
			rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
			if err != nil {
				t.Fatal(err)
			}
			typ := tallyType()
			typ.Snapshots.Every = 3
			tallies, err := eventsourcing.Host(rt, typ)
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if _, err = eventsourcing.Ask(ctx, tallies.Ref("a"), count{By: 3}); err != nil {
					t.Fatal(err)
				}
			}
			sum, applied := 0, 0
			view, err := eventsourcing.NewView(rt, typ, "a", eventsourcing.ViewOptions{
				Name: "sum", MaxEvents: 4, SnapshotEvery: 2,
				Save: func() ([]byte, error) { return strconv.AppendInt(nil, int64(sum), 10), nil },
				Load: func(state []byte) (err error) {
					sum, err = strconv.Atoi(string(state))
					return err
				},
			}, func(v eventsourcing.Viewed[counted]) error {
				sum, applied = sum+v.Event.By, applied+1
				return nil
			})
			for pending := true; pending && err == nil; pending = view.Pending() {
				err = view.Update(ctx)
			}
			if err != nil || applied != want.applied || sum != want.sum {
				t.Errorf("run %d: the view applied %d events with the sum %d, %v, want %+v", run, applied, sum, err, want)
			}
			closeRuntime(t, rt)
			s, err := db.Snapshots().Load(ctx, "refold.view|sum|tally|a", snapshot.Latest())
			if err != nil || s.SequenceNr != want.saved {
				t.Errorf("run %d: the view has a snapshot at %d, %v, want %+v", run, s.SequenceNr, err, want)
			}
		}
	})
}
