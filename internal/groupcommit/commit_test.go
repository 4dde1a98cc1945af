// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
)

// leave passes the next write to Leave and fails the test if there is no room.
func (e *entity) leave(t *testing.T, w *groupcommit.Writer) {
	t.Helper()
	if r := e.write("x"); !w.Leave(r) {
		t.Fatalf("no room for %s@%d", r.Write.ID, r.Write.Expect)
	}
}

// committing calls Commit on another goroutine. The returned function waits for its end.
func (e *entity) committing(w *groupcommit.Writer) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Commit(&e.stream, true)
	}()
	return func() { <-done }
}

// inCommit reports whether this goroutine is in a call of Commit.
func inCommit() bool {
	stack := make([]byte, 10_000)
	return strings.Contains(string(stack[:runtime.Stack(stack, false)]), ".(*Writer).Commit(")
}

// TestCommit checks that the request of a Leave waits for Commit while the Writer is idle, and that Commit
// appends it on its own goroutine.
func TestCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var here []bool
		w := newWriter(t, &fake{append: func(context.Context, []journal.Write) []error {
			here = append(here, inCommit())
			return nil
		}}, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a := log.entity("a")
		synctest.Wait()
		for range 2 {
			if !w.Idle() {
				t.Error("the Writer is not idle")
			}
			a.leave(t, w)
			synctest.Wait()
			expect(t, "outcomes before Commit", log.take(), nil)
			if w.Idle() {
				t.Error("the Writer is idle although a request waits for Commit")
			}
			if !w.Left() {
				t.Error("no request is left")
			}
			w.Commit(&a.stream, true)
			if len(log.take()) != 1 || len(here) != 1 || !here[0] {
				t.Errorf("appends in Commit: %v, want one", here)
			}
			here = nil
		}
		if w.Left() {
			t.Error("a request is left, want none")
		}
		w.Commit(&a.stream, true)
		a.leave(t, w)
		w.Commit(&a.stream, false)
		synctest.Wait()
		if len(here) != 1 || here[0] {
			t.Errorf("appends in a Commit that may not wait: %v, want one on a goroutine of the Writer", here)
		}
		expect(t, "outcomes", log.take(), []string{"a@2"})
	})
}

// TestCommitWithOthers checks that requests that follow a Leave are not delayed: a goroutine of the Writer
// takes them together with the one that was left.
func TestCommitWithOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a, b, c := log.entity("a"), log.entity("b"), log.entity("c")
		synctest.Wait()
		a.leave(t, w)
		b.submit(t, w)
		call := <-calls
		expect(t, "the call", call.names(), []string{"a@0", "b@0"})
		if w.Left() {
			t.Error("a request is left, want none")
		}
		w.Commit(&a.stream, true)
		c.leave(t, w) // the Writer is not idle
		synctest.Wait()
		call.answer <- nil
		call = <-calls
		expect(t, "the next call", call.names(), []string{"c@0"})
		call.answer <- nil
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"a@0", "b@0", "c@0"})
	})
}

// TestCommitOfAnotherStream checks that Commit leaves the request of another goroutine to that goroutine.
func TestCommitOfAnotherStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t, &fake{append: func(context.Context, []journal.Write) []error { return nil }}, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a, b := log.entity("a"), log.entity("b")
		synctest.Wait()
		a.leave(t, w)
		w.Commit(&b.stream, true)
		w.Commit(&b.stream, false)
		synctest.Wait()
		expect(t, "outcomes before Commit", log.take(), nil)
		w.Commit(&a.stream, true)
		expect(t, "outcomes", log.take(), []string{"a@0"})
	})
}

// TestSubmitDuringCommit checks that a Commit counts as one of the calls that the journal allows, and that
// the requests that arrive meanwhile form the next batch.
func TestSubmitDuringCommit(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"one call": 1, "parallel": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, calls := parallelWriter(t, limit, journal.WriterConfig{MaxQueuedWrites: 2})
				defer closeWriter(t, w)
				log := newLedger()
				a, b, c, d := log.entity("a"), log.entity("b"), log.entity("c"), log.entity("d")
				synctest.Wait()
				a.leave(t, w)
				wait := a.committing(w)
				call := <-calls
				if w.Idle() {
					t.Error("the Writer is idle during a Commit")
				}
				a.submit(t, w) // the same ID
				if limit == 2 {
					d.submit(t, w)
					other := <-calls
					expect(t, "the other call", other.names(), []string{"d@0"})
					defer func() { other.answer <- nil }()
				}
				b.leave(t, w)
				r := c.wantNoRoom(t, w)
				c.room = func() { w.Submit(r) }
				idle(t, calls)
				call.answer <- nil
				wait()
				call = <-calls
				expect(t, "the next call", call.names(), []string{"a@1", "b@0"})
				call.answer <- nil
				(<-calls).answer <- nil
				synctest.Wait()
				expect(t, "outcomes", log.take(), []string{"a@0", "a@1", "b@0", "c@0"})
			})
		})
	}
}

// TestRoomAfterCommit checks that an owner that found no room because of a request that was left gets room.
func TestRoomAfterCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedWrites: 1})
		defer closeWriter(t, w)
		log := newLedger()
		b := log.entity("b")
		synctest.Wait()
		a := log.entity("a")
		a.leave(t, w)
		r := b.wantNoRoom(t, w)
		b.room = func() { w.Submit(r) }
		wait := a.committing(w)
		(<-calls).answer <- nil
		wait()
		call := <-calls
		expect(t, "the next call", call.names(), []string{"b@0"})
		call.answer <- nil
	})
}

