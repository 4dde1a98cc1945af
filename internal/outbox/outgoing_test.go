// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/outbox"
)

var start = time.Unix(1_000_000, 0)

func config() outbox.Config {
	return outbox.Config{Interval: 10 * time.Second, Burst: 3, WarnAfter: 2}
}

// numbers returns the numbers that are sent.
func numbers(e outbox.Effects[string]) (nrs []uint64) {
	for _, s := range e.Sends {
		nrs = append(nrs, s.Nr)
	}
	return nrs
}

func wantSent(t *testing.T, subject string, got outbox.Effects[string], want ...uint64) {
	t.Helper()
	if nrs := numbers(got); !slices.Equal(nrs, want) {
		t.Errorf("%s: sent %v, want %v", subject, nrs, want)
	}
}

func TestSendsWaitForDurableEvents(t *testing.T) {
	t.Parallel()
	o := outbox.NewOutgoing[string](config())
	o.Recovered(start)
	o.Add(1, "a")
	o.Add(1, "b")
	o.Add(2, "c")
	if next := o.Next(); !next.IsZero() {
		t.Errorf("a tick is scheduled at %v, before any event is durable", next)
	}
	wantSent(t, "event 1", o.Durable(1, start), 1, 2)
	wantSent(t, "event 1 again", o.Durable(1, start))
	wantSent(t, "the tick", o.Tick(start.Add(5*time.Second)))
	wantSent(t, "event 2", o.Durable(2, start.Add(6*time.Second)), 3)
}

func TestSendsWaitForRecovered(t *testing.T) {
	t.Parallel()
	o := outbox.NewOutgoing[string](config())
	o.Add(1, "a")
	wantSent(t, "Durable", o.Durable(1, start))
	wantSent(t, "Tick", o.Tick(start.Add(time.Hour)))
	wantSent(t, "Recovered", o.Recovered(start.Add(time.Hour)), 1)
}

// Receivers remove the outcomes below the floor. A confirmation that may still be undone must
// therefore not raise the floor.
func TestFloorWaitsForDurableConfirmations(t *testing.T) {
	t.Parallel()
	o := outbox.NewOutgoing[string](config())
	o.Recovered(start)
	o.Add(1, "a")
	o.Durable(1, start)
	o.Confirm(2, 1)
	o.Add(3, "b")
	if o.Floor() != 1 {
		t.Errorf("the floor is %d while the confirmation is not durable, want 1", o.Floor())
	}
	if e := o.Durable(3, start); e.Floor != 2 {
		t.Errorf("delivery 2 carries floor %d, want 2", e.Floor)
	}
	o.Confirm(4, 2)
	o.Durable(4, start)
	if o.Floor() != 3 {
		t.Errorf("the floor is %d with nothing unconfirmed, want 3", o.Floor())
	}
}

// TestBurstsReachAllDeliveries checks that every delivery is sent although more than a burst is
// always due.
func TestBurstsReachAllDeliveries(t *testing.T) {
	t.Parallel()
	o := outbox.NewOutgoing[string](config())
	for range 10 {
		o.Add(1, "x")
	}
	sent := map[uint64]int{}
	now := start
	effects := o.Recovered(now)
	for range 40 {
		if len(effects.Sends) > 3 || !slices.IsSorted(numbers(effects)) {
			t.Fatalf("one burst has the deliveries %v, want at most 3 in ascending order", numbers(effects))
		}
		for _, nr := range numbers(effects) {
			sent[nr]++
		}
		now = o.Next()
		effects = o.Tick(now)
	}
	for nr := uint64(1); nr <= 10; nr++ {
		if sent[nr] < 9 {
			t.Errorf("delivery %d was sent %d times in 40 bursts of 3, want at least 9", nr, sent[nr])
		}
	}
}

// A tick after the clock was set back still sends the due deliveries.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	o := outbox.NewOutgoing[string](config())
	o.Add(1, "a")
	o.Add(1, "b")
	o.Add(1, "c")
	o.Add(1, "d")
	wantSent(t, "Recovered", o.Recovered(start), 1, 2, 3)
	wantSent(t, "the tick", o.Tick(start.Add(5*time.Second)), 4)
	wantSent(t, "the next tick", o.Tick(start.Add(10*time.Second)), 1, 2, 3)

	o = outbox.NewOutgoing[string](config())
	o.Add(1, "a")
	wantSent(t, "Recovered", o.Recovered(start), 1)
	o.Add(2, "b")
	wantSent(t, "an hour ahead", o.Durable(2, start.Add(time.Hour)), 2)
	wantSent(t, "the tick, by a clock that was set back", o.Tick(start.Add(5*time.Second)), 2)
}

func TestRestoreRejectsInvalidEntries(t *testing.T) {
	t.Parallel()
	for name, nrs := range map[string][]uint64{
		"zero":               {0, 1},
		"falling":            {2, 1},
		"twice":              {2, 2},
		"more than the last": {2, 4},
	} {
		entries := make([]outbox.Entry[string], len(nrs))
		for i, nr := range nrs {
			entries[i].Nr = nr
		}
		if _, err := outbox.Restore(config(), 3, entries); err == nil {
			t.Errorf("%s: Restore accepts %v", name, nrs)
		}
	}
}
