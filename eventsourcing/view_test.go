// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
	"github.com/refold-io/refold/store"
)

type (
	lineView    = eventsourcing.View[actorEvent]
	viewOptions = eventsourcing.ViewOptions
)

// reader is the state of a view of the actor "1": the lines that it has seen.
type reader struct {
	*lineView

	s        *scene
	mu       sync.Mutex
	lines    []string // the state
	applied  []string // the calls of apply that succeeded
	refused  string   // the line for which apply fails
	loads    []string // the calls of Load
	unloaded bool     // Load fails
}

var errRefused = errors.New("refused line")

// view returns a reader.
func (s *scene) view(opts viewOptions) *reader {
	s.t.Helper()
	r := &reader{s: s}
	r.open(opts)
	return r
}

// savingView returns a reader with snapshots.
func (s *scene) savingView(name string, every int) *reader {
	s.t.Helper()
	r := &reader{s: s}
	r.open(r.saving(viewOptions{Name: name, SnapshotEvery: every}))
	return r
}

func (r *reader) open(opts viewOptions) {
	r.s.t.Helper()
	var err error
	if r.lineView, err = eventsourcing.NewView(r.s.rt, r.s.typ, "1", opts, r.apply); err != nil {
		r.s.t.Fatal(err)
	}
}

// saving adds the functions that save and load the lines.
func (r *reader) saving(opts viewOptions) viewOptions {
	opts.Save = func() ([]byte, error) { return json.Marshal(r.lines) }
	opts.Load = func(state []byte) error {
		r.loads = append(r.loads, string(state))
		if r.unloaded {
			return errors.New("unknown form")
		}
		return json.Unmarshal(state, &r.lines)
	}
	return opts
}

func (r *reader) apply(v eventsourcing.Viewed[actorEvent]) error {
	text := v.Event.(line).Text //nolint:errcheck,forcetypeassert // there is no other
	if text == r.refused {
		return errRefused
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines, r.applied = append(r.lines, text), append(r.applied, text)
	return nil
}

func (r *reader) update() error { return r.Update(context.Background()) }

// expectUpdate updates and compares the calls of apply since the last check.
func (r *reader) expectUpdate(want ...string) {
	r.s.t.Helper()
	if err := r.update(); err != nil {
		r.s.t.Errorf("update: %v", err)
	}
	r.expectApplied(want...)
}

func (r *reader) expectApplied(want ...string) {
	r.s.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.applied, want) {
		r.s.t.Errorf("the view applied %q, want %q", r.applied, want)
	}
	r.applied = nil
}

// expectState compares the state and the sequence number.
func (r *reader) expectState(seqNr uint64, want string) {
	r.s.t.Helper()
	if got := strings.Join(r.lines, " "); got != want || r.SequenceNr() != seqNr {
		r.s.t.Errorf("the state of the view at %d is %q, want %q at %d", r.SequenceNr(), got, want, seqNr)
	}
}

// savedViews lists the numbers of the snapshots of a view of the actor "1".
func (s *scene) savedViews(name string) (numbers []uint64) {
	s.t.Helper()
	for md, err := range s.snapshots.List(context.Background(), "refold.view|"+name+"|actor|1", snapshot.Latest()) {
		if err != nil {
			s.t.Fatal(err)
		}
		numbers = append(numbers, md.SequenceNr)
	}
	return numbers
}

func (s *scene) expectSavedViews(name string, want ...uint64) {
	s.t.Helper()
	if got := s.savedViews(name); !slices.Equal(got, want) {
		s.t.Errorf("the view %q has snapshots at %d, want %d", name, got, want)
	}
}

// TestViewRuns checks that Run reads at once and then at each interval, and ends with its context.
func TestViewRuns(t *testing.T) {
	t.Parallel()
	for interval, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t).open()
			defer s.close()
			s.mustAsk(addLines("a"))
			r := s.view(viewOptions{Interval: interval})
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := later(func() (struct{}, error) { return struct{}{}, r.Run(ctx) })
			synctest.Wait()
			r.expectApplied("a")
			s.mustAsk(addLines("b"))
			pass(want - 1)
			r.expectApplied()
			pass(1)
			r.expectApplied("b")
			pass(10 * want)
			r.expectApplied()
			s.mustAsk(addLines("c"))
			pass(want)
			r.expectApplied("c")
			enough := errors.New("enough")
			cancel(enough)
			if _, err := ended(); !errors.Is(err, enough) {
				t.Errorf("Run returned %v, want the cause of the context", err)
			}
		})
	}
}

