// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/refold-io/refold/journal"
)

func deleteChecks() []check {
	return []check{
		{"DeleteIdempotent", "a deletion may be repeated, also with lower numbers", base, func(f *fixture) {
			w := write("idempotent", "w", 0, 6)
			f.store(w)
			for _, c := range []struct {
				to      uint64
				deleted int
			}{{0, 0}, {1, 1}, {1, 1}, {3, 3}, {3, 3}, {2, 3}, {0, 3}, {5, 5}, {1, 5}, {6, 6}, {6, 6}, {3, 6}} {
				f.deleteTo(w.ID, c.to)
				f.wantHistory(w.ID, c.deleted, w)
			}
		}},
		{"DeleteClamped", "a deletion beyond the highest number does not affect later events", base, func(f *fixture) {
			for _, to := range []uint64{4, 1000, maxSeq} {
				w, next := write("clamped", "w", 0, 3), write("clamped", "w", 3, 2)
				w.ID, next.ID = journal.JoinID(w.ID, brief([]uint64{to})), journal.JoinID(w.ID, brief([]uint64{to}))
				f.store(w)
				f.deleteTo(w.ID, to)
				f.wantHistory(w.ID, 3, w)
				f.store(next)
				f.wantHistory(w.ID, 3, w, next)
			}
		}},
		{"DeleteKeepsHighest", "deleted numbers are not used again", base, func(f *fixture) {
			const id = "keeps highest"
			var writes []journal.Write
			for n := range uint64(5) {
				f.wantHighest(id, 2*n)
				again := write(id, "w", 0, 1)
				if n > 0 {
					f.wantConflict(f.append1(again), again, 2*n)
				}
				w := write(id, "w", 2*n, 2)
				f.store(w)
				writes = append(writes, w)
				f.deleteTo(id, maxSeq)
				f.wantHistory(id, 2*len(writes), writes...)
			}
		}},
		{"DeleteNeverWritten", "a deletion of an ID never written does nothing", base, func(f *fixture) {
			const id = "never written"
			neighbour := write("never written 2", "w", 0, 2)
			f.store(neighbour)
			for _, to := range []uint64{0, 1, 7, maxSeq} {
				f.deleteTo(id, to)
				f.wantHistory(id, 0)
			}
			f.wantHistory(neighbour.ID, 0, neighbour)
			first := write(id, "w", 0, 2)
			f.store(first)
			f.wantHistory(id, 0, first)
		}},
		{"DeleteManyEvents", "one call deletes any number of events", base, func(f *fixture) {
			// The first deletion exceeds a page.
			const id, total = "many", 2*pageRecords + 200
			w := write(id, "w", 0, total)
			f.store(w)
			for _, to := range []int{1, 2, pageRecords, pageRecords + 1, 2*pageRecords + 100, 2*pageRecords + 101} {
				f.deleteTo(id, uint64(to)) //nolint:gosec // small
				f.wantHistory(id, to, w)
			}
			next := write(id, "w", total, 3)
			f.store(next)
			f.deleteTo(id, total)
			f.wantHistory(id, total, w, next)
		}},
		{"DeleteWhileAppending", "a deletion during appends deletes exactly its range", base, func(f *fixture) {
			const id, total = "while appending", 200
			var highest atomic.Uint64
			f.together("a concurrent Append or DeleteTo", 3, func(k int) {
				if k == 0 {
					defer highest.Store(total)
					for n := range uint64(total) {
						if !f.appended(write(id, "w", n, 1)) {
							return
						}
						highest.Store(n + 1)
					}
					return
				}
				for highest.Load() < total {
					to := highest.Load() / 2
					f.deleteTo(id, to)
					events := f.replay(id, 1, maxSeq)
					deleted := highest.Load() / 2 // an upper bound
					for i, e := range events {
						if i == 0 && e.SequenceNr <= to || i > 0 && e.SequenceNr != events[i-1].SequenceNr+1 && e.SequenceNr > deleted+1 {
							f.Errorf("after a deletion up to %d, with concurrent deletions up to %d, Replay yields %s", to, deleted, brief(numbers(events)))
							return
						}
					}
				}
			})
			f.deleteTo(id, total/2)
			f.wantHistory(id, total/2, write(id, "w", 0, total))
		}},
	}
}

func gapless(events []journal.Event) bool {
	for i := range events {
		if events[i].SequenceNr != events[0].SequenceNr+uint64(i) {
			return false
		}
	}
	return true
}

