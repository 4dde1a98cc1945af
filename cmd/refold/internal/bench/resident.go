// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"

	"github.com/refold-io/refold/eventsourcing"
)

const residents = 1_000_000

// residentPad is the size of the state of each resident entity, in bytes.
const residentPad = 100

// heap returns the heap in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// resident measures the memory of an idle entity beyond its state.
func resident(ctx context.Context, b *run) (results []Result, err error) {
	n := b.scaled(residents, 1)
	err = b.hosted(ctx, residentPad, func(_ *database, h *local) error {
		goroutines := runtime.NumGoroutine()
		before := heap()
		states := make([]*counter, n) // the memory of the states alone
		for i := range states {
			states[i] = &counter{Pad: make([]byte, residentPad)}
		}
		alone := heap() - before - uint64(n)*8 //nolint:gosec // a count
		runtime.KeepAlive(states)
		before = heap()
		b.progress("starting %d entities", n)
		if err = inParallel(n, dataCallers, func(i int) error { return h.Start(ctx, strconv.Itoa(i)) }); err != nil {
			return err
		}
		used := heap() - before
		running := runtime.NumGoroutine()
		if h.Resident() != n {
			return fmt.Errorf("%d entities are resident, want %d", h.Resident(), n)
		}
		settings := fmt.Sprintf("%d idle entities with %d bytes of state", n, residentPad)
		results = []Result{
			atMost((float64(used)-float64(alone))/float64(n), "bytes/entity", 512, settings, ""),
			atMost(float64(running), "goroutines", 64, settings, fmt.Sprintf("%d before", goroutines)),
		}
		return nil
	})
	return results, err
}

// wake measures reads of random resident entities.
func wake(ctx context.Context, b *run) ([]Result, error) {
	n := b.scaled(residents, 1)
	var c compared
	err := b.hosted(ctx, residentPad, func(_ *database, h *local) (err error) {
		b.progress("starting %d entities", n)
		targets, rngs := refs(h, n), randoms(persistCallers)
		if err = inParallel(n, dataCallers, func(i int) error { return occupy(ctx, targets[i]) }); err != nil {
			return err
		}
		c, err = b.compare(
			func() (_ float64, err error) {
				t, err := b.adding(ctx, persistEntities, persistCallers)
				return t.rate(), err
			},
			func() (_ float64, err error) {
				t, err := together(persistCallers, b.settings.Length, func(caller, _ int) (err error) {
					sum, err := eventsourcing.Ask(ctx, targets[rngs[caller].IntN(n)], read{})
					if err == nil && sum != 0 {
						err = fmt.Errorf("wrong reply %d", sum)
					}
					return err
				})
				return t.rate(), err
			})
		return err
	})
	return []Result{c.result(Result{
		Unit: "asks/s", Goal: 1.0, Better: higher,
		Settings: fmt.Sprintf("%d resident entities, %d callers, against persist (inmem), median of %d", n, persistCallers, b.settings.Rounds),
	})}, err
}