// TestViewLimit checks that an update ends at MaxEvents, and that Run then continues without a pause.
func TestViewLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		r := s.view(viewOptions{MaxEvents: 2, Interval: time.Hour})
		expectPending := func(want bool) {
			t.Helper()
			if got := r.Pending(); got != want {
				t.Errorf("after event %d, Pending is %t, want %t", r.SequenceNr(), got, want)
			}
		}
		expectPending(false)
		s.mustAsk(addLines("a", "b", "c", "d", "e"))
		r.expectUpdate("a", "b")
		expectPending(true)
		r.expectUpdate("c", "d")
		expectPending(true)
		r.expectUpdate("e")
		expectPending(false)
		s.mustAsk(addLines("f", "g"))
		r.expectUpdate("f", "g")
		expectPending(false)

		s.mustAsk(addLines("h", "i", "j"))
		r.refused = "i"
		expectError(t, r.update(), errRefused)
		expectPending(false)
		r.expectApplied("h")
		r.refused = ""
		ctx, cancel := context.WithCancel(t.Context())
		s.mustAsk(addLines("k", "l", "m"))
		began := time.Now()
		ended := later(func() (struct{}, error) { return struct{}{}, r.Run(ctx) })
		synctest.Wait()
		r.expectApplied("i", "j", "k", "l", "m")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("Run waited %v between updates", waited)
		}
		cancel()
		_, err := ended()
		expectError(t, err, context.Canceled)
	})
}

// TestViewLimitEndsWithTheContext checks that Run ends between two updates without a pause.
func TestViewLimitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("a", "b", "c"))
		ctx, cancel := context.WithCancelCause(t.Context())
		enough, seen := errors.New("enough"), 0
		view, err := eventsourcing.NewView(s.rt, s.typ, "1", viewOptions{MaxEvents: 1}, func(eventsourcing.Viewed[actorEvent]) error {
			seen++
			cancel(enough)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err = view.Run(ctx); !errors.Is(err, enough) || seen != 1 {
			t.Errorf("Run returned %v after %d events, want the cause of the context after 1", err, seen)
		}
	})
}

// TestViewStopsAtFailures checks that a failed update ends Run, keeps what was applied before, and is
// repeated with the same event.
func TestViewStopsAtFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		lossy := &lossyJournal{Journal: s.journal}
		s.cfg.Store = store.Of(lossy, s.snapshots)
		s.open()
		defer s.close()
		s.mustAsk(addLines("a", "b", "c", "d"))
		r := s.view(viewOptions{})
		r.refused = "b"
		expectError(t, r.Run(t.Context()), errRefused)
		r.expectApplied("a")
		r.expectState(1, "a")
		expectError(t, r.update(), errRefused)
		r.expectApplied()
		r.refused = ""

		lossy.missing = 3
		err := r.Run(t.Context())
		gap := &journal.GapError{}
		if !errors.As(err, &gap) || *gap != (journal.GapError{ID: "actor|1", Want: 3, Got: 4}) {
			t.Errorf("Run returned %v, want a gap at 3", err)
		}
		r.expectApplied("b")
		r.expectState(2, "a b")
		lossy.missing = 0

		s.journal.Inject(journaltest.Fault{Op: journaltest.OpReplay})
		expectError(t, r.Run(t.Context()), journaltest.ErrInjected)
		r.expectUpdate("c", "d")
		r.expectState(4, "a b c d")
	})
}

// TestViewBegins checks ViewOptions.After, and that deleted events that the view needs are a gap.
func TestViewBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("a", "b", "c"))
		s.view(viewOptions{After: 1}).expectUpdate("b", "c")
		if err := s.journal.DeleteTo(t.Context(), "actor|1", 2); err != nil {
			t.Fatal(err)
		}
		expectError(t, s.view(viewOptions{After: 1}).update(), journal.ErrHistoryGap)
		s.view(viewOptions{After: 2}).expectUpdate("c")
	})
}

