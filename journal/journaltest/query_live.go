// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/refold-io/refold/journal"
)

func queryWaitChecks() []check {
	return []check{
		{"AwaitThere", "Await returns immediately if there are events after the position", queries, func(f *fixture) {
			w := write("there", "w", 0, 3)
			f.store(w)
			whole := f.wantRead(journal.Criteria{}, "", w)
			for _, after := range []journal.Offset{"", whole[0].Offset, whole[1].Offset} {
				if err := f.await(f.ctx, after); err != nil {
					f.Errorf("Await after %q, with events available: %v", after, err)
				}
			}
		}},
		{"AwaitAppend", "an append ends every Await", queries, func(f *fixture) {
			const waiting = 5
			next := f.end()
			for n := range uint64(10) {
				wait := f.awaiting(waiting, next)
				w := write("awaited", "w", n, 1)
				f.store(w)
				wait()
				f.wantRead(journal.Criteria{}, next, w)
				_, next = f.read(journal.Criteria{}, next, 1)
			}
		}},
		{"AwaitAttached", "an append through another handle ends an Await", queriesAttach, func(f *fixture) {
			here, there := f.j, f.attach()
			next := f.end()
			for n := range uint64(5) {
				wait := f.awaiting(2, next)
				w := write("awaited", "w", n, 1)
				f.j = there
				f.store(w)
				f.j = here
				wait()
				_, next = f.read(journal.Criteria{}, next, 1)
			}
		}},
		{"AwaitCancelled", "Await ends with the cause of its context", queries, func(f *fixture) {
			f.store(write("cancelled", "w", 0, 1))
			_, next := f.read(journal.Criteria{}, "", 1)
			gone := errors.New("gone")
			for n := range 20 {
				ctx, cancel := context.WithCancelCause(f.ctx)
				if n%2 == 0 {
					cancel(gone)
				}
				q := f.querier()
				f.together("Await whose context ends", 2, func(k int) {
					if k == 0 {
						cancel(gone)
						return
					}
					var err error
					for err == nil && f.ctx.Err() == nil {
						err = q.Await(ctx, next)
					}
					if !errors.Is(err, gone) {
						f.Errorf("Await whose context ends returns %v, want its cause", err)
					}
				})
			}
			ctx, cancel := context.WithDeadline(f.ctx, time.Unix(0, 0))
			defer cancel()
			if err := f.await(ctx, next); !errors.Is(err, context.DeadlineExceeded) {
				f.Errorf("Await with a deadline that has passed: %v, want context.DeadlineExceeded", err)
			}
		}},
		{"AwaitClosed", "Close ends an Await with ErrClosed", queries, func(f *fixture) {
			next := f.end()
			q := f.querier()
			const waiting = 4
			started := make(chan struct{}, waiting)
			f.together("Close or a concurrent Await", waiting+1, func(k int) {
				if k == waiting {
					for range waiting {
						<-started
					}
					f.close()
					return
				}
				started <- struct{}{}
				var err error
				for err == nil && f.ctx.Err() == nil {
					err = q.Await(f.ctx, next)
				}
				if !errors.Is(err, journal.ErrClosed) {
					f.Errorf("Await concurrent with Close returns %v, want ErrClosed", err)
				}
			})
		}},
		{"AwaitIdle", "Await blocks while no event is appended", queries, func(f *fixture) {
			// If Await returned immediately each time, its reader would loop without progress.
			const most = 20 // a journal may poll, so Await may sometimes return without an event
			f.store(write("idle", "w", 0, 1))
			_, next := f.read(journal.Criteria{}, "", 1)
			ctx, cancel := context.WithTimeout(f.ctx, min(100*time.Millisecond, f.cfg.Timeout/2))
			defer cancel()
			n := 0
			for n < most && f.await(ctx, next) == nil {
				n++
			}
			if n == most {
				f.Errorf("Await returned %d times within 100 ms without an event", n)
			}
		}},
	}
}

// awaiting starts n waits for an event after a position. The returned function waits until all have
// found it. A wait that returns without an event is repeated.
func (f *fixture) awaiting(n int, after journal.Offset) (wait func()) {
	f.Helper()
	q := f.querier()
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout/2)
	done, started := make(chan error, n), make(chan struct{}, n)
	for range n {
		go func() {
			started <- struct{}{}
			for {
				if err := q.Await(ctx, after); err != nil {
					done <- err
					return
				}
				if p, err := q.Query(ctx, journal.Criteria{}, after); err != nil || len(p.Events) > 0 {
					done <- err
					return
				}
			}
		}()
	}
	for range n {
		<-started
	}
	return func() {
		f.Helper()
		defer cancel()
		f.within("Await", func() {
			for range n {
				if err := <-done; err != nil {
					f.Errorf("Await, with an event appended, ends with %v", err)
				}
			}
		})
	}
}

