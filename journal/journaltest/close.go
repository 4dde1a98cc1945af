// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"

	"github.com/refold-io/refold/journal"
)

func closeChecks() []check {
	return []check{
		{"CloseTwice", "a second Close does nothing", base, func(f *fixture) {
			f.store(write("closed", "w", 0, 1))
			f.within("Close", func() {
				for range 3 {
					f.close()
				}
			})
			f.together("a further Close", 4, func(int) { f.close() })
		}},
		{"ClosedRefuses", "after Close every method fails with ErrClosed, and the slots of Append match ErrNotSent too", base, func(f *fixture) {
			const id = "closed"
			f.store(write(id, "w", 0, 3))
			before := f.j.Replay(f.ctx, id, 1, maxSeq)
			f.close()
			f.within("a call of a closed journal", func() {
				for i, err := range f.appendAll(f.ctx, write(id, "w", 3, 1), write("other", "w", 0, 1)) {
					if !errors.Is(err, journal.ErrClosed) || !errors.Is(err, journal.ErrNotSent) {
						f.Errorf("Append, write %d: %v, want a match of both ErrClosed and ErrNotSent", i, err)
					}
				}
				if events, err := f.collect(f.j.Replay(f.ctx, id, 1, maxSeq), 0); !errors.Is(err, journal.ErrClosed) || len(events) > 0 {
					f.Errorf("Replay yields %d events and %v, want ErrClosed", len(events), err)
				}
				if events, err := f.collect(before, 0); !errors.Is(err, journal.ErrClosed) || len(events) > 0 {
					f.Errorf("Replay, ranged over after Close, yields %d events and %v, want ErrClosed", len(events), err)
				}
				if n, err := f.j.HighestSequenceNr(f.ctx, id); !errors.Is(err, journal.ErrClosed) {
					f.Errorf("HighestSequenceNr is %d and %v, want ErrClosed", n, err)
				}
				if err := f.j.DeleteTo(f.ctx, id, 1); !errors.Is(err, journal.ErrClosed) {
					f.Errorf("DeleteTo: %v, want ErrClosed", err)
				}
				if _, ok := journal.As[journal.IDLister](f.j); ok {
					if ids, err := f.collectIDs(f.ctx, ""); !errors.Is(err, journal.ErrClosed) || len(ids) > 0 {
						f.Errorf("PersistenceIDs yields %q and %v, want ErrClosed", ids, err)
					}
				}
			})
		}},
		{"CloseInReplay", "Close does not wait for the body of a loop", base, func(f *fixture) {
			// No resource is held in the body. The replay continues with the events that were read ahead.
			const id, total = "close in replay", 3 * pageRecords
			f.store(write(id, "w", 0, total))
			f.within("Close in the body of a Replay", func() {
				n := 0
				events, err := f.collect(func(yield func(journal.Event, error) bool) {
					for e, err := range f.j.Replay(f.ctx, id, 1, maxSeq) {
						if n++; n == 10 {
							f.close()
						}
						if !yield(e, err) {
							return
						}
					}
				}, 0)
				if !errors.Is(err, journal.ErrClosed) || len(events) > pageRecords+10 || !gapless(events) {
					f.Errorf("Replay of %d events, closed after 10, yields %d and %v, want ErrClosed", total, len(events), err)
				}
			})
		}},
		{"CloseWhileBusy", "a call beside Close works or fails with ErrClosed", base, func(f *fixture) {
			const callers = 4
			ready := make(chan struct{}, callers)
			f.together("Close, or a call beside it,", callers+1, func(k int) {
				if k == callers {
					for range callers {
						<-ready
					}
					f.close()
					return
				}
				id := brief([]uint64{uint64(k + 1)}) //nolint:gosec // small
				for n := uint64(0); ; n++ {
					if n == 20 {
						ready <- struct{}{}
					}
					var err error
					switch k {
					case 0:
						_, err = f.collect(f.j.Replay(f.ctx, "2", 1, 20), 0)
					case 1:
						err = f.append1(write(id, "w", n, 1))
					case 2:
						_, err = f.j.HighestSequenceNr(f.ctx, id)
					default:
						err = f.j.DeleteTo(f.ctx, id, n)
					}
					if err == nil {
						continue
					}
					if n < 20 {
						ready <- struct{}{}
					}
					if !errors.Is(err, journal.ErrClosed) {
						f.Errorf("a call beside Close: %v, want ErrClosed", err)
					}
					return
				}
			})
		}},
	}
}