func listerChecks() []check {
	return []check{
		{"ListOrder", "IDs are listed in bytewise order", lists, func(f *fixture) {
			f.wantIDs("", nil)
			f.wantIDs("", f.storeIDs(oddIDs()))
		}},
		{"ListAfter", "a list begins after the given ID, which need not exist", lists, func(f *fixture) {
			ids := f.storeIDs(oddIDs())
			for i, id := range ids {
				f.wantIDs(id, ids[i+1:])
			}
			for _, after := range []string{"\x00", "ab", "a\x00", "account|0", "z", "\xff", "b\xff"} {
				i, found := slices.BinarySearch(ids, after)
				if found {
					i++
				}
				f.wantIDs(after, ids[i:])
			}
		}},
		{"ListOnlyWritten", "an ID is listed if it has or had a record", lists, func(f *fixture) {
			f.storeIDs([]string{"deleted", "kept"})
			f.deleteTo("deleted", maxSeq)
			f.deleteTo("only deleted", maxSeq)
			f.highest("only asked for")
			f.replay("only replayed", 1, maxSeq)
			rejected := write("rejected", "w", 0, 1)
			rejected.Events[0].SequenceNr = 2
			f.appendAll(f.ctx, write("conflicting", "w", 1, 1), rejected, write("conflicting", "w", 0, 1))
			f.wantIDs("", []string{"deleted", "kept"})
		}},
		{"ListReserved", "PersistenceIDs also lists the IDs of records of Refold itself", lists, func(f *fixture) {
			f.wantIDs("", f.storeIDs([]string{"a", journal.ReservedPrefix + "own|1", "z"}))
		}},
		{"ListManyIDs", "PersistenceIDs lists any number of IDs", lists, func(f *fixture) {
			var ids []string
			for n := range 2500 {
				ids = append(ids, fmt.Sprintf("many|%d", n*7919%2500))
			}
			sorted := f.storeIDs(ids)
			f.wantIDs("", sorted)
			f.wantIDs(sorted[999], sorted[1000:])
		}},
		{"CallsInList", "the body of a PersistenceIDs loop may call the journal or leave the loop", lists, func(f *fixture) {
			ids := f.storeIDs([]string{"a", "b", "c"})
			l := as[journal.IDLister](f)
			f.within("a call in the body of PersistenceIDs", func() {
				for id, err := range l.PersistenceIDs(f.ctx, "") {
					if err == nil {
						err = f.append1(write(id, "w", 1, 1))
					}
					if err != nil {
						f.Errorf("Append in a list: %v", err)
					}
					f.wantIDs(id, ids[slices.Index(ids, id)+1:])
					f.deleteTo(id, 1)
				}
				for range 1000 {
					for _, err := range l.PersistenceIDs(f.ctx, "") {
						if err != nil {
							f.Errorf("PersistenceIDs: %v", err)
						}
						break
					}
				}
			})
			ctx, cancel := context.WithCancel(f.ctx)
			cancel()
			if got, err := f.collectIDs(ctx, ""); !errors.Is(err, context.Canceled) && (err != nil || len(got) != len(ids)) {
				f.Errorf("PersistenceIDs of 3 IDs, canceled, yields %q and %v, want context.Canceled", got, err)
			}
		}},
	}
}

func (f *fixture) collectIDs(ctx context.Context, after string) (ids []string, failed error) {
	f.Helper()
	for id, err := range as[journal.IDLister](f).PersistenceIDs(ctx, after) {
		if failed != nil {
			f.Errorf("PersistenceIDs continues after the error %v", failed)
			break
		}
		if failed = err; err == nil {
			ids = append(ids, id)
		}
	}
	return ids, failed
}

func (f *fixture) wantIDs(after string, want []string) {
	f.Helper()
	if got, err := f.collectIDs(f.ctx, after); err != nil || !slices.Equal(got, want) {
		f.Errorf("PersistenceIDs after %.40q yields %.60q and %v, want %.60q", after, got, err, want)
	}
}

// storeIDs stores an event for each ID and returns the IDs in order.
func (f *fixture) storeIDs(ids []string) []string {
	f.Helper()
	writes := make([]journal.Write, len(ids))
	for i, id := range ids {
		writes[i] = write(id, "w", 0, 1)
	}
	f.store(writes...)
	return slices.Sorted(slices.Values(ids))
}
