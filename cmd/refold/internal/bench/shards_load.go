// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

const (
	// loadPatience is the time-out of an ask.
	loadPatience = 30 * time.Second
	// loadOpen is the maximum number of open asks per process.
	loadOpen = 50_000
	// loadTick is the interval of checks for due asks.
	loadTick = time.Millisecond
	// loadErrors is the maximum number of reported errors.
	loadErrors = 5
)

// load sends asks to random entities at a fixed rate, independent of replies. Half of the asks
// persist an event. load counts the acknowledged ones.
type load struct {
	region  *sharding.Region[counter]
	ids     []string
	acked   []atomic.Int64 // acknowledged asks that persist an event, by entity
	unknown []atomic.Int64 // asks with an unknown outcome, by entity

	stop  func()
	ended sync.WaitGroup // the loop and all asks
	began time.Time
	open  atomic.Int64

	mu      sync.Mutex
	took    time.Duration // the duration of the load
	samples []sample      // At is the due time
	failed  int
	errors  []string
}

// startLoad starts a load. Acknowledgements of an earlier load on the same entities are kept.
func (s *server) startLoad(ctx context.Context, o *order) (result, error) {
	ctx, stop := context.WithCancel(ctx)
	a := &load{region: s.region, stop: stop, began: time.Now()}
	for i := o.Part; i < o.Count; i += o.Parts {
		a.ids = append(a.ids, tallyID(i))
	}
	if s.load != nil && slices.Equal(s.load.ids, a.ids) {
		a.acked, a.unknown = s.load.acked, s.load.unknown
	} else {
		a.acked, a.unknown = make([]atomic.Int64, len(a.ids)), make([]atomic.Int64, len(a.ids))
	}
	a.ended.Go(func() { a.loop(ctx, o.Rate) })
	s.load = a
	return result{}, nil
}

func (a *load) loop(ctx context.Context, rate int) {
	rng := randoms(1)[0]
	each := time.Second / time.Duration(rate)
	asks := context.WithoutCancel(ctx) // halt waits for started asks
	for n := 0; pause(ctx, loadTick) == nil; {
		for due := a.began.Add(time.Duration(n) * each); !due.After(time.Now()) && a.open.Load() < loadOpen; due = due.Add(each) {
			n++
			i, stored := rng.IntN(len(a.ids)), rng.IntN(2) == 0
			note := noteOf(n, noteSize)
			a.open.Add(1)
			a.ended.Go(func() {
				defer a.open.Add(-1)
				a.one(asks, i, stored, note, due)
			})
		}
	}
	a.mu.Lock()
	a.took = time.Since(a.began)
	a.mu.Unlock()
}

func (a *load) one(ctx context.Context, i int, stored bool, note []byte, due time.Time) {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	to := a.region.Ref(a.ids[i])
	var err error
	if stored {
		_, err = eventsourcing.Ask(ctx, to, add{N: 1, Note: note})
	} else {
		_, err = eventsourcing.Ask(ctx, to, read{})
	}
	took := time.Since(due)
	if stored && err == nil {
		a.acked[i].Add(1)
	} else if stored && !eventsourcing.NotDone(err) {
		a.unknown[i].Add(1)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.samples = append(a.samples, sample{due, took})
	if err != nil {
		if a.failed++; len(a.errors) < loadErrors {
			a.errors = append(a.errors, fmt.Sprintf("%s after %v: %v", a.ids[i], took.Round(time.Millisecond), err))
		}
	}
}

// halt ends the load and waits for the replies. Open is the number of asks that were open at the
// end of the load.
func (s *server) halt(context.Context, *order) (result, error) {
	a := s.load
	open := int(a.open.Load())
	a.stop()
	a.ended.Wait()
	return result{Ops: len(a.samples), Took: a.took, Open: open, Failed: a.failed, Errors: a.errors}, nil
}

func (s *server) times(_ context.Context, o *order) (r result, _ error) {
	for _, sample := range s.load.samples {
		if !sample.At.Before(o.Since) && sample.At.Before(o.Until) {
			r.Times = append(r.Times, sample.Took)
		}
	}
	return r, nil
}

func (s *server) lost(ctx context.Context, _ *order) (r result, err error) {
	a := s.load
	var lost atomic.Int64
	err = inParallel(len(a.ids), dataCallers, func(i int) (err error) {
		acked, unknown := a.acked[i].Load(), a.unknown[i].Load()
		if acked+unknown == 0 {
			return nil
		}
		limited, cancel := context.WithTimeout(ctx, loadPatience)
		defer cancel()
		n, err := eventsourcing.Ask(limited, a.region.Ref(a.ids[i]), read{})
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", a.ids[i], err)
		case n > acked+unknown:
			return fmt.Errorf("%s holds %d, of which %d were acknowledged and %d may be stored", a.ids[i], n, acked, unknown)
		}
		lost.Add(max(0, acked-n))
		return nil
	})
	r.Lost = int(lost.Load())
	return r, err
}

func (s *server) wake(ctx context.Context, o *order) (result, error) {
	began := time.Now()
	err := inParallel((o.Count-o.Part+o.Parts-1)/o.Parts, dataCallers, func(i int) error {
		limited, cancel := context.WithTimeout(ctx, nodePatience)
		defer cancel()
		_, err := eventsourcing.Ask(limited, s.region.Ref(tallyID(o.Part+i*o.Parts)), read{})
		return err
	})
	return result{At: time.Now(), Took: time.Since(began)}, err
}

func (s *server) runs(ctx context.Context, _ *order) (r result, err error) {
	state, err := s.region.State(ctx)
	for _, at := range state.Shards {
		r.Ops += len(at.Entities)
	}
	return r, err
}

func (s *server) spread(ctx context.Context, _ *order) (result, error) {
	r := result{Homes: map[string]int{}}
	for i := range s.setup.Shards {
		home, known, err := s.region.Home(ctx, sharding.Shard(i))
		if err != nil {
			return r, err
		}
		if known {
			r.Homes[home.Name]++
		}
	}
	r.At = time.Now()
	return r, nil
}
