// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/store"
)

// ids collects the results of IDs.
func (s *scene) ids(ctx context.Context) (ids []string, err error) {
	for id, err := range s.actors.IDs(ctx) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func TestIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		for _, id := range []string{"b", "a|c", "a"} {
			if _, err := s.askOf(t.Context(), id, addLines("1")); err != nil {
				t.Fatal(err)
			}
		}
		for _, pid := range []string{"actos|1", "act|1", "actor", "actor}"} { // of other types
			w := journal.Write{ID: pid, Writer: "w", Events: []journal.Event{{SequenceNr: 1, Manifest: "m"}}}
			if errs := s.journal.Append(t.Context(), []journal.Write{w}); errs != nil {
				t.Fatal(errs)
			}
		}
		s.reopen()
		if ids, err := s.ids(t.Context()); err != nil || !slices.Equal(ids, []string{"a", "a|c", "b"}) {
			t.Errorf("the IDs are %q, %v, want a, a|c and b", ids, err)
		}
		for id, err := range s.actors.IDs(t.Context()) {
			if id != "a" || err != nil {
				t.Errorf("the first ID is %q, %v, want a", id, err)
			}
			break
		}
		if n := s.actors.Resident(); n != 0 {
			t.Errorf("IDs started %d entities, want 0", n)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.ids(canceled)
		expectError(t, err, context.Canceled)
		s.close()

		s.cfg.Store = store.Of(struct{ journal.Journal }{s.journal.Unwrap()}, s.snapshots)
		s.open()
		_, err = s.ids(t.Context())
		expectError(t, err, eventsourcing.ErrInvalid)
		s.close()
		s.cfg.Store, s.typ.Events = nil, nil
		s.open()
		defer s.close()
		_, err = s.ids(t.Context())
		expectError(t, err, eventsourcing.ErrNoJournal)
	})
}

// TestStart checks that an entity starts without a command.
func TestStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		defer s.close()
		if err := s.actors.Start(t.Context(), "1"); err != nil {
			t.Error(err)
		}
		if received := s.take(); len(received) != 1 || s.actors.Resident() != 1 {
			t.Errorf("the signals are %v and %d entities are in memory, want one of each", received, s.actors.Resident())
		}
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Err: errNoLine})
		expectError(t, s.actors.Start(t.Context(), "2"), errNoLine)
		expectError(t, s.actors.Start(t.Context(), ""), eventsourcing.ErrInvalid)
	})
}

// TestWake checks that entities with a deadline are started, and no others.
func TestWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimed(t).open()
		for _, id := range []string{"1", "2", "3", "4"} {
			if _, err := s.askOf(t.Context(), id, addLines(id)); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"2", "4"} {
			if _, err := s.askOf(t.Context(), id, waitFor(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		s.reopen()
		s.signals()
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpReplay, Err: errNoLine}) // of "1"
		n, err := s.actors.Wake(t.Context())
		expectError(t, err, errNoLine)
		synctest.Wait()
		if n != 2 || s.actors.Resident() != 2 {
			t.Errorf("Wake started %d entities, %d are in memory, want 2", n, s.actors.Resident())
		}
		pass(time.Hour)
		if got := s.signals(); !slices.Equal(got, []string{"StateTimeout", "StateTimeout"}) {
			t.Errorf("the signals are %q, want StateTimeout twice", got)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.actors.Wake(canceled)
		expectError(t, err, context.Canceled)
		s.close()
		for _, r := range []eventsourcing.Recovery{{Disabled: true}, {UpTo: 1}} {
			s.opts.Recovery = r
			s.open()
			if n, err := s.actors.Wake(t.Context()); n != 0 || err != nil {
				t.Errorf("%+v: Wake = %d, %v, want 0", r, n, err)
			}
			s.close()
		}
	})
}

// TestWakeWithoutDeadlines checks that Wake does not read the journal for a type without deadlines
// and parts.
func TestWakeWithoutDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(addLines("1"))
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpReplay, Err: errors.New("the journal was read")})
		if n, err := s.actors.Wake(t.Context()); n != 0 || err != nil {
			t.Errorf("Wake = %d, %v, want 0", n, err)
		}
		s.journal.Release()
	})
}