// TestViewOfDeletedEvents checks that an update fails if all events that the view lacks are deleted,
// also before the entity has a next event.
func TestViewOfDeletedEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.view(viewOptions{}).expectUpdate()
		s.mustAsk(addLines("a", "b", "c", "d"))
		expectGap := func(r *reader, want, got uint64) {
			t.Helper()
			for range 2 {
				err := r.update()
				gap, ok := errors.AsType[*journal.GapError](err)
				if !ok || *gap != (journal.GapError{ID: "actor|1", Want: want, Got: got}) || r.Pending() {
					t.Errorf("the error of the update after event %d is %v, want a gap at %d that ends at %d", r.SequenceNr(), err, want, got)
				}
			}
		}
		ahead, behind, saving := s.view(viewOptions{}), s.view(viewOptions{MaxEvents: 1}), s.savingView("one", 1)
		ahead.expectUpdate("a", "b", "c", "d")
		behind.expectUpdate("a")
		saving.expectUpdate("a", "b", "c", "d")
		if err := s.journal.DeleteTo(t.Context(), "actor|1", 3); err != nil {
			t.Fatal(err)
		}
		expectGap(behind, 2, 0) // the limit of the update is before event 4
		expectGap(s.view(viewOptions{After: 1}), 2, 4)
		if err := s.journal.DeleteTo(t.Context(), "actor|1", 4); err != nil {
			t.Fatal(err)
		}
		expectGap(behind, 2, 0)
		expectGap(s.view(viewOptions{}), 1, 0)
		expectGap(s.view(viewOptions{After: 3}), 4, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		expectError(t, behind.Run(ctx), journal.ErrHistoryGap)

		for _, current := range []*reader{ahead, s.view(viewOptions{After: 4}), s.savingView("one", 1)} {
			current.expectUpdate()
			current.expectUpdate()
		}
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest})
		expectError(t, ahead.update(), journaltest.ErrInjected)
		s.mustAsk(addLines("e"))
		ahead.expectUpdate("e")
	})
}

// countedJournal counts the calls of HighestSequenceNr, and calls a function before the next one.
type countedJournal struct {
	journal.Journal
	calls  int
	before func()
}

func (j *countedJournal) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	j.calls++
	if do := j.before; do != nil {
		j.before = nil
		do()
	}
	return j.Journal.HighestSequenceNr(ctx, id)
}

// TestViewDuringAppend checks that an event that is stored during an update is no gap, and that only an
// update that finds no event reads the highest sequence number.
func TestViewDuringAppend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		counted := &countedJournal{Journal: s.journal}
		s.cfg.Store = store.Of(counted, s.snapshots)
		s.open()
		defer s.close()
		s.mustAsk(addLines("a"))
		r := s.view(viewOptions{})
		expectCalls := func(want int) {
			t.Helper()
			if counted.calls != want {
				t.Errorf("the journal has returned the highest number %d times, want %d", counted.calls, want)
			}
			counted.calls = 0
		}
		counted.calls = 0 // of the recovery
		r.expectUpdate("a")
		expectCalls(0)
		r.expectUpdate()
		expectCalls(1)
		counted.before = func() { s.mustAsk(addLines("b", "c")) }
		r.expectUpdate("b", "c")
		expectCalls(1)
	})
}

// TestViewPassesFences checks that a fence counts as a stored event and is not applied.
func TestViewPassesFences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("1"))
		s.journal.Inject(journaltest.Fault{})
		_, err := s.ask(addLines("lost"))
		expectError(t, err, eventsourcing.ErrNotStored)
		atEnd := s.view(viewOptions{})
		atEnd.expectUpdate("1")
		atEnd.expectState(2, "1")
		atEnd.expectUpdate()
		s.view(viewOptions{After: 1}).expectUpdate()
		s.mustAsk(addLines("3"))
		s.expectStored("1", "-", "3")
		r := s.view(viewOptions{MaxEvents: 2})
		r.expectUpdate("1")
		r.expectState(2, "1")
		r.expectUpdate("3")
		r.expectState(3, "1 3")
		s.savingView("fence", 2).expectUpdate("1", "3")
		s.expectSavedViews("fence", 2)
		again := s.savingView("fence", 2)
		again.expectUpdate("3")
		again.expectState(3, "1 3")
	})
}