func queryReaderChecks() []check {
	return []check{
		{"QueryCurrent", "Current yields the events that existed when it began, despite concurrent appends", queries, func(f *fixture) {
			writes := spread(3)
			f.store(writes...)
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			for n, q := range []journal.Criteria{{}, {Types: []string{"other"}}, {Slices: journal.Slices{Count: 512}}} {
				var got []journal.Envelope
				f.within("Current, with Append in the body of its loop,", func() {
					for e, err := range journal.Current(f.ctx, f.j, q, "") {
						if err != nil {
							f.Errorf("Current: %v", err)
							return
						}
						k := uint64(len(got))
						if got = append(got, e); len(got) > len(whole) {
							return
						}
						f.appended(write(fmt.Sprint("appended|", n), "w", 2*k, 2))
					}
				})
				f.wantSame("Current of "+show(q), got, matching(q, whole))
				var added []journal.Write
				for k := range uint64(len(got)) {
					added = append(added, write(fmt.Sprint("appended|", n), "w", 2*k, 2))
				}
				whole = append(whole, f.wantRead(journal.Criteria{}, whole[len(whole)-1].Offset, added...)...)
			}
		}},
		{"QueryLiveReaders", "live readers that disconnect and resume get every event exactly once, all in the same order", queries, func(f *fixture) {
			const writers, each = 4, 50
			readers := []journal.Criteria{{}, {}, {}, {Tag: "every 2"}, {Types: []string{"live"}}, {Slices: journal.Slices{Count: 512}}, {Slices: journal.Slices{First: 512, Count: 512}}}
			var writes []journal.Write
			for k := range writers {
				next := make([]uint64, 3)
				for n := range each {
					size := 1 + (n+k)%3
					w := write(fmt.Sprintf("%s|%d|%d", []string{"live", "alive"}[n%2], k, n%3), "w", next[n%3], size)
					if n%2 == 1 { // each write of type alive has a new ID
						w.ID = fmt.Sprintf("alive|%d|%d", k, n)
						w = write(w.ID, "w", 0, size)
					} else {
						next[n%3] += uint64(size)
					}
					for i := range w.Events {
						w.Events[i].Tags = []string{fmt.Sprint("every ", 2+n%2)}
					}
					writes = append(writes, w)
				}
			}
			want := make([]int, len(readers)) // how many events each finds
			for _, w := range writes {
				for i, q := range readers {
					if q.Matches(w.ID, w.Events[0].Tags) {
						want[i] += len(w.Events)
					}
				}
			}
			got := make([][]journal.Envelope, len(readers))
			ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout/2)
			defer cancel()
			f.together("a live reader or a concurrent Append", writers+len(readers), func(k int) {
				if k < writers {
					for _, w := range writes[k*each : (k+1)*each] {
						if !f.appended(w) {
							return
						}
					}
					return
				}
				k -= writers
				rng := rand.New(rand.NewPCG(uint64(k), 1)) //nolint:gosec // a test
				var err error
				if got[k], err = follow(ctx, f.j, readers[k], want[k], func() bool { return rng.IntN(20) == 0 }); err != nil {
					f.Errorf("a live reader of %s has %d events, want %d, and ends with %v", show(readers[k]), len(got[k]), want[k], err)
				}
			})
			whole := f.wantRead(journal.Criteria{}, "", writes...)
			for k, q := range readers {
				f.wantSame("a live reader of "+show(q), got[k], matching(q, whole))
			}
		}},
		{"QueryLiveFence", "LiveByID completes at a fence that is stored while it waits", queries, func(f *fixture) {
			w := write("fenced", "w", 0, 1)
			f.store(w)
			reading := make(chan struct{})
			begin := sync.OnceFunc(func() { close(reading) })
			ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout/2)
			defer cancel()
			var got []journal.Event
			f.together("LiveByID up to a later fence, or its Append,", 2, func(k int) {
				if k == 0 {
					<-reading
					f.appended(fence(write(w.ID, "w", 1, 1)))
					return
				}
				defer begin()
				for e, err := range journal.LiveByID(ctx, f.j, w.ID, 1, 2) {
					if err != nil {
						f.Errorf("LiveByID up to a fence that is stored: %v", err)
						return
					}
					got = append(got, e)
					begin()
				}
			})
			f.wantEvents(w.ID, got, eventsOf(w))
		}},
		{"QueryLateCommit", "an event that is committed late is not skipped by concurrent readers", queriesStall, func(f *fixture) {
			stored := []journal.Write{write("late|0", "w", 0, 2)}
			f.store(stored...)
			got, next := f.read(journal.Criteria{}, "", 2)
			readOn := func() {
				more, to := f.walk(journal.Criteria{}, next)
				got, next = append(got, more...), to
			}
			release := f.cfg.Stall(f.TB, f.j)
			lost := write("late|1", "w", 0, 3)
			ctx, cancel := context.WithTimeout(f.ctx, 200*time.Millisecond)
			defer cancel()
			f.within("a stalled Append whose context has ended", func() { f.appendAll(ctx, lost) })
			for n := range uint64(5) {
				w := write("late|0", "w", 2+n, 1)
				f.store(w)
				stored = append(stored, w)
				readOn()
			}
			f.within("the release of a stalled Append", release)
			if len(f.replay(lost.ID, 1, maxSeq)) > 0 {
				stored = append(stored, lost)
			}
			last := write("late|2", "w", 0, 1)
			f.store(last)
			stored = append(stored, last)

			want, n := expected(journal.Criteria{}, stored)
			more, _ := f.read(journal.Criteria{}, next, n-len(got))
			got = append(got, more...)
			f.wantAll(got, want)
			whole, _ := f.read(journal.Criteria{}, "", n)
			f.wantSame("a live reader, compared with a later reader,", got, whole)
		}},
	}
}

// follow reads n events live. When leave returns true, it leaves the loop and resumes after the
// last event.
func follow(ctx context.Context, j journal.Journal, q journal.Criteria, n int, leave func() bool) (events []journal.Envelope, failed error) {
	var last journal.Offset
	for len(events) < n && failed == nil {
		for e, err := range journal.Live(ctx, j, q, last) {
			if failed = err; err != nil {
				break
			}
			events, last = append(events, e), e.Offset
			if len(events) == n || leave() {
				break
			}
		}
	}
	return events, failed
}
