// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
)

func TestWriterRejectsInvalidWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*journal.Write)
		seqNr uint64
	}{
		"a write too large":  {func(w *journal.Write) { w.Events[0].Payload = make([]byte, 95) }, 0},
		"an event too large": {func(w *journal.Write) { w.Events[0].Tags = []string{strings.Repeat("t", 101)} }, 2},
		"no events":          {func(w *journal.Write) { w.Events = nil }, 0},
		"a wrong number":     {func(w *journal.Write) { w.Events[0].SequenceNr = 9 }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, calls := manualWriter(t, journal.WriterConfig{MaxBatchBytes: 100})
				defer closeWriter(t, w)
				log := newLedger()
				id := "persistence-id"
				a, b := log.entity(id), log.entity("b")
				a.submit(t, w)
				call := <-calls
				bad := a.write("x")
				c.spoil(&bad.Write)
				if !w.Submit(bad) {
					t.Fatal("Submit returned false, want true")
				}
				a.submit(t, w)
				b.submit(t, w)
				expect(t, "outcomes while the first call is in flight", log.take(), nil)
				call.answer <- nil
				call = <-calls
				expect(t, "writes", call.names(), []string{"b@0"})
				a.submit(t, w)
				call.answer <- nil
				synctest.Wait()
				expect(t, "outcomes", log.take(), []string{id + "@0", id + "@1", id + "@2", "b@0", id + "@3"})
				rejected, ok := errors.AsType[*journal.RejectedError](log.err(id + "@1"))
				if !ok || rejected.ID != id || rejected.SequenceNr != c.seqNr {
					t.Errorf("got %#v, want a RejectedError about event %d of %s", rejected, c.seqNr, id)
				}
				for _, later := range []string{id + "@2", id + "@3"} {
					if err := log.err(later); !errors.Is(err, journal.ErrSkipped) {
						t.Errorf("%s: %v, want ErrSkipped", later, err)
					}
				}
				w.Reset(&a.stream)
				a.submit(t, w)
				(<-calls).answer <- nil
			})
		})
	}
}

// A write that must be rejected is skipped like any other if an earlier write fails first.
func TestWriterSkipsARejectedWriteAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{})
		defer closeWriter(t, w)
		log := newLedger()
		a := log.entity("a")
		log.entity("blocker").submit(t, w)
		call := <-calls
		a.submit(t, w)
		bad := a.write("x")
		bad.Write.Events = nil
		if !w.Submit(bad) {
			t.Fatal("Submit returned false, want true")
		}
		call.answer <- nil
		call = <-calls
		expect(t, "writes", call.names(), []string{"a@0"})
		call.answer <- []error{&journal.ConflictError{}}
		synctest.Wait()
		expect(t, "outcomes", log.take(), []string{"blocker@0", "a@0", "a@1"})
		if err := log.err("a@1"); !errors.Is(err, journal.ErrSkipped) {
			t.Errorf("a@1: %v, want ErrSkipped", err)
		}
	})
}

func TestWriterKeepsTheLimitsOfABatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  journal.WriterConfig
		want [][]string
	}{
		"writes": {journal.WriterConfig{MaxBatchWrites: 2}, [][]string{{"a@0", "a@1"}, {"a@2", "a@3"}, {"a@4"}}},
		// A write has one byte each for its ID, writer and manifest, plus its payload.
		"bytes": {journal.WriterConfig{MaxBatchBytes: 10}, [][]string{{"a@0", "a@1"}, {"a@2"}, {"a@3", "a@4"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, calls := manualWriter(t, c.cfg)
				defer closeWriter(t, w)
				log := newLedger()
				a := log.entity("a")
				log.entity("blocker").submit(t, w)
				call := <-calls
				for _, payload := range []string{"1", "12", "1234567", "1", "1"} {
					if !w.Submit(a.write(payload)) {
						t.Fatal("Submit returned false, want true")
					}
				}
				for _, want := range c.want {
					call.answer <- nil
					call = <-calls
					expect(t, "batch", call.names(), want)
				}
				call.answer <- nil
			})
		})
	}
}

func TestWriterReportsCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var commits []journal.CommitInfo
		log := newLedger()
		appendFunc, calls := manual()
		w := newWriter(t, &fake{append: appendFunc}, journal.WriterConfig{OnCommit: func(c journal.CommitInfo) {
			commits = append(commits, c)
			log.record("commit", nil)
		}})
		log.entity("blocker").submit(t, w)
		call := <-calls
		a, b := log.entity("a"), log.entity("b")
		if !w.Submit(a.write("12", "345")) {
			t.Fatal("Submit returned false, want true")
		}
		b.submit(t, w)
		time.Sleep(time.Second)
		call.answer <- nil
		call = <-calls
		time.Sleep(2 * time.Second)
		call.answer <- []error{nil, &journal.ConflictError{}}
		closeWriter(t, w)
		expect(t, "order", log.take(), []string{"commit", "blocker@0", "commit", "a@0", "b@0"})
		want := []journal.CommitInfo{
			{Writes: 1, Events: 1, Bytes: len("blocker") + 3, Duration: time.Second},
			{Writes: 2, Events: 3, Bytes: 2 + 2 + 5 + 4, Failed: 1, Duration: 2 * time.Second},
		}
		if len(commits) != 2 || commits[0] != want[0] || commits[1] != want[1] {
			t.Errorf("got %+v, want %+v", commits, want)
		}
	})
}

func TestWriterConfigErrorNamesEachField(t *testing.T) {
	t.Parallel()
	_, err := groupcommit.New(&fake{}, journal.WriterConfig{
		MaxQueuedWrites: -1, MaxQueuedBytes: -1, MaxBatchWrites: -1, MaxBatchBytes: 64<<20 + 1,
	})
	if !errors.Is(err, journal.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, field := range []string{"MaxQueuedWrites", "MaxQueuedBytes", "MaxBatchWrites", "MaxBatchBytes"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("the error is %q, want one that names %s", err, field)
		}
	}
	if _, err := groupcommit.New(nil, journal.WriterConfig{}); !errors.Is(err, journal.ErrInvalid) {
		t.Errorf("New without a journal: %v, want ErrInvalid", err)
	}
}

// A process may hold a million streams and a million requests.
func TestStreamAndRequestAreSmall(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(groupcommit.Stream{}); size > 8 {
		t.Errorf("a Stream has %d bytes, want at most 8", size)
	}
	if size := unsafe.Sizeof(groupcommit.Request{}); size > 144 {
		t.Errorf("a Request has %d bytes, want at most 144", size)
	}
}
