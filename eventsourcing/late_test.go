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

var lateFlag = flag.Uint64("refold.late", times(50, 1000), "how many runs TestLateCommits makes")

// TestLateCommits checks appends that seem to fail, or that hang, and that are committed later:
// before or after the recovery of the entity, and while another runtime uses the same journal. A
// late commit must never contradict a reply.
func TestLateCommits(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	total := 0
	t.Cleanup(func() {
		if total == 0 {
			t.Error("0 appends were committed late, want at least 1")
		}
		t.Logf("%d appends were committed late", total)
	})
	for seed := range *lateFlag {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHistory(t, seed)
				landed := h.late()
				h.checkHistory()
				mu.Lock()
				defer mu.Unlock()
				total += landed
			})
		})
	}
}

// late runs clients while appends are committed late. It returns the number of late commits.
func (h *history) late() int {
	h.t.Helper()
	h.readers = h.rng.IntN(2) == 0
	h.patient = h.rng.IntN(2) == 0
	rts := []*eventsourcing.Runtime{h.open()}
	var clients, releases sync.WaitGroup
	for c := range 4 {
		clients.Go(func() { h.client(c, 12) })
	}
	done := make(chan struct{})
	go func() {
		clients.Wait()
		close(done)
	}()
	var faults []*journaltest.Injected
	var open []func()
	for i := 0; ; i++ {
		pause := time.NewTimer(time.Duration(h.rng.IntN(3000)) * time.Microsecond)
		if i == 40 {
			pause.Stop() // no more faults
			<-done
		}
		select {
		case <-done:
			pause.Stop()
			for _, release := range open {
				release()
			}
			releases.Wait()
			landed := len(open)
			for _, f := range faults {
				landed += f.Landed()
			}
			h.close(rts...)
			return landed
		case <-pause.C:
		}
		switch {
		case h.rng.IntN(3) == 0:
			f := journaltest.Fault{Do: journaltest.Late, WholeCall: h.rng.IntN(2) == 0, Times: 1 + h.rng.IntN(3)}
			if h.rng.IntN(2) == 0 {
				f.Err = journal.ErrUnavailable
			}
			injected := h.faulty.Inject(f)
			faults = append(faults, injected)
			delay := time.Duration(h.rng.IntN(40)) * time.Millisecond
			releases.Go(func() {
				<-time.After(delay)
				injected.Release()
			})
		case h.rng.IntN(6) == 0:
			_, release := h.journal.hold(1 + h.rng.IntN(2))
			open = append(open, release)
			delay := time.Duration(h.rng.IntN(15_000)) * time.Millisecond // the timeout of the circuit breaker is 10 s
			releases.Go(func() {
				<-time.After(delay)
				release()
			})
		case !h.readers && len(rts) < 3 && h.rng.IntN(4) == 0:
			rts = append(rts, h.open()) // a further runtime, in addition to the first
		case h.rng.IntN(8) == 0:
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(h.rng.IntN(4000))*time.Microsecond)
			closing := rts[0]
			if h.readers { // two open runtimes would not see the writes of each other
				_ = closing.Close(ctx)
			} else {
				releases.Go(func() { _ = closing.Close(ctx) })
			}
			rts = append(rts[1:], h.open())
			h.dropOldest()
			<-ctx.Done()
			cancel()
		}
	}
}
