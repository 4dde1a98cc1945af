// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/journal"
)

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
		{"ListManyIDs", "a list has no limit", lists, func(f *fixture) {
			var ids []string
			for n := range 2500 {
				ids = append(ids, fmt.Sprintf("many|%d", n*7919%2500))
			}
			sorted := f.storeIDs(ids)
			f.wantIDs("", sorted)
			f.wantIDs(sorted[999], sorted[1000:])
		}},
		{"CallsInList", "the body of a list may call the journal, or leave", lists, func(f *fixture) {
			ids := f.storeIDs([]string{"a", "b", "c"})
			l, ok := journal.As[journal.IDLister](f.j)
			if !ok {
				f.Fatalf("%T does not implement journal.IDLister any more", f.j)
			}
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
				f.Errorf("PersistenceIDs of 3 IDs, cancelled, yields %q and %v, want context.Canceled", got, err)
			}
		}},
	}
}

// list returns the IDs after the given one.
func (f *fixture) list(after string) []string {
	f.Helper()
	ids, err := f.collectIDs(f.ctx, after)
	if err != nil {
		f.Errorf("PersistenceIDs: %v", err)
	}
	return ids
}

func (f *fixture) collectIDs(ctx context.Context, after string) (ids []string, failed error) {
	f.Helper()
	l, ok := journal.As[journal.IDLister](f.j)
	if !ok {
		f.Fatalf("%T does not implement journal.IDLister any more", f.j)
	}
	for id, err := range l.PersistenceIDs(ctx, after) {
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
	if got := f.list(after); !slices.Equal(got, want) {
		f.Errorf("PersistenceIDs after %.40q yields %.60q, want %.60q", after, got, want)
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
