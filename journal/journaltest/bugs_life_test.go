// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/journal"
)

type (
	deletes = func(ctx context.Context, j journal.Journal, id string, to uint64) error
	lister  = func(ctx context.Context, j journal.IDLister, after string) iter.Seq2[string, error]
)

func deleteBugs() []planted {
	plain := func(d deletes) func() bug { return func() bug { return bug{delete: d} } }
	return []planted{
		{
			name:  "deletes nothing",
			finds: []string{"TCK12Deleted", "TCK13DeletedAfterReplay", "TCK14AllDeleted", "TCK15FromLastDeleted", "TCK16ToInsideDeleted", "TCK17ToLastDeleted", "TCK22AcrossDeleted"},
			plant: plain(func(context.Context, journal.Journal, string, uint64) error { return nil }),
		},
		{
			name:  "deletes one event too many",
			finds: []string{"TCK12Deleted", "TCK15FromLastDeleted", "TCK18FromFirstKept", "TCK22AcrossDeleted", "DeleteIdempotent"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, to uint64) error {
				return j.DeleteTo(ctx, id, min(to, journal.MaxSequenceNr-1)+1)
			}),
		},
		{
			name:  "a deletion decreases the highest number",
			finds: []string{"TCK14AllDeleted", "DeleteKeepsHighest", "DeleteClamped", "ReopenKeepsDeletions"},
			plant: func() bug {
				return bug{highest: func(ctx context.Context, j journal.Journal, id string) (uint64, error) {
					got, err := all(j.Replay(ctx, id, 1, journal.MaxSequenceNr))
					if len(got) == 0 {
						return 0, err
					}
					return got[len(got)-1].SequenceNr, err
				}}
			},
		},
		{
			name:  "a second deletion fails",
			finds: []string{"DeleteIdempotent", "DeleteNeverWritten"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, to uint64) error {
				for _, err := range j.Replay(ctx, id, 1, to) {
					if err == nil {
						return j.DeleteTo(ctx, id, to)
					}
				}
				return errors.New("nothing to delete")
			}),
		},
		{
			name:  "a deletion affects later events",
			finds: []string{"DeleteClamped", "DeleteNeverWritten"},
			plant: func() bug {
				var b bounds
				return bug{
					delete: func(ctx context.Context, j journal.Journal, id string, to uint64) error {
						b.set(id, to)
						return j.DeleteTo(ctx, id, to)
					},
					replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
						return j.Replay(ctx, id, max(from, b.get(id)+1), to)
					},
				}
			},
		},
		{
			name:  "a deletion increases the highest number",
			finds: []string{"DeleteNeverWritten", "DeleteClamped"},
			plant: func() bug {
				var b bounds
				return bug{
					delete: func(ctx context.Context, j journal.Journal, id string, to uint64) error {
						b.set(id, to)
						return j.DeleteTo(ctx, id, to)
					},
					highest: func(ctx context.Context, j journal.Journal, id string) (uint64, error) {
						n, err := j.HighestSequenceNr(ctx, id)
						return max(n, b.get(id)), err
					},
				}
			},
		},
		{
			name:  "deletes at most one batch",
			finds: []string{"DeleteManyEvents"},
			plant: plain(func(ctx context.Context, j journal.Journal, id string, to uint64) error {
				for e, err := range j.Replay(ctx, id, 1, to) {
					return errors.Join(err, j.DeleteTo(ctx, id, min(to, e.SequenceNr+999)))
				}
				return nil
			}),
		},
		{
			name:  "deletes one call late",
			finds: []string{"DeleteWhileAppending"},
			plant: func() bug {
				var last atomic.Uint64
				return bug{delete: func(ctx context.Context, j journal.Journal, id string, to uint64) error {
					return j.DeleteTo(ctx, id, last.Swap(to))
				}}
			},
		},
	}
}

// bounds stores the highest deleted sequence number of each ID.
type bounds struct {
	mu sync.Mutex
	of map[string]uint64
}

func (b *bounds) set(id string, to uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = make(map[string]uint64)
	}
	b.of[id] = max(b.of[id], to)
}

func (b *bounds) get(id string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[id]
}

