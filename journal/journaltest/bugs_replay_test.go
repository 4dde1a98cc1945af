// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"iter"
	"sync"

	"github.com/refold-io/refold/journal"
)

type (
	events = iter.Seq2[journal.Event, error]
	replay = func(ctx context.Context, j journal.Journal, id string, from, to uint64) events
)

func replayBugs() []planted {
	plain := func(r replay) func() bug { return func() bug { return bug{replay: r} } }
	return []planted{
		{
			name:  "lower bound excluded",
			finds: []string{"TCK01Everything", "TCK02LowerBound", "TCK05BothBounds", "TCK06BoundsAndCount", "TCK07EqualBounds", "TCK08CountOne"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return j.Replay(ctx, id, from+1, to)
			}),
		},
		{
			name:  "upper bound ignored",
			finds: []string{"TCK03UpperBound", "TCK05BothBounds", "TCK07EqualBounds", "TCK16ToInsideDeleted", "TCK17ToLastDeleted", "TCK22AcrossDeleted"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, _ uint64) events {
				return j.Replay(ctx, id, from, journal.MaxSequenceNr)
			}),
		},
		{
			name:  "continues when the loop is left",
			finds: []string{"TCK04Count", "TCK06BoundsAndCount", "TCK08CountOne"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return func(yield func(journal.Event, error) bool) {
					for e, err := range j.Replay(ctx, id, from, to) {
						yield(e, err)
					}
				}
			}),
		},
		{
			name:  "inverted bounds swapped",
			finds: []string{"TCK10InvertedBounds", "ReplayLiteralBounds"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return j.Replay(ctx, id, min(from, to), max(from, to))
			}),
		},
		{
			name:  "no upper bound for 0",
			finds: []string{"ReplayLiteralBounds"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				if to == 0 {
					to = journal.MaxSequenceNr
				}
				return j.Replay(ctx, id, from, to)
			}),
		},
		{
			name:  "nondeterministic order",
			finds: []string{"TCK01Everything", "ReplayPages", "AppendManyIDs"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				got, err := all(j.Replay(ctx, id, from, to))
				if n := len(got); n > 1 {
					got[n-1], got[n-2] = got[n-2], got[n-1]
				}
				return again(got, err)
			}),
		},
		{
			name:  "sequence can be used once",
			finds: []string{"ReplayTwice"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return func(yield func(journal.Event, error) bool) {
					for e, err := range j.Replay(ctx, id, from, to) {
						if from = e.SequenceNr + 1; !yield(e, err) {
							return
						}
					}
				}
			}),
		},
		{
			name:  "an event is lost between pages",
			finds: []string{"ReplayPages"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return paged(ctx, j, id, from, to, 1000, func(from uint64) (uint64, bool) { return from + 1, true })
			}),
		},
		{
			name:  "ends after the first large page",
			finds: []string{"ReplayLargePages"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return func(yield func(journal.Event, error) bool) {
					size := 0
					for e, err := range j.Replay(ctx, id, from, to) {
						if size += len(e.Payload); size > 3<<20 || !yield(e, err) {
							return
						}
					}
				}
			}),
		},
		{
			name:  "reads all at once",
			finds: []string{"ReplayReadAhead"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return func(yield func(journal.Event, error) bool) {
					again(all(j.Replay(ctx, id, from, to)))(yield)
				}
			}),
		},
		{
			name:  "swallows read errors",
			finds: []string{"ReplayCancelled", "DeadlinePassed", "InvalidIDs", "ClosedRefuses", "CloseInReplay"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return func(yield func(journal.Event, error) bool) {
					for e, err := range j.Replay(ctx, id, from, to) {
						if err != nil || !yield(e, nil) {
							return
						}
					}
				}
			}),
		},
		{
			name:  "continues after an error",
			finds: []string{"ReplayCancelled"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return func(yield func(journal.Event, error) bool) {
					for e, err := range j.Replay(ctx, id, from, to) {
						if !yield(e, err) || err != nil && !yield(e, nil) {
							return
						}
					}
				}
			}),
		},
		{
			name:  "leaks a goroutine when abandoned",
			finds: []string{"ReplayAbandoned"},
			alone: true,
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				return func(yield func(journal.Event, error) bool) {
					ch := make(chan journal.Event)
					go func() {
						defer close(ch)
						got, _ := all(j.Replay(ctx, id, from, to))
						for _, e := range got {
							select {
							case ch <- e:
							case <-ctx.Done():
								return
							}
						}
					}()
					for e := range ch {
						if !yield(e, nil) {
							return
						}
					}
				}
			}),
		},
		{
			name:  "ends after a concurrent append",
			finds: []string{"PrefixWhileAppending"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
				before, _ := j.HighestSequenceNr(ctx, id)
				return paged(ctx, j, id, from, to, 1000, func(from uint64) (uint64, bool) {
					now, _ := j.HighestSequenceNr(ctx, id)
					return from, now == before
				})
			}),
		},
		{
			name:  "holds a lock while the body runs",
			finds: []string{"AppendInReplay", "OthersInReplay", "ReplayInReplay"},
			hangs: true,
			plant: func() bug {
				var mu sync.Mutex
				return bug{
					replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
						return func(yield func(journal.Event, error) bool) {
							mu.Lock()
							defer mu.Unlock()
							j.Replay(ctx, id, from, to)(yield)
						}
					},
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						mu.Lock()
						defer mu.Unlock()
						return j.Append(ctx, writes)
					},
					delete: func(ctx context.Context, j journal.Journal, id string, to uint64) error {
						mu.Lock()
						defer mu.Unlock()
						return j.DeleteTo(ctx, id, to)
					},
				}
			},
		},
		{
			name:  "holds one of a few connections while the body runs",
			finds: []string{"ReplayInReplay"},
			hangs: true,
			plant: func() bug {
				pool := make(chan struct{}, 10)
				return bug{replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
					return func(yield func(journal.Event, error) bool) {
						pool <- struct{}{}
						defer func() { <-pool }()
						j.Replay(ctx, id, from, to)(yield)
					}
				}}
			},
		},
	}
}

// paged replays in pages of size events. After each page, between returns the start of the next
// page and whether to continue.
func paged(ctx context.Context, j journal.Journal, id string, from, to uint64, size int, between func(from uint64) (uint64, bool)) events {
	return func(yield func(journal.Event, error) bool) {
		from := from
		for more := true; more; {
			n := 0
			for e, err := range j.Replay(ctx, id, from, to) {
				if !yield(e, err) {
					return
				}
				if n++; n == size {
					from = e.SequenceNr + 1
					break
				}
			}
			if more = n == size; more {
				from, more = between(from)
			}
		}
	}
}
