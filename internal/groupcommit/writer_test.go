// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

// manualWriter returns a Writer over a journal whose calls the test answers.
func manualWriter(t *testing.T, cfg journal.WriterConfig) (*groupcommit.Writer, <-chan arrival) {
	t.Helper()
	appendFunc, calls := manual()
	return newWriter(t, &fake{append: appendFunc}, cfg), calls
}

func TestWriterSendsSingleWriteImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		defer closeWriter(t, w)
		log, start := newLedger(), time.Now()
		log.entity("a").submit(t, w)
		call := <-calls
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the write waited %v, want 0", waited)
		}
		expect(t, "writes", call.names(), []string{"a@0"})
		expect(t, "outcomes before the commit", log.take(), nil)
		call.answer <- nil
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"a@0"})
		if err := log.err("a@0"); err != nil {
			t.Error(err)
		}
	})
}

func TestWriterGroupsRequestsOfACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a, b := log.entity("a"), log.entity("b")
		a.submit(t, w)
		first := <-calls
		a.submit(t, w)
		b.submit(t, w)
		a.submit(t, w)
		synctest.Wait()
		select {
		case <-calls:
			t.Fatal("a second call began while one was in flight")
		default:
		}
		first.answer <- nil
		second := <-calls
		expect(t, "second batch", second.names(), []string{"a@1", "b@0", "a@2"})
		expect(t, "outcomes of the first", log.take(), []string{"a@0"})
		second.answer <- []error{nil, nil, nil}
		synctest.Wait()
		expect(t, "outcomes of the second", log.take(), []string{"a@1", "b@0", "a@2"})
	})
}

func TestWriterSkipsAfterAFailure(t *testing.T) {
	t.Parallel()
	unknown := errors.New("connection reset")
	for name, cause := range map[string]error{
		"conflict": &journal.ConflictError{ID: "a", Expected: 0, Highest: 7},
		"rejected": &journal.RejectedError{ID: "a", Reason: errors.New("bad")},
		"not sent": fmt.Errorf("%w: %w", journal.ErrNotSent, journal.ErrBreakerOpen),
		"skipped":  journal.ErrSkipped,
		"unknown":  unknown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, calls := manualWriter(t, journal.WriterConfig{})
				defer closeWriter(t, w)
				log := newLedger()
				a, b := log.entity("a"), log.entity("b")
				a.submit(t, w)
				call := <-calls
				a.submit(t, w) // queued when the first write fails
				b.submit(t, w)
				call.answer <- []error{cause}
				call = <-calls
				expect(t, "writes after the failure", call.names(), []string{"b@0"})
				a.submit(t, w) // submitted after the failure
				call.answer <- nil
				synctest.Wait()
				expect(t, "outcomes", log.take(), []string{"a@0", "a@1", "b@0", "a@2"})
				if err := log.err("a@0"); err != cause { //nolint:errorlint // the slot as it is
					t.Errorf("a@0: %v, want the journal's slot", err)
				}
				for _, later := range []string{"a@1", "a@2"} {
					if err := log.err(later); !errors.Is(err, journal.ErrSkipped) {
						t.Errorf("%s: %v, want ErrSkipped", later, err)
					}
				}
				if err := log.err("b@0"); err != nil {
					t.Errorf("the write of the other entity failed: %v", err)
				}

				w.Reset(&a.stream)
				a.seqNr = 7
				a.submit(t, w)
				call = <-calls
				expect(t, "writes after Reset", call.names(), []string{"a@7"})
				call.answer <- nil
				synctest.Wait()
				if err := log.err("a@7"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestWriterSkipsAfterAFailureInTheSameCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		blocker, a, b := log.entity("blocker"), log.entity("a"), log.entity("b")
		blocker.submit(t, w)
		call := <-calls
		a.submit(t, w)
		b.submit(t, w)
		a.submit(t, w)
		call.answer <- nil
		call = <-calls
		a.submit(t, w)
		call.answer <- []error{&journal.ConflictError{ID: "a"}, nil, journal.ErrSkipped}
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"blocker@0", "a@0", "b@0", "a@1", "a@2"})
		for entry, want := range map[string]error{"a@0": journal.ErrConflict, "b@0": nil, "a@1": journal.ErrSkipped, "a@2": journal.ErrSkipped} {
			if err := log.err(entry); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", entry, err, want)
			}
		}
	})
}

// Reset permits later requests only. Earlier requests stay skipped, because their writes have wrong
// numbers.
func TestWriterResetLeavesOlderRequestsSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxBatchWrites: 1})
		defer closeWriter(t, w)
		log := newLedger()
		a, b := log.entity("a"), log.entity("b")
		a.submit(t, w)
		call := <-calls
		b.submit(t, w)
		a.submit(t, w) // in the queue during Reset
		call.answer <- []error{errors.New("lost")}
		call = <-calls // b
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"a@0"})
		w.Reset(&a.stream)
		a.seqNr = 5
		a.submit(t, w)
		call.answer <- nil
		call = <-calls
		expect(t, "writes after Reset", call.names(), []string{"a@5"})
		call.answer <- nil
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"b@0", "a@1", "a@5"})
		if err := log.err("a@1"); !errors.Is(err, journal.ErrSkipped) {
			t.Errorf("a@1: %v, want ErrSkipped", err)
		}
		if err := log.err("a@5"); err != nil {
			t.Errorf("a@5: %v", err)
		}
	})
}