// TestViewOfUpcastEvents checks a stored event that decodes to several events or to none. Each of
// them is applied once, also if a later one fails. A snapshot is saved only after all of them.
func TestViewOfUpcastEvents(t *testing.T) {
	t.Parallel()
	type oldLine struct{ Text string }
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("a", "b c d", "", "e"))
		s.typ.Events = codec.Types(
			codec.Name[line]("line").Version(2),
			codec.Split("line", 1, func(old oldLine) (events []any, err error) {
				for text := range strings.FieldsSeq(old.Text) {
					events = append(events, line{text})
				}
				return events, nil
			}),
		)
		r := s.savingView("words", 1)
		r.refused = "c"
		expectError(t, r.update(), errRefused)
		r.expectApplied("a", "b")
		r.expectState(1, "a b")
		s.expectSavedViews("words", 1)
		r.refused = "d"
		expectError(t, r.update(), errRefused)
		r.expectApplied("c")
		r.refused = ""
		r.expectUpdate("d", "e")
		r.expectState(4, "a b c d e")
		s.expectSavedViews("words", 4)

		limited := s.view(viewOptions{MaxEvents: 2})
		limited.expectUpdate("a", "b", "c", "d")
		limited.expectUpdate("e")
		limited.expectState(4, "a b c d e")
	})
}

// TestViewSnapshots checks that views continue at their own snapshots. Those of the entity and of
// other views have other IDs.
func TestViewSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Snapshots.Every = 4
		s.open()
		s.mustAsk(addLines("a", "b", "c", "d"))
		r, other := s.savingView("one", 2), s.savingView("two", 3)
		r.expectUpdate("a", "b", "c", "d")
		other.expectUpdate("a", "b", "c", "d")
		s.mustAsk(addLines("e"))
		r.expectUpdate("e")
		s.expectSavedViews("one", 4)
		s.expectSavedViews("two", 3)
		synctest.Wait()
		s.expectSaved(4)
		s.reopen()
		defer s.close()

		r = s.savingView("one", 2)
		if r.SequenceNr() != 0 {
			t.Errorf("the view is at %d before the first update, want 0", r.SequenceNr())
		}
		r.expectUpdate("e")
		r.expectState(5, "a b c d e")
		other = s.savingView("two", 3)
		other.expectUpdate("d", "e")
		other.expectState(5, "a b c d e")
		s.mustAsk(addLines("f"))
		r.expectUpdate("f")
		if r.update(); len(r.loads) != 1 { //nolint:errcheck // there is no new event
			t.Errorf("the view loaded %q, want one snapshot", r.loads)
		}
		s.expectSavedViews("one", 6) // two events after the snapshot
		s.savingView("three", 2).expectUpdate("a", "b", "c", "d", "e", "f")

		// The view does not need the events that its snapshot covers.
		if err := s.journal.DeleteTo(t.Context(), "actor|1", 6); err != nil {
			t.Fatal(err)
		}
		s.mustAsk(addLines("g"))
		s.savingView("one", 2).expectUpdate("g")
		expectError(t, s.savingView("new", 2).update(), journal.ErrHistoryGap)
	})
}

// TestViewSnapshotAndAfter checks that only a snapshot above After is loaded.
func TestViewSnapshotAndAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("a", "b", "c"))
		s.savingView("one", 2).expectUpdate("a", "b", "c")
		for after, want := range map[uint64]string{1: "a b c", 2: "c"} {
			r := &reader{s: s}
			r.open(r.saving(viewOptions{After: after, Name: "one", SnapshotEvery: 2}))
			r.expectUpdate("c")
			r.expectState(3, want)
		}
	})
}

