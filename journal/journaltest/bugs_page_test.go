// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/journal"
)

// pageBugs returns bugs of pages and of resumed reads.
func pageBugs() []planted {
	return []planted{
		{
			name:  "returns two pages as one",
			finds: []string{"QueryPages"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				first, err := j.Query(ctx, q, after)
				if err != nil || !first.More {
					return first, err
				}
				second, err := j.Query(ctx, q, first.Next)
				second.Events = append(first.Events, second.Events...)
				return second, err
			}),
		},
		{
			name:  "does not limit the bytes of a page",
			finds: []string{"QueryLargePages"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				for err == nil && p.More && len(p.Events) < 500 {
					var next journal.Page
					next, err = j.Query(ctx, q, p.Next)
					next.Events = append(p.Events, next.Events...)
					p = next
				}
				return p, err
			}),
		},
		{
			name:  "drops the last event of a full page",
			finds: []string{"QueryPages"},
			hangs: true, // waits for events that the query does not find
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				if p.More && len(p.Events) > 0 {
					p.Events = p.Events[:len(p.Events)-1]
				}
				return p, err
			}),
		},
		{
			name:  "never sets More",
			finds: []string{"QueryPages", "QueryLargePages", "QueryRareTag"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				p.More = false
				return p, err
			}),
		},
		{
			name:  "treats an empty page as the end",
			finds: []string{"QueryRareTag"},
			hangs: true,
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				if err == nil && len(p.Events) == 0 && p.More {
					p.More = false
					p.Next, err = j.End(ctx)
				}
				return p, err
			}),
		},
		{
			name:  "a page without events does not advance Next",
			finds: []string{"QueryRareTag"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				if len(p.Events) == 0 {
					p.Next = after
				}
				return p, err
			}),
		},
		{
			name:  "reads from an offset instead of after it",
			finds: []string{"QueryResume", "QueryPages", "QueryLiveReaders"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				before := journal.Offset("")
				for e, err := range everything(ctx, j) {
					if err != nil {
						return journal.Page{}, err
					}
					if e.Offset.Compare(after) >= 0 {
						break
					}
					before = e.Offset
				}
				return j.Query(ctx, q, before)
			}),
		},
		{
			name:  "resumes after the whole write of an offset",
			finds: []string{"QueryResume"},
			hangs: true,
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				for last, err := range everything(ctx, j) {
					if err != nil {
						return journal.Page{}, err
					}
					for last.Offset == after && len(p.Events) > 0 && p.Events[0].ID == last.ID && p.Events[0].SequenceNr == last.SequenceNr+1 {
						last, p.Events = p.Events[0], p.Events[1:]
					}
				}
				return p, err
			}),
		},
		{
			name:  "skips the first event after an empty page",
			finds: []string{"QueryEmptyPage", "QueryEnd"},
			hangs: true,
			plant: func() bug {
				var swallow atomic.Bool
				return bug{query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
					p, err := j.Query(ctx, q, after)
					if len(p.Events) == 0 {
						swallow.Store(true)
					} else if swallow.Swap(false) {
						p.Events = p.Events[1:]
					}
					return p, err
				}}
			},
		},
		{
			name:  "Next of an empty page is the start",
			finds: []string{"QueryEmptyPage", "QueryEnd"},
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				if len(p.Events) == 0 {
					p.Next = ""
				}
				return p, err
			}),
		},
		{
			name:  "reuses the buffer of the previous page",
			finds: []string{"QueryPageIsKept"},
			plant: func() bug {
				var mu sync.Mutex
				var buffer []journal.Envelope
				return bug{query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
					p, err := j.Query(ctx, q, after)
					mu.Lock()
					defer mu.Unlock()
					buffer = append(buffer[:0], p.Events...)
					p.Events = buffer
					return p, err
				}}
			},
		},
		{
			name:  "caches pages",
			finds: []string{"QueryPageIsKept"},
			plant: func() bug {
				var mu sync.Mutex
				cache := make(map[string]journal.Page)
				return bug{query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
					mu.Lock()
					defer mu.Unlock()
					key := fmt.Sprint(q, after)
					if p, ok := cache[key]; ok && p.Next != "" {
						return p, nil
					}
					p, err := j.Query(ctx, q, after)
					if err == nil && len(p.Events) > 0 {
						cache[key] = p
					}
					return p, err
				}}
			},
		},
		{
			name:  "End returns the start",
			finds: []string{"QueryEnd", "QueryCurrent"},
			plant: func() bug {
				return bug{end: func(context.Context, journal.Querier) (journal.Offset, error) { return "", nil }}
			},
		},
		{
			name:  "End is before the last event",
			finds: []string{"QueryEnd"},
			plant: func() bug {
				return bug{end: func(ctx context.Context, j journal.Querier) (journal.Offset, error) {
					var offsets []journal.Offset
					for e, err := range everything(ctx, j) {
						if err != nil {
							return "", err
						}
						offsets = append(offsets, e.Offset)
					}
					if len(offsets) < 2 {
						return "", nil
					}
					return offsets[len(offsets)-2], nil
				}}
			},
		},
		{
			name:  "End is after events that do not exist yet",
			finds: []string{"QueryCurrent"},
			hangs: true, // waits for events that the query does not find
			plant: func() bug {
				return bug{end: func(context.Context, journal.Querier) (journal.Offset, error) { return "mem-999999", nil }}
			},
		},
		{
			name:  "skips events that commit late",
			finds: []string{"QueryLiveReaders", "QueryPages"},
			hangs: true,
			plant: func() bug {
				var seen sync.Map // the first query that finds an event skips it
				return bug{query: func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
					p, err := j.Query(ctx, q, after)
					p.Events = slices.DeleteFunc(p.Events, func(e journal.Envelope) bool {
						_, again := seen.LoadOrStore(e.Offset, true)
						return !again && journal.SliceOf(string(e.Offset))%10 == 0
					})
					return p, err
				}}
			},
		},
		{
			name:  "assigns offsets before the commit",
			finds: []string{"QueryLateCommit"},
			hangs: true,
			plant: queries(func(ctx context.Context, j journal.Querier, q journal.Criteria, after journal.Offset) (journal.Page, error) {
				p, err := j.Query(ctx, q, after)
				p.Events = slices.DeleteFunc(p.Events, func(e journal.Envelope) bool { return e.ID == "late|1" && after != "" })
				return p, err
			}),
		},
	}
}

// everything yields all events of a querier.
func everything(ctx context.Context, j journal.Querier) func(yield func(journal.Envelope, error) bool) {
	return func(yield func(journal.Envelope, error) bool) {
		for after, more := journal.Offset(""), true; more; {
			p, err := j.Query(ctx, journal.Criteria{}, after)
			if err != nil {
				yield(journal.Envelope{}, err)
				return
			}
			for _, e := range p.Events {
				if !yield(e, nil) {
					return
				}
			}
			after, more = p.Next, p.More
		}
	}
}