// The requests of a failed stream may be anywhere in the queue.
func TestWriterSkipsInTheMiddleOfTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxBatchWrites: 2})
		defer closeWriter(t, w)
		log := newLedger()
		a, b := log.entity("a"), log.entity("b")
		a.submit(t, w)
		(<-calls).answer <- []error{errors.New("lost")}
		synctest.Wait()
		b.submit(t, w)
		call := <-calls
		b.submit(t, w)
		b.submit(t, w)
		a.submit(t, w)
		b.submit(t, w)
		for _, want := range [][]string{{"b@1", "b@2"}, {"b@3"}} {
			call.answer <- nil
			call = <-calls
			expect(t, "batch", call.names(), want)
		}
		call.answer <- nil
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"a@0", "b@0", "b@1", "b@2", "a@1", "b@3"})
	})
}

// A Reset before the failure does not permit requests after the failure.
func TestWriterResetBeforeAFailureDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a := log.entity("a")
		a.submit(t, w)
		call := <-calls
		bad := a.write("x")
		bad.Write.Events = nil
		w.Submit(bad)
		w.Reset(&a.stream)
		a.submit(t, w)
		call.answer <- nil
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"a@0", "a@1", "a@2"})
		if err := log.err("a@2"); !errors.Is(err, journal.ErrSkipped) {
			t.Errorf("a@2: %v, want ErrSkipped", err)
		}
	})
}

// The Writer does not keep the payloads of a finished commit alive.
func TestWriterReleasesSentRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kept []journal.Write
		w := newWriter(t, &fake{append: func(_ context.Context, writes []journal.Write) []error {
			kept = writes
			return nil
		}}, journal.WriterConfig{})
		newLedger().entity("a").submit(t, w)
		closeWriter(t, w)
		if kept[0].Events != nil {
			t.Error("the slice of writes still contains the events, want nil")
		}
	})
}

func TestWriterResetWithoutAFailureDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a := log.entity("a")
		a.submit(t, w)
		call := <-calls
		a.submit(t, w)
		w.Reset(&a.stream)
		call.answer <- nil
		call = <-calls
		w.Reset(&a.stream)
		expect(t, "writes", call.names(), []string{"a@1"})
		call.answer <- []error{errors.New("lost")}
		synctest.Wait()
		a.submit(t, w)
		synctest.Wait()
		if err := log.err("a@2"); !errors.Is(err, journal.ErrSkipped) {
			t.Errorf("a@2: %v, want ErrSkipped, because the failure is later than the Reset", err)
		}
	})
}

func TestWriterReportsContractViolations(t *testing.T) {
	t.Parallel()
	for name, misbehave := range map[string]func(writes []journal.Write) []error{
		"too few slots":  func([]journal.Write) []error { return []error{nil} },
		"too many slots": func(w []journal.Write) []error { return make([]error, len(w)+1) },
		"no slots":       func([]journal.Write) []error { return []error{} },
		"panic":          func([]journal.Write) []error { panic("boom") },
		"runtime panic":  func(w []journal.Write) []error { return []error{nil, nil}[len(w)+5:] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				appendFunc, calls := manual()
				bad := true
				w := newWriter(t, &fake{append: func(ctx context.Context, writes []journal.Write) []error {
					if len(writes) > 1 && bad {
						return misbehave(writes)
					}
					return appendFunc(ctx, writes)
				}}, journal.WriterConfig{})
				defer closeWriter(t, w)
				log := newLedger()
				a, b := log.entity("a"), log.entity("b")
				log.entity("blocker").submit(t, w)
				call := <-calls
				a.submit(t, w)
				b.submit(t, w)
				call.answer <- nil
				synctest.Wait()
				expect(t, "outcomes", log.take(), []string{"blocker@0", "a@0", "b@0"})
				for _, entry := range []string{"a@0", "b@0"} {
					err := log.err(entry)
					if !errors.Is(err, journal.ErrContract) || journal.NotStored(err) {
						t.Errorf("%s: %v, want ErrContract and an unknown outcome", entry, err)
					}
					if p, ok := errors.AsType[*panics.Error](err); strings.Contains(name, "panic") && (!ok || len(p.Stack) == 0) {
						t.Errorf("%s: %v, want a panics.Error with its stack", entry, err)
					}
				}
				w.Reset(&a.stream)
				a.submit(t, w)
				call = <-calls // the writer continues
				call.answer <- nil
			})
		})
	}
}

func TestWriterRejectsAWriteStoredAfterAFailedOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a := log.entity("a")
		log.entity("blocker").submit(t, w)
		call := <-calls
		a.submit(t, w)
		a.submit(t, w)
		call.answer <- nil
		call = <-calls
		call.answer <- []error{errors.New("lost"), nil}
		synctest.Wait()
		if err := log.err("a@1"); !errors.Is(err, journal.ErrContract) || journal.NotStored(err) {
			t.Errorf("a@1: %v, want ErrContract and an unknown outcome", err)
		}
	})
}
