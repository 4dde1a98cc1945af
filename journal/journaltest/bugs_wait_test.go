// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/refold-io/refold/journal"
)

// queryStateBugs returns bugs with events that were deleted, not stored, stored before a restart,
// or stored through another handle.
func queryStateBugs() []planted {
	return []planted{
		{
			name:  "finds deleted events",
			finds: []string{"QueryDeleted", "QueryReopen"},
			plant: func() bug {
				var b bounds
				return bug{
					delete: func(_ context.Context, _ journal.Journal, id string, to uint64) error {
						b.set(id, to)
						return nil
					},
					replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) iter.Seq2[journal.Event, error] {
						return j.Replay(ctx, id, max(from, b.get(id)+1), to)
					},
				}
			},
		},
		{
			name:  "a deletion moves the offsets",
			finds: []string{"QueryDeleted"},
			plant: func() bug {
				return bug{
					query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
						var page journal.Page
						n := 0
						for e, err := range everything(ctx, j) {
							if err != nil {
								return page, err
							}
							n++
							if e.Offset = nth(n); e.Offset.Compare(after) > 0 && q.Matches(e.ID, e.Tags) {
								page.Events = append(page.Events, e)
							}
						}
						page.Next = max(after, nth(n))
						return page, nil
					},
					end: func(ctx context.Context, j journal.Querier) (journal.Offset, error) {
						n := 0
						for _, err := range everything(ctx, j) {
							if err != nil {
								return "", err
							}
							n++
						}
						return nth(n), nil
					},
				}
			},
		},
		{
			name:  "finds fences",
			finds: []string{"QueryFences"},
			plant: func() bug {
				return bug{
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						writes = clone(writes)
						for _, w := range writes {
							for i := range w.Events {
								if w.Events[i].IsFence() {
									w.Events[i].Manifest = "fence"
								}
							}
						}
						return j.Append(ctx, writes)
					},
				}
			},
		},
		{
			name:  "a fence hides later events of its page",
			finds: []string{"QueryFences"},
			hangs: true,
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				for i := 1; i < len(p.Events); i++ {
					if a, b := &p.Events[i-1], &p.Events[i]; a.ID == b.ID && b.SequenceNr != a.SequenceNr+1 {
						p.Events = p.Events[:i]
					}
				}
				return p, err
			}),
		},
		{
			name:  "finds events that were not stored",
			finds: []string{"QueryOnlyStored"},
			plant: func() bug {
				var mu sync.Mutex
				var failed []journal.Envelope
				return bug{
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						errs := j.Append(ctx, writes)
						for i, err := range errs {
							if err != nil {
								mu.Lock()
								failed = append(failed, journal.Envelope{ID: writes[i].ID, Event: writes[i].Events[0]})
								mu.Unlock()
							}
						}
						return errs
					},
					query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
						p, err := j.Query(ctx, q, after)
						mu.Lock()
						defer mu.Unlock()
						for i := range p.Events { // at the place of another event
							if len(failed) > 0 && q.Matches(failed[0].ID, failed[0].Tags) {
								p.Events[i].ID, p.Events[i].Event = failed[0].ID, failed[0].Event
								break
							}
						}
						return p, err
					},
				}
			},
		},
		{
			name:  "a restart makes a new order",
			finds: []string{"QueryReopen"},
			hangs: true, // waits for events that the query does not find
			plant: func() bug {
				return bug{survive: func(_ string, events []journal.Event, deleted int) ([]journal.Event, int) { return events, deleted }}
			},
		},
		{
			name:  "each handle has its own order",
			finds: []string{"QueryAttached"},
			plant: func() bug {
				return bug{attach: func(d *double) journal.Journal {
					return newDoubleOn(d.mem.mem, bug{query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
						p, err := j.Query(ctx, q, after)
						swap(p.Events, func(a, b string) bool { return a != b })
						return p, err
					}})
				}}
			},
		},
		{
			name:  "an ended context ends a query",
			finds: []string{"QueryCancelled"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				if ctx.Err() == nil {
					return j.Query(ctx, q, after)
				}
				return journal.Page{Next: after}, nil
			}),
		},
		{
			name:  "a query omits the cause of its ended context",
			finds: []string{"QueryCancelled"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				if ctx.Err() != nil {
					return journal.Page{}, ctx.Err()
				}
				return j.Query(ctx, q, after)
			}),
		},
	}
}

func nth(n int) journal.Offset { return journal.Offset(fmt.Sprintf("nth-%05d", n)) }

