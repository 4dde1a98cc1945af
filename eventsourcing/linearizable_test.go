// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
)

var historiesFlag = flag.Uint64("refold.histories", times(21, 210), "how many histories TestLinearizable checks")

// TestLinearizable checks that an entity appears to handle one command after the other, each
// between its call and its reply, under any failure. Two thirds of the histories have faults. Half
// of the histories with faults also have restarts of the runtime. Every second history runs without
// pipelining. An operation with an unknown outcome may take effect at any later time, or never.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for seed := range *historiesFlag {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHistory(t, seed)
				h.run(seed/2%3 > 0, seed/2%3 > 1)
				h.checkHistory()
				t.Log(h)
			})
		})
	}
}

// TestLinearizableTurns is TestLinearizable for each kind of goroutine that takes turns, with a writer and
// with an immediate journal: with one client, the caller takes turns of an idle entity and appends its
// events; with HostOptions.WorkersOnly, workers take all turns; otherwise both do. With a writer and several clients,
// workers may take all turns, because they do so while the writer stores.
func TestLinearizableTurns(t *testing.T) {
	t.Parallel()
	for seed := range *historiesFlag {
		for name, set := range map[string]func(h *history){
			"caller":  func(h *history) { h.clients = 1 },
			"workers": func(h *history) { h.workers = true },
			"both":    func(*history) {},
		} {
			for _, immediate := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s immediate=%t seed %d", name, immediate, seed), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						h := newHistory(t, seed)
						h.immediate = immediate
						set(h)
						h.run(seed/2%3 > 0, seed/2%3 > 1)
						h.checkHistory()
						byWorkers, byCallers := h.turns[0].Load(), h.turns[1].Load()
						if h.workers && byCallers > 0 || !h.workers && byCallers == 0 && (immediate || h.clients == 1) {
							t.Errorf("workers took %d turns and callers %d", byWorkers, byCallers)
						}
						if appends := h.journal.byCallers.Load(); !immediate && (h.workers && appends > 0 || h.clients == 1 && appends == 0) {
							t.Errorf("callers made %d appends", appends)
						}
						t.Log(h)
					})
				})
			}
		}
	}
}

// TestLinearizableShared is TestLinearizable for two runtimes that share the journal. The runtimes
// handle the commands of the clients in turn. In half of the histories retention deletes events. No
// caller receives a conflict.
func TestLinearizableShared(t *testing.T) {
	t.Parallel()
	for seed := range *historiesFlag {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHistory(t, seed)
				h.shared, h.typ.Snapshots.DeleteEvents = true, seed/6%2 == 0
				h.run(seed/2%3 > 0, seed/2%3 > 1)
				h.checkHistory()
				if len(h.rivalry) > 0 {
					t.Errorf("%d operations failed because another runtime wrote, want none: %v", len(h.rivalry), h.rivalry[0])
				}
				if h.typ.Snapshots.DeleteEvents && len(h.kept.deleted) == 0 {
					t.Error("no events were deleted, want retention during the history")
				}
				t.Log(h)
			})
		})
	}
}

// run runs the clients, each with 65 operations.
func (h *history) run(faults, restarts bool) {
	h.t.Helper()
	const operations = 65
	var wg sync.WaitGroup
	rts := []*eventsourcing.Runtime{h.open()}
	if h.shared {
		rts = append(rts, h.open())
	}
	done := make(chan struct{})
	for c := range h.clients {
		wg.Go(func() { h.client(c, operations) })
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	for i := 0; ; i++ {
		pause := time.NewTimer(time.Duration(1+h.rng.IntN(8)) * time.Millisecond)
		select {
		case <-done:
			pause.Stop()
			h.close(rts...)
			return
		case <-pause.C:
		}
		if faults && i < 200 {
			h.fault()
		}
		if restarts && h.rng.IntN(6) == 0 {
			rts = append(rts[1:], h.restart(rts[0]))
		}
		if i > 200 {
			h.faulty.Reset()
		}
	}
}

// fault injects a random fault.
func (h *history) fault() {
	errs := []error{nil, nil, fmt.Errorf("reset by peer: %w", journal.ErrUnavailable)}
	f := journaltest.Fault{Err: errs[h.rng.IntN(len(errs))], WholeCall: h.rng.IntN(2) == 0, Times: 1 + h.rng.IntN(2)}
	switch h.rng.IntN(12) {
	case 0, 1:
		f.Do = journaltest.Lose
	case 2, 3:
		f.Do = journaltest.Store
	case 4, 5, 6:
		f.Do, f.AfterCalls = journaltest.Late, 1+h.rng.IntN(6)
	case 7:
		f.Do = journaltest.Reject
	case 8:
		f.Do = journaltest.NotSent
	case 9:
		f.Op = journaltest.OpReplay
		f.AfterEvents = h.rng.IntN(3)
	case 10:
		f.Op = journaltest.OpHighest
	case 11:
		f.Do = journaltest.Conflict
	}
	h.faulty.Inject(f)
}

// restart replaces the runtime, in an orderly way or not.
func (h *history) restart(rt *eventsourcing.Runtime) *eventsourcing.Runtime {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(h.rng.IntN(3))*time.Millisecond)
	defer cancel()
	_ = rt.Close(ctx) // the deadline may pass
	next := h.open()
	h.dropOldest()
	return next
}
