// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
)

// wantNoRoom submits the entity's next write, checks that there is no room for it, and returns it.
func (e *entity) wantNoRoom(t *testing.T, w *groupcommit.Writer) *groupcommit.Request {
	t.Helper()
	r := e.write("x")
	if w.Submit(r) {
		t.Fatalf("Submit accepted %s@%d, want no room", r.Write.ID, r.Write.Expect)
	}
	return r
}

func TestWriterGrantsRoomInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedWrites: 2, MaxBatchWrites: 1})
		defer closeWriter(t, w)
		log := newLedger()
		log.entity("blocker").submit(t, w)
		call := <-calls
		log.entity("q1").submit(t, w)
		log.entity("q2").submit(t, w)
		a, b, c := log.entity("a"), log.entity("b"), log.entity("c")
		ra := a.wantNoRoom(t, w)
		rb := b.wantNoRoom(t, w)
		rc := c.wantNoRoom(t, w)
		call.answer <- nil
		call = <-calls // q1 frees one place
		expect(t, "notifications", log.take(), []string{"blocker@0", "room a"})
		late := log.entity("late")
		late.wantNoRoom(t, w) // no request may overtake the waiting owners
		if !w.Submit(ra) {
			t.Error("Submit returned false after Room was called, want true")
		}
		a.wantNoRoom(t, w) // a has used its place
		call.answer <- nil
		call = <-calls // q2
		expect(t, "notifications", log.take(), []string{"q1@0", "room b"})
		if !w.Submit(rb) {
			t.Error("Submit returned false after Room was called, want true")
		}
		call.answer <- nil
		call = <-calls // a
		expect(t, "notifications", log.take(), []string{"q2@0", "room c"})
		if !w.Submit(rc) {
			t.Error("Submit returned false after Room was called, want true")
		}
		call.answer <- nil
		call = <-calls // b
		expect(t, "notifications", log.take(), []string{"a@0", "room late"})
		call.answer <- nil
		call = <-calls // c; late does not submit
		expect(t, "notifications", log.take(), []string{"b@0", "room a"})
		call.answer <- nil
	})
}

// Owners whose Room was called and that do not submit delay no other owner.
func TestWriterGrantsUnusedRoomToOthers(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedWrites: limit})
				defer closeWriter(t, w)
				log := newLedger()
				log.entity("blocker").submit(t, w)
				call := <-calls
				for i := range limit {
					log.entity(fmt.Sprintf("q%d", i)).submit(t, w)
				}
				const waiting = 20
				var want []string
				for i := range waiting {
					e := log.entity(fmt.Sprintf("e%d", i))
					e.wantNoRoom(t, w)
					want = append(want, "room "+e.id)
				}
				call.answer <- nil
				(<-calls).answer <- nil
				synctest.Wait()
				notified := slices.DeleteFunc(log.take(), func(s string) bool { return s[:4] != "room" })
				expect(t, "notifications", notified, want)
				log.entity("new").submit(t, w) // no place was lost
				(<-calls).answer <- nil
			})
		})
	}
}

// Owners call Submit from Room and Written.
func TestWriterMayBeCalledByOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedWrites: 1})
		defer closeWriter(t, w)
		log := newLedger()
		log.entity("blocker").submit(t, w)
		call := <-calls
		log.entity("q").submit(t, w)
		a := log.entity("a")
		r := a.wantNoRoom(t, w)
		a.room = func() {
			if !w.Submit(r) {
				t.Error("Submit returned false after Room was called, want true")
			}
			w.Reset(&a.stream)
		}
		call.answer <- nil
		call = <-calls
		expect(t, "writes", call.names(), []string{"q@0"})
		call.answer <- nil
		call = <-calls
		expect(t, "writes", call.names(), []string{"a@0"})
		call.answer <- nil
	})
}

func TestWriterBoundsQueuedBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedBytes: 10, MaxBatchBytes: 50})
		defer closeWriter(t, w)
		log := newLedger()
		log.entity("b").submit(t, w)
		call := <-calls
		big, small, other := log.entity("x"), log.entity("y"), log.entity("z")
		if !w.Submit(big.write("a payload that is larger than the queue")) {
			t.Fatal("the empty queue did not accept a large request")
		}
		r1, r2 := small.wantNoRoom(t, w), other.wantNoRoom(t, w)
		call.answer <- nil
		call = <-calls
		expect(t, "notifications", log.take(), []string{"b@0", "room y", "room z"})
		if !w.Submit(r1) || !w.Submit(r2) {
			t.Error("Submit returned false, want true")
		}
		small.wantNoRoom(t, w)
		call.answer <- nil
		(<-calls).answer <- nil
		synctest.Wait()
	})
}

func TestWriterGrantsFreeBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedBytes: 10})
		defer closeWriter(t, w)
		log := newLedger()
		log.entity("b").submit(t, w)
		call := <-calls
		log.entity("q").submit(t, w)
		big := log.entity("x")
		if w.Submit(big.write("1234567890")) {
			t.Fatal("Submit accepted a request above the limit of the queue")
		}
		for _, id := range []string{"1", "2", "3"} {
			log.entity(id).wantNoRoom(t, w) // a small request would fit, but must not overtake the large one
		}
		call.answer <- nil
		call = <-calls // q
		expect(t, "notifications", log.take(), []string{"b@0", "room x"})
		call.answer <- nil
		synctest.Wait() // x does not submit
		expect(t, "notifications", log.take(), []string{"q@0", "room 1", "room 2", "room 3"})
	})
}

func TestWriterFreesBytesOfSentRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedBytes: 10, MaxBatchWrites: 1})
		defer closeWriter(t, w)
		a := newLedger().entity("a")
		a.submit(t, w)
		call := <-calls
		a.submit(t, w)
		a.submit(t, w)
		for range 10 {
			call.answer <- nil
			call = <-calls
			a.submit(t, w)
		}
		for range 2 {
			call.answer <- nil
			call = <-calls
		}
		call.answer <- nil
	})
}

func TestWriterKeepsThePositionOfGrantedOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedWrites: 2, MaxBatchWrites: 1})
		defer closeWriter(t, w)
		log := newLedger()
		log.entity("blocker").submit(t, w)
		call := <-calls
		q := log.entity("q")
		q.submit(t, w)
		q.submit(t, w)
		a := log.entity("a")
		r := a.wantNoRoom(t, w)
		call.answer <- nil
		call = <-calls
		expect(t, "notifications", log.take(), []string{"blocker@0", "room a"})
		log.entity("late").wantNoRoom(t, w)
		if !w.Submit(r) {
			t.Error("Submit returned false after Room was called, want true")
		}
		for range 2 {
			call.answer <- nil
			call = <-calls
		}
		call.answer <- nil
	})
}

// A call of Room does not enlarge the queue. Owners whose Submit then fails keep their position.
func TestWriterRoomDoesNotReservePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, calls := manualWriter(t, journal.WriterConfig{MaxQueuedWrites: 1})
		defer closeWriter(t, w)
		log := newLedger()
		log.entity("blocker").submit(t, w)
		call := <-calls
		log.entity("q").submit(t, w)
		a, b := log.entity("a"), log.entity("b")
		ra := a.wantNoRoom(t, w)
		call.answer <- nil
		call = <-calls // q
		expect(t, "notifications", log.take(), []string{"blocker@0", "room a"})
		log.entity("thief").submit(t, w) // no owner waits, and the queue is empty
		rb := b.wantNoRoom(t, w)
		if w.Submit(ra) {
			t.Error("Submit accepted a request above the limit of the queue")
		}
		call.answer <- nil
		call = <-calls // thief
		expect(t, "notifications", log.take(), []string{"q@0", "room a"})
		if !w.Submit(ra) {
			t.Error("Submit returned false, want true")
		}
		call.answer <- nil
		call = <-calls // a
		expect(t, "notifications", log.take(), []string{"thief@0", "room b"})
		if !w.Submit(rb) {
			t.Error("Submit returned false, want true")
		}
		call.answer <- nil
		(<-calls).answer <- nil
	})
}
