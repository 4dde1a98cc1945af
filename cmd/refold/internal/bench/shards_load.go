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

// asking is a load: asks of random entities at a fixed rate, independent of replies. Half of them
// are stored. It records the acknowledged ones.
type asking struct {
	region  *sharding.Region[tally]
	notes   notes
	ids     []string
	acked   []atomic.Int64 // of each entity
	unknown []atomic.Int64 // with an unknown outcome

	stop  func()
	ended sync.WaitGroup // the loop and all asks
	began time.Time
	open  atomic.Int64

	mu      sync.Mutex
	took    time.Duration // the duration of the load
	samples []dataSample  // At is the due time
	failed  int
	errors  []string
}

// ask starts a load on the entities of a part. Acknowledgements of an earlier load on the same
// entities are kept.
func ask(ctx context.Context, region *sharding.Region[tally], o *shardOrder, before *asking) *asking {
	ctx, stop := context.WithCancel(ctx)
	a := &asking{region: region, notes: newNotes(), stop: stop, began: time.Now()}
	for i := o.Part; i < o.Count; i += o.Parts {
		a.ids = append(a.ids, tallyID(i))
	}
	if before != nil && slices.Equal(before.ids, a.ids) {
		a.acked, a.unknown = before.acked, before.unknown
	} else {
		a.acked, a.unknown = make([]atomic.Int64, len(a.ids)), make([]atomic.Int64, len(a.ids))
	}
	a.ended.Go(func() { a.loop(ctx, o.Rate) })
	return a
}

// loop makes asks when they are due.
func (a *asking) loop(ctx context.Context, rate int) {
	rng := randoms(1)[0]
	each := time.Second / time.Duration(rate)
	asks := context.WithoutCancel(ctx) // asks that were made are awaited
	for n := 0; pause(ctx, loadTick) == nil; {
		for due := a.began.Add(time.Duration(n) * each); !due.After(time.Now()) && a.open.Load() < loadOpen; due = due.Add(each) {
			n++
			i, stored := rng.IntN(len(a.ids)), rng.IntN(2) == 0
			note := a.notes.bytes(n, noteSize)
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

// one asks an entity once.
func (a *asking) one(ctx context.Context, i int, stored bool, note []byte, due time.Time) {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	to := a.region.Ref(a.ids[i])
	var err error
	if stored {
		_, err = eventsourcing.Ask(ctx, to, raise{Note: note})
	} else {
		_, err = eventsourcing.Ask(ctx, to, peek{})
	}
	took := time.Since(due)
	switch {
	case stored && err == nil:
		a.acked[i].Add(1)
	case stored && !eventsourcing.NotDone(err):
		a.unknown[i].Add(1)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.samples = append(a.samples, dataSample{due, took})
	if err != nil {
		if a.failed++; len(a.errors) < loadErrors {
			a.errors = append(a.errors, fmt.Sprintf("%s after %v: %v", a.ids[i], took.Round(time.Millisecond), err))
		}
	}
}

// halt ends the load and waits for the replies. Open is the number of asks that were open.
func (a *asking) halt() shardAnswer {
	open := int(a.open.Load())
	a.stop()
	a.ended.Wait()
	return shardAnswer{Ops: len(a.samples), Took: a.took, Open: open, Failed: a.failed, First: a.errors}
}

// times returns the sorted durations of asks that were due within a time.
func (a *asking) times(from, to time.Time) shardAnswer {
	var took []time.Duration
	for _, s := range a.samples {
		if !s.At.Before(from) && s.At.Before(to) {
			took = append(took, s.Took)
		}
	}
	slices.Sort(took)
	return shardAnswer{Times: took}
}

// check reads all entities with acknowledged commands.
func (a *asking) check(ctx context.Context) (shardAnswer, error) {
	lost := make([]int, dataCallers)
	errs := make([]error, dataCallers)
	var wg sync.WaitGroup
	for caller := range dataCallers {
		wg.Go(func() {
			for i := caller; i < len(a.ids) && errs[caller] == nil; i += dataCallers {
				acked, unknown := a.acked[i].Load(), a.unknown[i].Load()
				if acked+unknown == 0 {
					continue
				}
				limited, cancel := context.WithTimeout(ctx, loadPatience)
				n, err := eventsourcing.Ask(limited, a.region.Ref(a.ids[i]), peek{})
				cancel()
				switch {
				case err != nil:
					errs[caller] = fmt.Errorf("read %s: %w", a.ids[i], err)
				case n < acked:
					lost[caller] += int(acked - n)
				case n > acked+unknown:
					errs[caller] = fmt.Errorf("%s holds %d, of which %d were acknowledged and %d may be stored", a.ids[i], n, acked, unknown)
				}
			}
		})
	}
	wg.Wait()
	var answer shardAnswer
	for _, n := range lost {
		answer.Lost += n
	}
	return answer, firstError(errs)
}

// fill starts the entities of a part.
func (s *shardServer) fill(ctx context.Context, o *shardOrder) (shardAnswer, error) {
	errs := make([]error, dataCallers)
	began := time.Now()
	var wg sync.WaitGroup
	for caller := range dataCallers {
		wg.Go(func() {
			for i := o.Part + caller*o.Parts; i < o.Count && errs[caller] == nil; i += dataCallers * o.Parts {
				limited, cancel := context.WithTimeout(ctx, nodePatience)
				_, errs[caller] = eventsourcing.Ask(limited, s.region.Ref(tallyID(i)), peek{})
				cancel()
			}
		})
	}
	wg.Wait()
	return shardAnswer{At: time.Now(), Took: time.Since(began)}, firstError(errs)
}

// runs counts the entities that run on this node.
func (s *shardServer) runs(ctx context.Context) (a shardAnswer, err error) {
	state, err := s.region.State(ctx)
	for _, at := range state.Shards {
		a.Ops += len(at.Entities)
	}
	return a, err
}

// spread counts the shards of each node.
func (s *shardServer) spread(ctx context.Context) (shardAnswer, error) {
	a := shardAnswer{Homes: map[string]int{}}
	for i := range s.setup.Shards {
		home, known, err := s.region.Home(ctx, sharding.Shard(i))
		if err != nil {
			return a, err
		}
		if known {
			a.Homes[home.Name]++
		}
	}
	a.At = time.Now()
	return a, nil
}
