// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
)

// closing calls Close on another goroutine.
func closing(ctx context.Context, w *groupcommit.Writer) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.Close(ctx) }()
	return done
}

func wantClosed(t *testing.T, log *ledger, entries ...string) {
	t.Helper()
	for _, entry := range entries {
		if err := log.err(entry); !errors.Is(err, journal.ErrNotSent) || !errors.Is(err, journal.ErrClosed) {
			t.Errorf("%s: %v, want ErrNotSent and ErrClosed", entry, err)
		}
	}
}

func TestWriterCloseDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxBatchWrites: 1, MaxQueuedWrites: 1})
		log := newLedger()
		a, b := log.entity("a"), log.entity("b")
		a.submit(t, w)
		call := <-calls
		a.submit(t, w)
		done := closing(t.Context(), w)
		synctest.Wait()
		a.submit(t, w) // answered with an error, after the earlier requests
		b.submit(t, w)
		call.answer <- nil
		call = <-calls
		expect(t, "requests accepted before Close", call.names(), []string{"a@1"})
		select {
		case err := <-done:
			t.Fatalf("Close did not wait for the call in flight: %v", err)
		default:
		}
		call.answer <- nil
		if err := <-done; err != nil {
			t.Error(err)
		}
		expect(t, "outcomes", log.take(), []string{"a@0", "a@1", "a@2", "b@0"})
		wantClosed(t, log, "a@2", "b@0")
		if err := errors.Join(log.err("a@0"), log.err("a@1")); err != nil {
			t.Error(err)
		}
	})
}

func TestWriterAnswersAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := manualWriter(t, journal.WriterConfig{})
		closeWriter(t, w)
		closeWriter(t, w)
		log := newLedger()
		a := log.entity("a")
		for range 3 {
			a.submit(t, w)
			synctest.Wait()
		}
		expect(t, "outcomes", log.take(), []string{"a@0", "a@1", "a@2"})
		wantClosed(t, log, "a@0", "a@1", "a@2")
		w.Reset(&a.stream)
		closeWriter(t, w)
	})
}

func TestWriterCloseGrantsRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedWrites: 1})
		log := newLedger()
		log.entity("blocker").submit(t, w)
		call := <-calls
		log.entity("q").submit(t, w)
		for _, id := range []string{"a", "b", "c"} {
			e := log.entity(id)
			r := e.wantNoRoom(t, w)
			e.room = func() { w.Submit(r) }
		}
		done := closing(t.Context(), w)
		synctest.Wait()
		call.answer <- nil
		(<-calls).answer <- nil
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantClosed(t, log, "a@0", "b@0", "c@0")
	})
}

func TestWriterCloseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string]int{"one call": 1, "parallel": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, arrivals := parallelWriter(t, calls, journal.WriterConfig{MaxQueuedWrites: 3})
				log := newLedger()
				a, b, c := log.entity("a"), log.entity("b"), log.entity("c")
				a.submit(t, w)
				stuck := <-arrivals
				if calls == 2 {
					log.entity("other").submit(t, w)
					other := <-arrivals
					defer func() { other.answer <- nil }()
				}
				b.submit(t, w)
				a.submit(t, w)
				b.submit(t, w)
				r := c.wantNoRoom(t, w)
				c.room = func() { w.Submit(r) }

				cause := errors.New("enough")
				ctx, cancel := context.WithCancelCause(t.Context())
				done := closing(ctx, w)
				synctest.Wait()
				expect(t, "outcomes before the context ends", log.take(), nil)
				cancel(cause)
				if err := <-done; !errors.Is(err, cause) {
					t.Errorf("Close: %v, want the cause", err)
				}
				expect(t, "outcomes", log.take(), []string{"b@0", "b@1", "c@0"})
				wantClosed(t, log, "b@0", "b@1", "c@0")
				if stuck.ctx.Err() == nil {
					t.Error("the context of the call in flight was not canceled")
				}

				b.submit(t, w) // answered although a call is stuck
				synctest.Wait()
				expect(t, "outcomes", log.take(), []string{"b@2"})
				wantClosed(t, log, "b@2")

				again := closing(t.Context(), w)
				synctest.Wait()
				select {
				case err := <-again:
					t.Errorf("the second Close did not wait: %v", err)
				default:
				}
				stuck.answer <- []error{stuck.ctx.Err()}
				synctest.Wait()
				expect(t, "outcomes", log.take(), []string{"a@0", "a@1"})
				if err := log.err("a@0"); journal.NotStored(err) {
					t.Errorf("a@0: %v, want the slot", err)
				}
				wantClosed(t, log, "a@1")
			})
		})
	}
}

// The queue stays full of requests that wait for the stuck call.
func TestWriterCloseAnswersRequestsThatWaitForAStuckCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedWrites: 1})
		log := newLedger()
		a, b := log.entity("a"), log.entity("b")
		a.submit(t, w)
		stuck := <-calls
		a.submit(t, w)
		r := b.wantNoRoom(t, w)
		b.room = func() { w.Submit(r) }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Close: %v, want the end of its context", err)
		}
		expect(t, "outcomes", log.take(), []string{"b@0"})
		stuck.answer <- nil
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"a@0", "a@1"})
	})
}

func TestWriterCloseAgainWithEndedContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := manualWriter(t, journal.WriterConfig{})
		closeWriter(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Close(ctx); err != nil {
			t.Errorf("second Close returned %v, want nil", err)
		}
	})
}