type awaits = func(ctx context.Context, j journal.Querier, after journal.Offset) error

// waitBugs returns bugs of Await.
func waitBugs() []planted {
	waits := func(a awaits) func() bug { return func() bug { return bug{await: a} } }
	return []planted{
		{
			name:  "always waits for the next append",
			finds: []string{"AwaitThere"},
			hangs: true,
			plant: waits(func(ctx context.Context, j journal.Querier, _ journal.Offset) error {
				end, err := j.End(ctx)
				if err != nil {
					return err
				}
				return j.Await(ctx, end)
			}),
		},
		{
			name:  "never wakes",
			finds: []string{"AwaitThere", "AwaitAppend", "AwaitAttached"},
			hangs: true,
			plant: waits(func(ctx context.Context, _ journal.Querier, _ journal.Offset) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}),
		},
		{
			name:  "wakes one of several",
			finds: []string{"AwaitAppend"},
			hangs: true,
			plant: func() bug {
				token := make(chan struct{}, 1)
				return bug{
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						defer func() {
							select {
							case token <- struct{}{}:
							default:
							}
						}()
						return j.Append(ctx, writes)
					},
					await: func(ctx context.Context, _ journal.Querier, _ journal.Offset) error {
						select {
						case <-token:
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					},
				}
			},
		},
		{
			name:  "wakes for its own appends only",
			finds: []string{"AwaitAttached"},
			hangs: true,
			plant: func() bug {
				news := make(chan struct{}, 1000)
				return bug{
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						defer func() { news <- struct{}{} }()
						return j.Append(ctx, writes)
					},
					await: func(ctx context.Context, _ journal.Querier, _ journal.Offset) error {
						select {
						case <-news:
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					},
					attach: func(d *double) journal.Journal { return newDoubleOn(d.mem.mem, bug{}) },
				}
			},
		},
		{
			name:  "Await ignores its context",
			finds: []string{"AwaitCancelled"},
			hangs: true,
			plant: waits(func(ctx context.Context, j journal.Querier, after journal.Offset) error {
				return j.Await(context.WithoutCancel(ctx), after)
			}),
		},
		{
			name:  "Await omits the cause of its ended context",
			finds: []string{"AwaitCancelled"},
			plant: waits(func(ctx context.Context, j journal.Querier, after journal.Offset) error {
				err := j.Await(ctx, after)
				if err != nil && ctx.Err() != nil {
					return ctx.Err()
				}
				return err
			}),
		},
		{
			name:  "Close does not end an Await",
			finds: []string{"AwaitClosed"},
			hangs: true,
			plant: func() bug {
				return bug{await: func(ctx context.Context, j journal.Querier, after journal.Offset) error {
					if h, ok := j.(*handle); ok {
						j = h.mem
					}
					return j.Await(ctx, after)
				}}
			},
		},
		{
			name:  "Await returns nil when closed",
			finds: []string{"AwaitClosed", "QueryClosed"},
			hangs: true,
			plant: waits(func(ctx context.Context, j journal.Querier, after journal.Offset) error {
				err := j.Await(ctx, after)
				if err != nil && ctx.Err() == nil {
					return nil
				}
				return err
			}),
		},
		{
			name:  "Await does not wait",
			finds: []string{"AwaitIdle"},
			plant: waits(func(ctx context.Context, _ journal.Querier, _ journal.Offset) error { return context.Cause(ctx) }),
		},
		{
			name:  "the highest number leaves out a fence",
			finds: []string{"QueryLiveFence"},
			hangs: true,
			plant: func() bug {
				return bug{highest: func(ctx context.Context, j journal.Journal, id string) (uint64, error) {
					n, err := j.HighestSequenceNr(ctx, id)
					for e, failed := range j.Replay(ctx, id, n, n) {
						if failed == nil && e.IsFence() {
							n--
						}
					}
					return n, err
				}}
			},
		},
		{
			name:  "the order of live readers differs",
			finds: []string{"QueryLiveReaders"},
			plant: func() bug {
				var mu sync.Mutex
				readers := 0
				return bug{query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
					p, err := j.Query(ctx, q, after)
					mu.Lock()
					defer mu.Unlock()
					if readers++; readers%3 == 0 && len(p.Events) > 3 {
						p.Events = slices.Clone(p.Events)
						swap(p.Events, func(a, b string) bool { return a != b })
					}
					return p, err
				}}
			},
		},
	}
}
