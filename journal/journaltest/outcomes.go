// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/refold-io/refold/journal"
)

// outcomeChecks compare the outcomes of interrupted Append calls with the stored state.
func outcomeChecks() []check {
	return []check{
		{"Cancelled", "the outcome of a canceled write is correct, and a fence settles an unknown one", base, func(f *fixture) {
			for n := range 100 {
				w := write(fmt.Sprint("cancelled|", n), "w", 0, 2)
				neighbour := write(fmt.Sprint("neighbour|", n), "w", 0, 1)
				ctx, cancel := context.WithCancel(f.ctx)
				var errs []error
				f.together("a cancelled Append", 2, func(k int) {
					if k == 0 {
						errs = f.appendAll(ctx, w, neighbour)
						return
					}
					for range n * n / 10 {
						runtime.Gosched()
					}
					cancel()
				})
				f.wantTruth(w, errs[0])
				f.wantTruth(neighbour, errs[1])
				if f.Failed() {
					return
				}
			}
		}},
		{"DeadlinePassed", "a call whose deadline has passed fails or succeeds, and its outcome is correct", base, func(f *fixture) {
			const id = "deadline"
			f.store(write(id, "w", 0, 3))
			ctx, cancel := context.WithDeadline(f.ctx, time.Unix(0, 0))
			defer cancel()
			late, fresh := write(id, "w", 3, 2), write("deadline 2", "w", 0, 1)
			f.within("Append with a deadline that has passed", func() {
				errs := f.appendAll(ctx, late, fresh)
				f.wantTruth(late, errs[0])  //nolint:contextcheck // the context of the check has not ended
				f.wantTruth(fresh, errs[1]) //nolint:contextcheck // likewise
			})
			// The call may also succeed.
			f.within("a call with a deadline that has passed", func() {
				events, err := f.collect(f.j.Replay(ctx, id, 1, 3), 0)
				if !errors.Is(err, context.DeadlineExceeded) && (err != nil || len(events) != 3) {
					f.Errorf("Replay of 3 events yields %d and %v, want context.DeadlineExceeded", len(events), err)
				}
				n, err := f.j.HighestSequenceNr(ctx, "deadline 3")
				if !errors.Is(err, context.DeadlineExceeded) && (err != nil || n != 0) {
					f.Errorf("HighestSequenceNr is %d and %v, want context.DeadlineExceeded", n, err)
				}
				if err := f.j.DeleteTo(ctx, id, 2); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					f.Errorf("DeleteTo: %v, want context.DeadlineExceeded", err)
				}
			})
		}},
		{name: "LateBehindFence", rule: "a write that is committed after its fence is not stored", needs: stalls, run: func(f *fixture) { lateCommit(f, false) }},
		{name: "LateBeforeFence", rule: "the fence of a write that is already stored conflicts", needs: stalls, run: func(f *fixture) { lateCommit(f, true) }},
	}
}

// lateCommit stalls an append until its outcome is unknown, and commits it before or after its
// fence. The outcome that the fence reports must then be final.
func lateCommit(f *fixture, before bool) {
	const id = "late"
	first := write(id, "w", 0, 2)
	f.store(first)
	release := f.cfg.Stall(f.TB, f.j)
	lost := write(id, "w", 2, 3)
	ctx, cancel := context.WithTimeout(f.ctx, 200*time.Millisecond)
	defer cancel()
	f.within("a stalled Append whose context has ended", func() {
		if err := f.appendAll(ctx, lost)[0]; err == nil || journal.NotStored(err) {
			f.Errorf("Config.Stall: the next Append returned %v, want an unknown outcome", err)
		}
	})
	released := false
	let := func() {
		if !released {
			released = true
			release()
		}
	}
	if before {
		f.within("the release of a stalled Append", let)
	}
	var done bool
	f.within("the fence of a stalled Append", func() { done = f.settle(lost, let) })
	f.within("the release of a stalled Append", let)

	history := []journal.Write{first, lost}
	if !done {
		history[1] = fence(lost)
	}
	next := uint64(2 + len(history[1].Events))
	f.wantHistory(id, 0, history...)
	if !done {
		f.wantConflict(f.append1(lost), lost, next)
	}
	after := write(id, "w", next, 2)
	f.store(after)
	f.wantHistory(id, 0, append(history, after)...)
}

// settle appends a fence to determine whether a write with an unknown outcome is stored. If the
// fence does not return soon, it may be waiting for the write; let then releases the write. settle
// does not end the check.
func (f *fixture) settle(lost journal.Write, let func()) (done bool) {
	for f.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(f.ctx, time.Second)
		err := f.appendAll(ctx, fence(lost))[0]
		cancel()
		switch {
		case err == nil:
			return false
		case errors.Is(err, journal.ErrConflict):
			events := f.replay(lost.ID, lost.Expect+1, lost.Expect+1)
			if len(events) != 1 {
				f.Errorf("a fence conflicts, but Replay yields %d events at its number", len(events))
				return false
			}
			return !events[0].IsFence() && events[0].Writer == lost.Writer
		case journal.NotStored(err):
			f.Errorf("a fence is neither stored nor in conflict: %v", err)
			return false
		}
		let()
	}
	f.Errorf("the outcome of a fence remains unknown")
	return false
}

// wantTruth compares the outcome of the last write of an ID with the stored state. It does not end
// the check.
func (f *fixture) wantTruth(w journal.Write, said error) {
	f.Helper()
	want := eventsOf(w)
	switch {
	case said == nil:
	case journal.NotStored(said):
		want = nil
	case !f.settle(w, func() {}):
		want = eventsOf(fence(w))
	}
	f.wantEvents(w.ID, f.replay(w.ID, w.Expect+1, maxSeq), want)
	f.wantHighest(w.ID, w.Expect+uint64(len(want)))
}