// TestCloseDuringCommit checks that Close waits for a Commit, and sends what has arrived before.
func TestCloseDuringCommit(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"one call": 1, "parallel": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, calls := parallelWriter(t, limit, journal.WriterConfig{})
				log := newLedger()
				a, b := log.entity("a"), log.entity("b")
				synctest.Wait()
				a.leave(t, w)
				wait := a.committing(w)
				call := <-calls
				a.submit(t, w)
				done := closing(t.Context(), w)
				idle(t, calls)
				b.submit(t, w)
				select {
				case err := <-done:
					t.Fatalf("Close did not wait for the Commit: %v", err)
				default:
				}
				call.answer <- nil
				wait()
				call = <-calls
				expect(t, "the next call", call.names(), []string{"a@1"})
				call.answer <- nil
				if err := <-done; err != nil {
					t.Error(err)
				}
				if err := errors.Join(log.err("a@0"), log.err("a@1")); err != nil {
					t.Error(err)
				}
				wantClosed(t, log, "b@0")
				b.leave(t, w)
				w.Commit(&b.stream, true)
				synctest.Wait()
				wantClosed(t, log, "b@1")
			})
		})
	}
}

// TestCloseBeforeCommit checks that Close sends a request that waits for Commit.
func TestCloseBeforeCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		log := newLedger()
		synctest.Wait()
		a := log.entity("a")
		a.leave(t, w)
		done := closing(t.Context(), w)
		call := <-calls
		wait := a.committing(w)
		wait()
		call.answer <- nil
		if err := errors.Join(<-done, log.err("a@0")); err != nil {
			t.Error(err)
		}
	})
}

// TestAbortDuringCommit checks that a Close whose context ends cancels the append of a Commit, and answers
// all requests except those of the same ID.
func TestAbortDuringCommit(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"one call": 1, "parallel": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, calls := parallelWriter(t, limit, journal.WriterConfig{})
				log := newLedger()
				a, b := log.entity("a"), log.entity("b")
				synctest.Wait()
				a.leave(t, w)
				wait := a.committing(w)
				stuck := <-calls
				if limit == 1 {
					b.submit(t, w)
				}
				a.submit(t, w)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := w.Close(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Close: %v, want the end of its context", err)
				}
				b.submit(t, w)
				synctest.Wait()
				answered := []string{"b@0", "b@1"}[:b.seqNr]
				expect(t, "outcomes", log.take(), answered)
				wantClosed(t, log, answered...)
				if stuck.ctx.Err() == nil {
					t.Error("the context of the append was not canceled")
				}
				again := closing(t.Context(), w)
				synctest.Wait()
				select {
				case err := <-again:
					t.Errorf("the second Close did not wait: %v", err)
				default:
				}
				stuck.answer <- []error{stuck.ctx.Err()}
				wait()
				if err := <-again; err != nil {
					t.Error(err)
				}
				expect(t, "outcomes", log.take(), []string{"a@0", "a@1"})
				wantClosed(t, log, "a@1")
			})
		})
	}
}

// TestCommitPanic checks that a panic of the journal is an unknown outcome of the request, and nothing else.
func TestCommitPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fail := true
		w := newWriter(t, &fake{append: func(context.Context, []journal.Write) []error {
			if fail {
				panic("oops")
			}
			return nil
		}}, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		synctest.Wait()
		a := log.entity("a")
		a.leave(t, w)
		w.Commit(&a.stream, true)
		if err := log.err("a@0"); !errors.Is(err, journal.ErrContract) || journal.NotStored(err) {
			t.Errorf("the outcome is %v, want an unknown one", err)
		}
		fail = false
		b := log.entity("b")
		b.leave(t, w)
		w.Commit(&b.stream, true)
		b.submit(t, w)
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"a@0", "b@0", "b@1"})
	})
}

// TestGoexitInOnCommit checks that a request is answered if OnCommit calls runtime.Goexit, and that the
// Writer continues.
func TestGoexitInOnCommit(t *testing.T) {
	t.Parallel()
	stored := fake{append: func(context.Context, []journal.Write) []error { return nil }}
	for name, j := range map[string]journal.Journal{"writer": &stored, "immediate": &immediate{stored}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				exit := true
				w := newWriter(t, j, journal.WriterConfig{OnCommit: func(journal.CommitInfo) {
					if exit {
						runtime.Goexit()
					}
				}})
				log := newLedger()
				a := log.entity("a")
				synctest.Wait()
				for _, submit := range []func(*testing.T, *groupcommit.Writer){a.submit, a.leave} {
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						submit(t, w)
						w.Commit(&a.stream, true)
					}()
					<-ended
					synctest.Wait()
				}
				expect(t, "outcomes", log.take(), []string{"a@0", "a@1"})
				exit = false
				a.submit(t, w)
				closeWriter(t, w)
				expect(t, "outcomes", log.take(), []string{"a@2"})
				if err := errors.Join(log.err("a@0"), log.err("a@1"), log.err("a@2")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestGoexitInWritten checks that the other requests of a batch are answered if Written calls
// runtime.Goexit, and that the Writer continues.
func TestGoexitInWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, calls := manual()
		w := newWriter(t, &fake{append: store}, journal.WriterConfig{})
		log := newLedger()
		first, a, b, c := log.entity("first"), log.entity("a"), log.entity("b"), log.entity("c")
		first.submit(t, w)
		call := <-calls
		a.exit, b.exit = true, true
		for _, e := range []*entity{a, b, c} {
			e.submit(t, w)
		}
		call.answer <- nil
		(<-calls).answer <- nil
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"first@0", "a@0", "b@0", "c@0"})
		c.submit(t, w)
		(<-calls).answer <- nil
		closeWriter(t, w)
		expect(t, "outcomes", log.take(), []string{"c@1"})
	})
}
