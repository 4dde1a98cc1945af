// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/journal"
)

// renumber changes the expected number of a write to the stored one.
func renumber(ctx context.Context, j journal.Journal, w journal.Write) journal.Write {
	w.Events = slices.Clone(w.Events)
	w.Expect, _ = j.HighestSequenceNr(ctx, w.ID)
	for i := range w.Events {
		w.Events[i].SequenceNr = w.Expect + 1 + uint64(i)
	}
	return w
}

func writerBugs() []planted {
	return []planted{
		{
			name: "ignores Expect",
			finds: []string{
				"AppendConflict", "TwoIncarnations", "OneWinner", "CrossedCalls", "FenceBlocks", "DeleteKeepsHighest", "ReopenKeepsNumbers", "LateBehindFence",
			},
			plant: func() bug {
				var mu sync.Mutex
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					mu.Lock()
					defer mu.Unlock()
					for _, w := range writes {
						if errs := j.Append(ctx, []journal.Write{renumber(ctx, j, w)}); errs != nil {
							return slices.Repeat(errs, len(writes))
						}
					}
					return nil
				}}
			},
		},
		{
			name:  "conflicts without their numbers",
			finds: []string{"AppendConflict", "FenceBlocks"},
			plant: func() bug {
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					errs := j.Append(ctx, writes)
					for i, err := range errs {
						if errors.Is(err, journal.ErrConflict) {
							errs[i] = journal.ErrConflict
						}
					}
					return errs
				}}
			},
		},
		{
			name:  "the loser of a race is reported as stored",
			finds: []string{"OneWinner", "CrossedCalls", "TwoIncarnations", "Linearizable"},
			plant: func() bug {
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					errs := j.Append(ctx, writes)
					for i, err := range errs {
						if errors.Is(err, journal.ErrConflict) {
							errs[i] = nil
						}
					}
					return errs
				}}
			},
		},
		{
			name:  "the loser of a race has an unknown outcome",
			finds: []string{"OneWinner", "CrossedCalls"},
			plant: func() bug {
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					errs := j.Append(ctx, writes)
					for i, err := range errs {
						if errors.Is(err, journal.ErrConflict) {
							errs[i] = errors.New("serialization failure")
						}
					}
					return errs
				}}
			},
		},
		{
			name:  "locks IDs in the order of the call",
			finds: []string{"CrossedCalls"},
			hangs: true,
			plant: func() bug {
				var mu sync.Mutex
				locks := make(map[string]*sync.Mutex)
				var first sync.WaitGroup // two calls with their first lock
				first.Add(2)
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					for i, w := range writes {
						mu.Lock()
						if locks[w.ID] == nil {
							locks[w.ID] = new(sync.Mutex)
						}
						l := locks[w.ID]
						mu.Unlock()
						l.Lock()
						defer l.Unlock()
						if i == 0 {
							first.Done()
							first.Wait()
						}
					}
					return j.Append(ctx, writes)
				}}
			},
		},
		{
			name:  "hides fences",
			finds: []string{"FenceIsStored", "FenceBlocks", "LateBehindFence"},
			plant: func() bug {
				return bug{replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
					got, err := all(j.Replay(ctx, id, from, to))
					return again(slices.DeleteFunc(got, func(e journal.Event) bool { return e.IsFence() }), err)
				}}
			},
		},
		{
			name:  "fences are acknowledged and not stored",
			finds: []string{"FenceIsStored", "FenceBlocks", "LateBehindFence", "LateBeforeFence"},
			plant: func() bug {
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					if len(writes) == 1 && writes[0].Events[0].IsFence() {
						return nil
					}
					return j.Append(ctx, writes)
				}}
			},
		},
		{
			name:  "a late write is stored after its fence",
			finds: []string{"LateBehindFence"},
			plant: func() bug {
				var next atomic.Bool
				var late journal.Write
				return bug{
					stall: func(d *double) func() {
						next.Store(true)
						return func() {
							d.Faulty.Append(context.Background(), []journal.Write{renumber(context.Background(), d.Faulty, late)})
						}
					},
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						if next.CompareAndSwap(true, false) {
							late = clone(writes)[0]
							return []error{errors.New("connection lost")}
						}
						return j.Append(ctx, writes)
					},
				}
			},
		},
	}
}

