// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"fmt"
	"sync/atomic"

	"github.com/refold-io/refold/journal"
)

func concurrencyChecks() []check {
	return []check{
		{name: "VisibleOnReturn", rule: "what Append has stored is visible to the next Replay and HighestSequenceNr", run: visibleOnReturn},
		{name: "UnitsUnderReads", rule: "a reader never sees a part of a write", run: unitsUnderReads},
		{name: "Linearizable", rule: "concurrent Append, Replay and HighestSequenceNr have an order that explains them", run: linearizable},
		{name: "ParallelAppends", rule: "MaxAppends calls in flight, with different IDs, do not disturb each other", needs: parallel, run: parallelAppends},
	}
}

// visibleOnReturn reads what was appended as soon as Append returns, with others
// busy.
func visibleOnReturn(f *fixture) {
	const writers, each = 4, 50
	f.together("Append, Replay or HighestSequenceNr", writers, func(k int) {
		id := fmt.Sprint("visible|", k)
		for n := range uint64(each) {
			w := write(id, "w", n, 1)
			if err := f.append1(w); err != nil {
				f.Errorf("Append: %v", err)
				return
			}
			if n%2 == 0 {
				f.wantHighest(id, n+1)
			}
			f.wantEvents(id, f.replay(id, n+1, maxSeq), eventsOf(w))
			if f.Failed() {
				return
			}
		}
	})
}

// unitsUnderReads replays while units of three are appended: none is seen in
// part, and nothing that was there is missing.
func unitsUnderReads(f *fixture) {
	const id, unit, units = "units", 3, 150
	var done atomic.Bool
	f.together("Append beside Replay", 3, func(k int) {
		if k == 0 {
			defer done.Store(true)
			for n := range uint64(units) {
				if err := f.append1(write(id, "w", n*unit, unit)); err != nil {
					f.Errorf("Append: %v", err)
					return
				}
			}
			return
		}
		for !done.Load() && !f.Failed() {
			before := f.highest(id)
			events := f.replay(id, 1, maxSeq)
			after := f.highest(id)
			n := uint64(len(events))
			if n > 0 && (events[0].SequenceNr != 1 || !gapless(events)) {
				f.Errorf("Replay yields %s", brief(numbers(events)))
			}
			if n%unit != 0 || before%unit != 0 {
				f.Errorf("a part of a unit of %d is visible: Replay yields %d events, the highest number is %d", unit, n, before)
			}
			if n < before || n > after {
				f.Errorf("Replay yields %d events, with %d stored before it and %d after it", n, before, after)
			}
		}
	})
	f.wantHighest(id, unit*units)
}

// parallelAppends has as many calls in flight as the journal wants, each with IDs
// of its own, as a writer does.
func parallelAppends(f *fixture) {
	p, ok := journal.As[journal.Parallel](f.j)
	if !ok {
		f.Fatalf("%T does not implement journal.Parallel any more", f.j)
	}
	calls := p.MaxAppends()
	if calls < 1 {
		f.Fatalf("MaxAppends is %d, want at least 1", calls)
	}
	const ids, rounds = 20, 10
	id := func(call, k int) string { return fmt.Sprintf("parallel|%d|%d", call, k) }
	f.together("one of several Appends to different IDs", calls, func(call int) {
		for r := range uint64(rounds) {
			batch := make([]journal.Write, ids)
			for k := range batch {
				batch[k] = write(id(call, k), "w", 2*r, 2)
			}
			for k, err := range f.appendAll(f.ctx, batch...) {
				if err != nil {
					f.Errorf("Append to %q: %v", batch[k].ID, err)
				}
			}
		}
	})
	for call := range calls {
		for k := range ids {
			f.wantHistory(id(call, k), 0, write(id(call, k), "w", 0, 2*rounds))
		}
	}
}
