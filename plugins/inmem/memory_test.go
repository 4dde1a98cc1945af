// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
)

// TestDeletedEventsAreFreed deletes the beginning of a long history, then the rest.
func TestDeletedEventsAreFreed(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	const total = 1000
	payloads := make([]weak.Pointer[[64]byte], total)
	w := journal.Write{ID: "a", Events: make([]journal.Event, total)}
	for i := range w.Events {
		payload := new([64]byte)
		payloads[i] = weak.Make(payload)
		w.Events[i] = journal.Event{SequenceNr: uint64(i + 1), Payload: payload[:]}
	}
	if errs := j.Append(t.Context(), []journal.Write{w}); errs != nil {
		t.Fatal(errs)
	}
	w.Events = nil
	for _, c := range []struct{ deleteTo, freed uint64 }{
		{0, 0},
		{600, 600},   // more than the remaining events
		{700, 600},   // fewer than the remaining events: the memory is kept
		{1000, 1000}, // all
	} {
		if err := j.DeleteTo(t.Context(), "a", c.deleteTo); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		for i, p := range payloads {
			want := uint64(i) < c.freed
			if got := freed(p, want); got != want {
				t.Fatalf("after a deletion up to %d, event %d is freed: %t, want %t", c.deleteTo, i+1, got, want)
			}
		}
	}
	runtime.KeepAlive(j)
}

// freed reports whether memory was freed. It may run more than one garbage collection.
func freed(p weak.Pointer[[64]byte], expected bool) bool {
	for range 100 {
		if p.Value() == nil || !expected {
			break
		}
		runtime.GC()
	}
	return p.Value() == nil
}

// TestCloseFreesAll checks that Close drops the contents even if the journal is still referenced.
func TestCloseFreesAll(t *testing.T) {
	t.Parallel()
	j := new(inmem.Journal)
	payload := new([64]byte)
	p := weak.Make(payload)
	if errs := j.Append(t.Context(), []journal.Write{{ID: "a", Events: []journal.Event{{SequenceNr: 1, Payload: payload[:]}}}}); errs != nil {
		t.Fatal(errs)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if !freed(p, true) {
		t.Error("the payload was not freed")
	}
	runtime.KeepAlive(j)
}

// TestRejectionNamesTheEvent checks that the error names the event that is too large, and its size.
func TestRejectionNamesTheEvent(t *testing.T) {
	t.Parallel()
	j := inmem.NewJournal()
	w := journal.Write{ID: "a", Events: []journal.Event{{SequenceNr: 1}, {SequenceNr: 2, Payload: make([]byte, 16<<20), Metadata: []byte{1}}}}
	errs := j.Append(t.Context(), []journal.Write{w})
	rejected, ok := errors.AsType[*journal.RejectedError](errors.Join(errs...))
	if !ok || rejected.SequenceNr != 2 || rejected.Reason.Error() != "it has 16777217 bytes, at most 16777216 are allowed" {
		t.Errorf("Append returned %v, want a rejection of event 2 with its size", errs)
	}
}