// callBugs returns bugs of concurrent calls and of interrupted calls.
func callBugs() []planted {
	return []planted{
		{
			name:  "acknowledges before it is visible",
			finds: []string{"VisibleOnReturn"},
			plant: func() bug {
				var mu sync.Mutex
				var pending []journal.Write
				flush := func(j journal.Journal) {
					mu.Lock()
					defer mu.Unlock()
					j.Append(context.Background(), pending)
					pending = nil
				}
				return bug{
					append: func(_ context.Context, j journal.Journal, writes []journal.Write) []error {
						flush(j)
						mu.Lock()
						defer mu.Unlock()
						pending = clone(writes)
						return nil
					},
					replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
						got, err := all(j.Replay(ctx, id, from, to))
						flush(j)
						return again(got, err)
					},
				}
			},
		},
		{
			name:  "stores units event by event",
			finds: []string{"UnitsUnderReads"},
			plant: func() bug {
				var reads, patience atomic.Int64
				patience.Store(1_000_000)
				return bug{
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						w := writes[0]
						for i := range w.Events {
							part := journal.Write{ID: w.ID, Writer: w.Writer, Expect: w.Expect + uint64(i), Events: w.Events[i : i+1]}
							if errs := j.Append(ctx, []journal.Write{part}); errs != nil {
								return errs
							}
							for n := reads.Load(); reads.Load() < n+10 && patience.Add(-1) > 0; {
								runtime.Gosched()
							}
						}
						return nil
					},
					replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
						reads.Add(1)
						return j.Replay(ctx, id, from, to)
					},
				}
			},
		},
		{
			name:  "the highest number is too low",
			finds: []string{"Linearizable", "VisibleOnReturn", "TCK01Everything"},
			plant: func() bug {
				return bug{highest: func(ctx context.Context, j journal.Journal, id string) (uint64, error) {
					n, err := j.HighestSequenceNr(ctx, id)
					return max(n, 1) - 1, err
				}}
			},
		},
		{
			name:  "a conflict is stored",
			finds: []string{"Linearizable"},
			plant: func() bug {
				var n atomic.Int64
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					errs := j.Append(ctx, writes)
					if w := writes[0]; errs == nil && n.Add(1)%5 == 0 {
						return []error{&journal.ConflictError{ID: w.ID, Expected: w.Expect}}
					}
					return errs
				}}
			},
		},
		{
			name:  "MaxAppends is too low",
			finds: []string{"ParallelAppends"},
			plant: func() bug { return bug{parallel: func() int { return 0 }} },
		},
		{
			name:  "mixes up calls in flight",
			finds: []string{"ParallelAppends"},
			plant: func() bug {
				return bug{
					parallel: func() int { return 2 },
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						writes = clone(writes)
						for i := range writes { // one stream for both calls
							writes[i].ID = strings.Replace(writes[i].ID, "parallel|1", "parallel|0", 1)
						}
						return j.Append(ctx, writes)
					},
				}
			},
		},
		{
			name:  "a canceled write is stored and reported as not sent",
			finds: []string{"Cancelled"},
			plant: func() bug {
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					j.Append(context.WithoutCancel(ctx), writes)
					<-ctx.Done()
					return slices.Repeat([]error{fmt.Errorf("%w: %w", journal.ErrNotSent, ctx.Err())}, len(writes))
				}}
			},
		},
		{
			name:  "a write after its deadline is reported as stored",
			finds: []string{"DeadlinePassed"},
			plant: func() bug {
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					if ctx.Err() != nil {
						return nil
					}
					return j.Append(ctx, writes)
				}}
			},
		},
	}
}