// TestViewSnapshotCannotBeLoaded checks that a view without a usable snapshot applies all events.
func TestViewSnapshotCannotBeLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("a", "b", "c"))
		s.savingView("one", 2).expectUpdate("a", "b", "c")
		for _, failure := range []error{snapshottest.ErrInjected, snapshot.ErrCorrupt, snapshot.ErrNewerVersion} {
			s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, Err: failure})
			r := s.savingView("one", 100)
			r.expectUpdate("a", "b", "c")
			r.expectState(3, "a b c")
		}

		// A view that has applied an event does not return to the snapshot.
		s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad})
		r := s.savingView("one", 100)
		r.refused = "b"
		expectError(t, r.update(), errRefused)
		r.refused = ""
		r.expectUpdate("a", "b", "c")

		r = s.savingView("one", 1)
		r.unloaded = true
		r.expectUpdate("a", "b", "c")
		r.expectState(3, "a b c")
		if !slices.Equal(r.loads, []string{`["a","b"]`}) {
			t.Errorf("the view loaded %q, want the snapshot once", r.loads)
		}
		s.expectSavedViews("one", 3)

		// An older snapshot is tried next, such as one that was saved after a replay of all events.
		s.mustAsk(addLines("d"))
		bad := snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "refold.view|one|actor|1", SequenceNr: 4}, Payload: []byte("{")}
		if err := s.snapshots.Save(t.Context(), bad); err != nil {
			t.Fatal(err)
		}
		r = s.savingView("one", 100)
		r.expectUpdate("d")
		r.expectState(4, "a b c d")

		// The update ends with its context. The next one loads the snapshot.
		stalled := s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, Do: snapshottest.Stall})
		r = s.savingView("one", 100)
		ctx, cancel := context.WithCancel(t.Context())
		ended := later(func() (struct{}, error) { return struct{}{}, r.Update(ctx) })
		<-stalled.Struck()
		cancel()
		_, err := ended()
		expectError(t, err, context.Canceled)
		r.expectApplied()
		r.expectUpdate("d")
		r.expectState(4, "a b c d")
	})
}

// TestViewTriesItsSnapshotAgain checks that a view that has applied nothing yet loads its snapshot in
// a later update, such as after a failure of the store, if the events before it are deleted.
func TestViewTriesItsSnapshotAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("a", "b", "c"))
		s.savingView("one", 2).expectUpdate("a", "b", "c")
		if err := s.journal.DeleteTo(t.Context(), "actor|1", 2); err != nil {
			t.Fatal(err)
		}
		s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad})
		r := s.savingView("one", 2)
		expectError(t, r.update(), journal.ErrHistoryGap)
		r.expectUpdate("c")
		r.expectState(3, "a b c")
	})
}

// TestViewSnapshotAboveTheJournal checks that a view refuses a snapshot of events that the journal does
// not have.
func TestViewSnapshotAboveTheJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		s.mustAsk(addLines("a", "b", "c"))
		s.savingView("one", 3).expectUpdate("a", "b", "c")
		s.close()
		s.journal = journaltest.NewFaulty(inmem.NewJournal())
		s.cfg.Store = store.Of(s.journal, s.snapshots)
		s.open()
		defer s.close()
		s.mustAsk(addLines("x", "y"))
		r := s.savingView("one", 3)
		for range 2 {
			err := r.update()
			expectError(t, err, journal.ErrHistoryGap)
			if err != nil && !strings.Contains(err.Error(), `the snapshot "refold.view|one|actor|1" covers event 3`) {
				t.Errorf("the error is %q, want the ID and the number of the snapshot", err)
			}
		}
		r.expectState(0, "")
		if len(r.loads) != 0 {
			t.Errorf("the view loaded %q", r.loads)
		}
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest})
		expectError(t, r.update(), journaltest.ErrInjected)
	})
}

// TestViewSnapshotCannotBeSaved checks that a view continues without a snapshot, and saves the next one
// after SnapshotEvery events.
func TestViewSnapshotCannotBeSaved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("a", "b", "c"))
		s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpSave})
		r := s.savingView("one", 2)
		r.expectUpdate("a", "b", "c")
		s.expectSavedViews("one")
		s.mustAsk(addLines("d"))
		r.expectUpdate("d")
		s.expectSavedViews("one", 4)

		failing, calls := &reader{s: s}, 0
		opts := failing.saving(viewOptions{Name: "two", SnapshotEvery: 3})
		opts.Save = func() ([]byte, error) {
			calls++
			return nil, errors.New("not encoded")
		}
		failing.open(opts)
		failing.expectUpdate("a", "b", "c", "d")
		s.expectSavedViews("two")
		if calls != 1 {
			t.Errorf("Save was called %d times, want 1", calls)
		}

		// The old snapshot remains until a later deletion succeeds.
		s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpDelete})
		s.mustAsk(addLines("e", "f"))
		r.expectUpdate("e", "f")
		s.expectSavedViews("one", 6, 4)
		s.mustAsk(addLines("g", "h"))
		r.expectUpdate("g", "h")
		s.expectSavedViews("one", 8)
	})
}

