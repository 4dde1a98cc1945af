// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/refold-io/refold/journal"
)

func closeChecks() []check {
	return []check{
		{"Local", "the journal reports whether it is local to one node, as Config.Local claims", base, func(f *fixture) {
			if l, ok := journal.As[interface{ Local() bool }](f.j); f.cfg.Local != (ok && l.Local()) {
				f.Errorf("snapshot.Local reports %t, want %t", !f.cfg.Local, f.cfg.Local)
			}
		}},
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
				f.wantFailures(id, journal.ErrClosed)
				if events, err := f.collect(before, 0); !errors.Is(err, journal.ErrClosed) || len(events) > 0 {
					f.Errorf("Replay, ranged over after Close, yields %d events and %v, want ErrClosed", len(events), err)
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
				events, err := f.collect(before(10, f.j.Replay(f.ctx, id, 1, maxSeq), f.close), 0)
				if !errors.Is(err, journal.ErrClosed) || len(events) > pageRecords+10 || !gapless(events) {
					f.Errorf("Replay of %d events, closed after 10, yields %d and %v, want ErrClosed", total, len(events), err)
				}
			})
		}},
		{"CloseWhileBusy", "a call that is concurrent with Close succeeds or fails with ErrClosed", base, func(f *fixture) {
			const callers = 4
			ready := make(chan struct{}, callers)
			f.together("Close or a concurrent call", callers+1, func(k int) {
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
						f.Errorf("a call concurrent with Close: %v, want ErrClosed", err)
					}
					return
				}
			})
		}},
	}
}

func reopenChecks() []check {
	return []check{
		{"ReopenKeepsEvents", "stored events are complete when the journal is opened again", reopens, func(f *fixture) {
			f.reopen() // an empty journal
			f.wantHistory("kept|0", 0)
			all := make([][]journal.Write, 20)
			for round := range uint64(3) {
				var batch []journal.Write
				for k := range all {
					w := write(fmt.Sprint("kept|", k), fmt.Sprint("w", round), 3*round, 3)
					w.Events[0].Tags, w.Events[1].Metadata = []string{"a", "b"}, []byte{0, 1, 2}
					w.Events[2].Payload = pattern(k*2000, byte(k))
					batch, all[k] = append(batch, w), append(all[k], w)
				}
				f.store(batch...)
				f.reopen()
				for k, writes := range all {
					f.wantHistory(fmt.Sprint("kept|", k), 0, writes...)
				}
			}
		}},
		{"ReopenKeepsDeletions", "deletions and highest sequence numbers survive a restart", reopens, func(f *fixture) {
			some, whole := write("some", "w", 0, 5), write("all", "w", 0, 5)
			f.store(some, whole)
			f.deleteTo(some.ID, 3)
			f.deleteTo(whole.ID, maxSeq)
			f.deleteTo("never written", maxSeq)
			for range 2 {
				f.reopen()
				f.wantHistory(some.ID, 3, some)
				f.wantHistory(whole.ID, 5, whole)
				f.wantHistory("never written", 0)
			}
			if _, ok := journal.As[journal.IDLister](f.j); ok {
				f.wantIDs("", []string{"all", "some"})
			}
		}},
		{"ReopenKeepsNumbers", "a write with an outdated number still conflicts after a restart", reopens, func(f *fixture) {
			stored, lost, deleted := write("stored", "w", 0, 3), write("fenced", "w", 0, 2), write("deleted", "w", 0, 4)
			f.store(stored, fence(lost), deleted)
			f.deleteTo(deleted.ID, 4)
			f.reopen()
			f.wantConflict(f.append1(lost), lost, 1)
			f.wantConflict(f.append1(stored), stored, 3)
			f.wantConflict(f.append1(deleted), deleted, 4)
			f.wantHistory(lost.ID, 0, fence(lost))
			next := []journal.Write{write("stored", "w2", 3, 1), write("fenced", "w2", 1, 1), write("deleted", "w2", 4, 1)}
			f.store(next...)
			f.reopen()
			f.wantHistory(stored.ID, 0, stored, next[0])
			f.wantHistory(lost.ID, 0, fence(lost), next[1])
			f.wantHistory(deleted.ID, 4, deleted, next[2])
		}},
		{"ReopenWhileAppending", "outcomes reported before a restart hold after it, and an interrupted write is stored as a whole or not at all", reopens, func(f *fixture) {
			const writers, unit = 4, 3
			var (
				busy sync.WaitGroup
				last [writers]journal.Write // the write that failed
				said [writers]error
			)
			ready := make(chan struct{}, writers)
			old := f.j
			for k := range writers {
				busy.Go(func() {
					for n := uint64(0); said[k] == nil && f.ctx.Err() == nil; n += unit {
						last[k] = write(fmt.Sprint("cut short|", k), "w", n, unit)
						if errs := old.Append(f.ctx, last[k:k+1]); errs != nil {
							said[k] = errs[0]
						}
						if n == 20*unit || said[k] != nil && n < 20*unit {
							ready <- struct{}{}
						}
					}
				})
			}
			for range writers {
				<-ready
			}
			f.reopen()
			f.within("an Append during a restart", busy.Wait)
			for k, w := range last {
				if said[k] == nil {
					f.Errorf("Append on the old journal reported no error after a restart")
					return
				}
				f.wantTruth(w, said[k])
				before := f.replay(w.ID, 1, w.Expect)
				f.wantEvents(w.ID, before, eventsOf(write(w.ID, "w", 0, int(w.Expect)))) //nolint:gosec // small
			}
		}},
	}
}

func (f *fixture) reopen() {
	f.Helper()
	f.j = f.cfg.Reopen(f.TB, f.j)
}