func listBugs() []planted {
	plain := func(l lister) func() bug { return func() bug { return bug{list: l} } }
	return []planted{
		{
			name:  "lists in an order that ignores case",
			finds: []string{"ListOrder"},
			plant: plain(func(ctx context.Context, j journal.IDLister, after string) iter.Seq2[string, error] {
				return relist(ctx, j, after, func(ids []string) []string {
					slices.SortFunc(ids, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
					return ids
				})
			}),
		},
		{
			name:  "lists the given ID too",
			finds: []string{"ListAfter"},
			plant: plain(func(ctx context.Context, j journal.IDLister, after string) iter.Seq2[string, error] {
				return relist(ctx, j, "", func(ids []string) []string {
					return slices.DeleteFunc(ids, func(id string) bool { return id < after })
				})
			}),
		},
		{
			name:  "lists only IDs with events",
			finds: []string{"ListOnlyWritten"},
			plant: plain(func(ctx context.Context, j journal.IDLister, after string) iter.Seq2[string, error] {
				return relist(ctx, j, after, func(ids []string) []string {
					return slices.DeleteFunc(ids, func(id string) bool { return id == "deleted" })
				})
			}),
		},
		{
			name:  "lists no IDs of Refold itself",
			finds: []string{"ListReserved"},
			plant: plain(func(ctx context.Context, j journal.IDLister, after string) iter.Seq2[string, error] {
				return relist(ctx, j, after, func(ids []string) []string { return slices.DeleteFunc(ids, journal.IsReserved) })
			}),
		},
		{
			name:  "lists one page",
			finds: []string{"ListManyIDs"},
			plant: plain(func(ctx context.Context, j journal.IDLister, after string) iter.Seq2[string, error] {
				return relist(ctx, j, after, func(ids []string) []string { return ids[:min(len(ids), 1000)] })
			}),
		},
		{
			name:  "holds a lock while the body of a list runs",
			finds: []string{"CallsInList"},
			hangs: true,
			plant: func() bug {
				var mu sync.Mutex
				return bug{
					list: func(ctx context.Context, j journal.IDLister, after string) iter.Seq2[string, error] {
						return func(yield func(string, error) bool) {
							mu.Lock()
							defer mu.Unlock()
							j.PersistenceIDs(ctx, after)(yield)
						}
					},
					append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
						mu.Lock()
						defer mu.Unlock()
						return j.Append(ctx, writes)
					},
				}
			},
		},
	}
}

// relist changes the output of a list.
func relist(ctx context.Context, j journal.IDLister, after string, change func(ids []string) []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var ids []string
		for id, err := range j.PersistenceIDs(ctx, after) {
			if err != nil {
				yield("", err)
				return
			}
			ids = append(ids, id)
		}
		for _, id := range change(ids) {
			if !yield(id, nil) {
				return
			}
		}
	}
}

// lifeBugs returns bugs that appear when a journal is closed or opened again.
func lifeBugs() []planted {
	survives := func(s func(id string, events []journal.Event, deleted int) ([]journal.Event, int)) func() bug {
		return func() bug { return bug{survive: s} }
	}
	return []planted{
		{
			name:  "is local to one node",
			finds: []string{"Local"},
			plant: func() bug { return bug{local: true} },
		},
		{
			name:  "a second Close fails",
			finds: []string{"CloseTwice"},
			plant: func() bug {
				var closed atomic.Bool
				return bug{close: func(j journal.Journal) error {
					if closed.Swap(true) {
						return journal.ErrClosed
					}
					return j.Close()
				}}
			},
		},
		{
			name:  "a closed journal works",
			finds: []string{"ClosedRefuses", "CloseInReplay", "QueryClosed"},
			plant: func() bug { return bug{close: func(journal.Journal) error { return nil }} },
		},
		{
			name:  "unknown outcomes when closed",
			finds: []string{"ClosedRefuses", "CloseWhileBusy"},
			plant: func() bug {
				return bug{append: func(ctx context.Context, j journal.Journal, writes []journal.Write) []error {
					errs := j.Append(ctx, writes)
					for i, err := range errs {
						if errors.Is(err, journal.ErrClosed) {
							errs[i] = errors.New("use of closed connection")
						}
					}
					return errs
				}}
			},
		},
		{
			name:  "Close waits for the body of a loop",
			finds: []string{"CloseInReplay"},
			hangs: true,
			plant: func() bug {
				var replays sync.WaitGroup
				return bug{
					replay: func(ctx context.Context, j journal.Journal, id string, from, to uint64) events {
						return func(yield func(journal.Event, error) bool) {
							replays.Add(1)
							defer replays.Done()
							j.Replay(ctx, id, from, to)(yield)
						}
					},
					close: func(j journal.Journal) error {
						replays.Wait()
						return j.Close()
					},
				}
			},
		},
		{
			name:  "a restart loses the last event",
			finds: []string{"ReopenKeepsEvents", "ReopenKeepsDeletions", "ReopenKeepsNumbers", "ReopenWhileAppending"},
			plant: survives(func(_ string, events []journal.Event, deleted int) ([]journal.Event, int) {
				return events[:len(events)-1], deleted
			}),
		},
		{
			name:  "a restart loses tags",
			finds: []string{"ReopenKeepsEvents"},
			plant: survives(func(_ string, events []journal.Event, deleted int) ([]journal.Event, int) {
				for i := range events {
					events[i].Tags = nil
				}
				return events, deleted
			}),
		},
		{
			name:  "a restart restores deleted events",
			finds: []string{"ReopenKeepsDeletions", "ReopenKeepsNumbers"},
			plant: survives(func(_ string, events []journal.Event, _ int) ([]journal.Event, int) { return events, 0 }),
		},
		{
			name:  "a restart loses the highest number after a deletion",
			finds: []string{"ReopenKeepsDeletions", "ReopenKeepsNumbers"},
			plant: survives(func(_ string, events []journal.Event, deleted int) ([]journal.Event, int) {
				if deleted == len(events) {
					return nil, 0
				}
				return events, deleted
			}),
		},
		{
			name:  "a restart loses fences",
			finds: []string{"ReopenKeepsNumbers"},
			plant: survives(func(_ string, events []journal.Event, deleted int) ([]journal.Event, int) {
				if len(events) > deleted && events[len(events)-1].IsFence() {
					return events[:len(events)-1], deleted
				}
				return events, deleted
			}),
		},
	}
}