// TestViewSnapshotsInTheStoreOfTheType checks that the snapshots of a view are in HostOptions.Store.
func TestViewSnapshotsInTheStoreOfTheType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		_, shared := s.withOwnStore()
		s.open()
		defer s.close()
		s.mustAsk(addLines("a", "b"))
		s.savingView("one", 1).expectUpdate("a", "b")
		s.expectSavedViews("one", 2)
		for md, err := range shared.List(t.Context(), "refold.view|one|actor|1", snapshot.Latest()) {
			t.Errorf("the snapshot store of the runtime contains %+v, %v", md, err)
		}
		s.savingView("one", 1).expectUpdate()
	})
}

// TestInvalidViewOptions checks that the error names the field.
func TestInvalidViewOptions(t *testing.T) {
	t.Parallel()
	s := newScene(t).open()
	defer s.close()
	complete := func(change func(o *viewOptions)) viewOptions {
		o := new(reader).saving(viewOptions{Name: "one", SnapshotEvery: 1})
		change(&o)
		return o
	}
	longest := strings.Repeat("x", journal.MaxIDLength-13-len("actor|1"))
	for field, opts := range map[string]viewOptions{
		"":                               complete(func(o *viewOptions) { o.Name = longest }),
		"ViewOptions.Interval is -1ns":   {Interval: -1},
		"ViewOptions.MaxEvents is -1":    {MaxEvents: -1},
		`ViewOptions.Name "" is`:         complete(func(o *viewOptions) { o.Name = "" }),
		`ViewOptions.Name " " is`:        complete(func(o *viewOptions) { o.Name = " " }),
		`ViewOptions.Name "a|b" is`:      complete(func(o *viewOptions) { o.Name = "a|b" }),
		"ViewOptions.Name: ":             complete(func(o *viewOptions) { o.Name = longest + "x" }),
		"ViewOptions.SnapshotEvery is 0": complete(func(o *viewOptions) { o.SnapshotEvery = 0 }),
		"ViewOptions.SnapshotEvery is -": complete(func(o *viewOptions) { o.SnapshotEvery = -1 }),
		"ViewOptions.Save is missing":    complete(func(o *viewOptions) { o.Save = nil }),
		"ViewOptions.Load is missing":    complete(func(o *viewOptions) { o.Load = nil }),
		"is missing: a view with snap":   {Name: "one"},
		"ViewOptions.Load is missing: ":  {SnapshotEvery: 1},
	} {
		_, err := eventsourcing.NewView(s.rt, s.typ, "1", opts, func(eventsourcing.Viewed[actorEvent]) error { return nil })
		if field == "" {
			if err != nil {
				t.Errorf("the longest name is refused: %v", err)
			}
			continue
		}
		if !errors.Is(err, eventsourcing.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("the error is %v, want ErrInvalid with %q", err, field)
		}
	}
	if _, err := eventsourcing.NewView(s.rt, s.typ, "1", viewOptions{}, nil); !errors.Is(err, eventsourcing.ErrInvalid) {
		t.Errorf("without apply, the error is %v, want ErrInvalid", err)
	}
}

// TestViewNeedsStores checks the errors without a journal and without a snapshot store.
func TestViewNeedsStores(t *testing.T) {
	t.Parallel()
	for _, stores := range []struct {
		journal journal.Journal
		want    error
	}{{nil, eventsourcing.ErrNoJournal}, {inmem.NewJournal(), eventsourcing.ErrNoSnapshots}} {
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(stores.journal, nil)})
		if err != nil {
			t.Fatal(err)
		}
		opts := new(reader).saving(viewOptions{Name: "one", SnapshotEvery: 1})
		_, err = eventsourcing.NewView(rt, newScene(t).typ, "1", opts, func(eventsourcing.Viewed[actorEvent]) error { return nil })
		expectError(t, err, stores.want)
		if err = rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
