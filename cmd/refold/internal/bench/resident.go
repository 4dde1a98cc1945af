// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"

	"github.com/refold-io/refold/eventsourcing"
)

const residents = 1_000_000

// residentPad is the size of the state of each resident entity, in bytes.
const residentPad = 100

// wakeAll starts n entities, a batch at a time.
func wakeAll(ctx context.Context, h *eventsourcing.Local[counter, event], n int) error {
	const starters = 64
	errs := make(chan error, starters)
	for i := range starters {
		go func() {
			for id := i; id < n; id += starters {
				if _, err := eventsourcing.Ask(ctx, h.Ref(strconv.Itoa(id)), read{}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var all []error
	for range starters {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

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
	n := b.scaled(residents)
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rt, h, err := host(ctx, s, counters(residentPad, eventsourcing.Snapshots[counter, event]{}))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()

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
	if err = wakeAll(ctx, h, n); err != nil {
		return nil, err
	}
	used := heap() - before
	running := runtime.NumGoroutine()
	if h.Resident() != n {
		return nil, fmt.Errorf("%d entities are resident, want %d", h.Resident(), n)
	}
	perEntity := (float64(used) - float64(alone)) / float64(n)
	settings := fmt.Sprintf("%d idle entities with %d bytes of state", n, residentPad)
	return []Result{
		Result{Value: perEntity, Unit: "bytes/entity", Ratio: perEntity, Goal: 1024, Better: lower, Settings: settings}.judge(),
		Result{
			Value: float64(running), Unit: "goroutines", Ratio: float64(running), Goal: 64, Better: lower,
			Settings: settings, Detail: fmt.Sprintf("%d before", goroutines),
		}.judge(),
	}, nil
}

// wake measures reads of random resident entities.
func wake(ctx context.Context, b *run) (results []Result, err error) {
	n := b.scaled(residents)
	p := newNotes()
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rt, h, err := host(ctx, s, counters(residentPad, eventsourcing.Snapshots[counter, event]{}))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	b.progress("starting %d entities", n)
	if err = wakeAll(ctx, h, n); err != nil {
		return nil, err
	}
	targets := refs(h, n)
	rngs := make([]*rand.Rand, persistCallers)
	for i := range rngs {
		rngs[i] = rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // no secret
	}
	limits, values, err := b.alternate(
		func() (float64, error) {
			c, failed := b.adding(ctx, p, persistEntities, persistCallers)
			return c.rate(), failed
		},
		func() (float64, error) {
			c, failed := together(persistCallers, b.settings.Length, func(caller, _ int) error {
				sum, failed := eventsourcing.Ask(ctx, targets[rngs[caller].IntN(n)], read{})
				if failed == nil && sum != 0 {
					failed = fmt.Errorf("wrong reply %d", sum)
				}
				return failed
			})
			return c.rate(), failed
		})
	if err != nil {
		return nil, err
	}
	limit, value := median(limits), median(values)
	return []Result{Result{
		Value: value, Unit: "asks/s", Limit: limit, Ratio: value / limit, Goal: 1.0, Better: higher,
		Settings: fmt.Sprintf("%d resident entities, %d callers, against persist (inmem), median of %d", n, persistCallers, len(values)),
	}.judge()}, nil
}
