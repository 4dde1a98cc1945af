// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
)

// parallelWriter returns a Writer that may have several calls in flight.
func parallelWriter(t *testing.T, calls int, cfg journal.WriterConfig) (*groupcommit.Writer, <-chan arrival) {
	t.Helper()
	appendFunc, arrivals := manual()
	return newWriter(t, &parallel{fake: fake{append: appendFunc}, max: calls}, cfg), arrivals
}

// idle fails the test if another call arrives.
func idle(t *testing.T, calls <-chan arrival) {
	t.Helper()
	synctest.Wait()
	select {
	case call := <-calls:
		t.Fatalf("unexpected call: %q", call.names())
	default:
	}
}

func TestParallelWriterHasSeveralCallsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := parallelWriter(t, 3, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		log.entity("a").submit(t, w)
		a := <-calls
		log.entity("b").submit(t, w)
		b := <-calls
		log.entity("c").submit(t, w)
		c := <-calls
		log.entity("d").submit(t, w)
		log.entity("e").submit(t, w)
		idle(t, calls)
		b.answer <- nil
		d := <-calls
		expect(t, "the next call", d.names(), []string{"d@0", "e@0"})
		c.answer <- nil
		d.answer <- nil
		a.answer <- nil
		synctest.Wait()
		expect(t, "first outcome", log.take()[:1], []string{"b@0"})
	})
}

// The second stream belongs to a new incarnation of the same entity.
func TestParallelWriterNeverHasOneIDInTwoCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := parallelWriter(t, 3, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a, again, b := log.entity("a"), log.entity("a"), log.entity("b")
		a.submit(t, w)
		first := <-calls
		a.submit(t, w)
		again.seqNr = 10
		again.submit(t, w)
		a.submit(t, w)
		idle(t, calls)
		b.submit(t, w) // the waiting requests do not delay it
		other := <-calls
		expect(t, "the other call", other.names(), []string{"b@0"})
		b.submit(t, w)
		idle(t, calls)
		first.answer <- nil
		second := <-calls
		expect(t, "writes of the waiting requests", second.names(), []string{"a@1", "a@10", "a@2"})
		second.answer <- nil
		other.answer <- nil
		third := <-calls
		expect(t, "writes of the waiting requests", third.names(), []string{"b@1"})
		third.answer <- nil
		synctest.Wait()
	})
}

func TestParallelWriterSkipsRequestsThatWaitedForAFailedCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := parallelWriter(t, 2, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a, again := log.entity("a"), log.entity("a")
		a.submit(t, w)
		first := <-calls
		a.submit(t, w)
		again.seqNr = 10
		again.submit(t, w) // its own stream has not failed
		idle(t, calls)
		first.answer <- []error{errors.New("lost")}
		second := <-calls
		expect(t, "the next call", second.names(), []string{"a@10"})
		second.answer <- nil
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"a@0", "a@1", "a@10"})
		if err := log.err("a@1"); !errors.Is(err, journal.ErrSkipped) {
			t.Errorf("a@1: %v, want ErrSkipped", err)
		}
	})
}

// Requests that do not fit into a full batch go to an idle goroutine.
func TestParallelWriterSpreadsReleasedRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := parallelWriter(t, 2, journal.WriterConfig{MaxBatchWrites: 2})
		defer closeWriter(t, w)
		log := newLedger()
		a, b := log.entity("a"), log.entity("b")
		log.entity("blocker1").submit(t, w)
		blocker1 := <-calls
		log.entity("blocker2").submit(t, w)
		blocker2 := <-calls
		a.submit(t, w)
		b.submit(t, w)
		blocker1.answer <- nil
		both := <-calls
		blocker2.answer <- nil
		synctest.Wait()
		a.submit(t, w)
		b.submit(t, w)
		b.submit(t, w)
		idle(t, calls)
		both.answer <- nil
		first, second := <-calls, <-calls
		if len(first.writes) < len(second.writes) {
			first, second = second, first
		}
		expect(t, "one call", first.names(), []string{"b@1", "b@2"})
		expect(t, "the other", second.names(), []string{"a@1"})
		first.answer <- nil
		second.answer <- nil
	})
}

// New also finds a Parallel journal inside a wrapper.
func TestWriterUnwrapsJournals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		appendFunc, calls := manual()
		guarded, err := journal.WithBreaker(&parallel{fake: fake{append: appendFunc}, max: 2}, journal.BreakerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		w := newWriter(t, guarded, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		log.entity("a").submit(t, w)
		a := <-calls
		log.entity("b").submit(t, w)
		b := <-calls
		a.answer <- nil
		b.answer <- nil
	})
}
