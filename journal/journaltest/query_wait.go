// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"
	"time"

	"github.com/refold-io/refold/journal"
)

// queryWaitChecks are about Await.
func queryWaitChecks() []check {
	return []check{
		{name: "AwaitThere", rule: "Await returns at once when there is something behind the position", needs: queries, run: awaitThere},
		{name: "AwaitAppend", rule: "an append ends every Await", needs: queries, run: awaitAppend},
		{name: "AwaitAttached", rule: "an append through another handle ends an Await", needs: queriesAttach, run: awaitAttached},
		{name: "AwaitCancelled", rule: "Await ends with the cause of its context", needs: queries, run: awaitCancelled},
		{name: "AwaitClosed", rule: "Close ends an Await with ErrClosed", needs: queries, run: awaitClosed},
		{name: "AwaitIdle", rule: "Await does wait while nothing happens", needs: queries, run: awaitIdle},
	}
}

func awaitThere(f *fixture) {
	w := write("there", "w", 0, 3)
	f.store(w)
	whole := f.wantRead(journal.Criteria{}, "", w)
	for _, after := range []journal.Offset{"", whole[0].Offset, whole[1].Offset} {
		if err := f.await(f.ctx, after); err != nil {
			f.Errorf("Await behind %q, with something there: %v", after, err)
		}
	}
}

// awaiting starts n waits for an event behind a position, and returns what waits
// until all have found it. A wait that ends without one goes on.
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

func awaitAppend(f *fixture) {
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
}

func awaitAttached(f *fixture) {
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
}

func awaitCancelled(f *fixture) {
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
}

func awaitClosed(f *fixture) {
	next := f.end()
	q := f.querier()
	const waiting = 4
	started := make(chan struct{}, waiting)
	f.together("Close, or an Await beside it,", waiting+1, func(k int) {
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
			f.Errorf("Await beside Close returns %v, want ErrClosed", err)
		}
	})
}

// awaitIdle waits while nothing happens. An Await that returns at once each time
// would keep its reader busy for nothing.
func awaitIdle(f *fixture) {
	const most = 20 // a journal may poll now and then
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
}
