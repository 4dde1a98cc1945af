// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// adopting changes a scene to entities whose histories have the IDs "old-1", "old-2" and so on.
func adopting(tb testing.TB) *scene {
	tb.Helper()
	s := newScene(tb).withSignals()
	s.typ.PersistenceID = func(id string) string { return "old-" + id }
	s.typ.EntityID = func(pid string) (string, bool) { return strings.CutPrefix(pid, "old-") }
	return s
}

// TestAdoptedHistory checks that a history with other persistence IDs is read, continued, listed and
// woken, and that handlers see both IDs.
func TestAdoptedHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := adopting(t)
		s.typ.Snapshots.Every = 3
		manifest, payload, err := s.typ.Events.Encode(line{"a"})
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range []string{"old-1", "old-2", "actor|3", "refold.x"} {
			w := journal.Write{ID: pid, Writer: "w", Events: []journal.Event{{SequenceNr: 1, Manifest: manifest, Payload: payload}}}
			if errs := s.journal.Append(t.Context(), []journal.Write{w}); errs != nil {
				t.Fatal(errs)
			}
		}
		s.open()
		expect(t, s.mustAsk(addLines("b", "c")), nil, "a b c")
		expect(t, s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Reply(ctx.ID() + " " + ctx.PersistenceID() + " " + ctx.Self().ID())
		}), nil, "1 old-1 1")
		synctest.Wait()
		for md, err := range s.snapshots.List(t.Context(), "old-1", snapshot.Latest()) {
			if md.SequenceNr != 3 || err != nil {
				t.Errorf("the snapshot is %+v, %v, want one at 3", md, err)
			}
		}
		s.reopen()
		expect(t, s.mustAsk(recall), nil, "a b c")
		ids, err := s.ids(t.Context())
		if err != nil || !slices.Equal(ids, []string{"1", "2"}) {
			t.Errorf("the IDs are %q, %v, want 1 and 2", ids, err)
		}
		folded, err := eventsourcing.Fold(t.Context(), s.rt, s.typ, "2", eventsourcing.FoldOptions[actorEvent]{})
		if err != nil || folded.State.text() != "a" {
			t.Errorf("Fold returned %+v, %v, want a", folded, err)
		}
		view, err := eventsourcing.NewView(s.rt, s.typ, "2", eventsourcing.ViewOptions{}, func(eventsourcing.Viewed[actorEvent]) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if err = view.Update(t.Context()); err != nil || view.SequenceNr() != 1 {
			t.Errorf("the view is at %d, %v, want 1", view.SequenceNr(), err)
		}
		if pid, err := s.typ.PersistenceIDOf("7"); pid != "old-7" || err != nil {
			t.Errorf("PersistenceIDOf returned %q, %v, want old-7", pid, err)
		}
		if id, ok := s.typ.EntityIDOf("actor|3"); ok {
			t.Errorf("EntityIDOf returned %q for another type", id)
		}
		s.close()
		for pid, err := range journalIDs(t, s) {
			if pid == "actor|1" || err != nil {
				t.Errorf("the journal holds %q, %v", pid, err)
			}
		}
	})
}

func journalIDs(tb testing.TB, s *scene) func(yield func(string, error) bool) {
	tb.Helper()
	lister, ok := journal.As[journal.IDLister](s.journal)
	if !ok {
		tb.Fatal("the journal cannot list its IDs")
	}
	return lister.PersistenceIDs(tb.Context(), "")
}

// TestWakeOfAnAdoptedHistory checks that Wake finds the deadline of an entity by the inverse.
func TestWakeOfAnAdoptedHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimed(t)
		s.typ.PersistenceID = func(id string) string { return "old-" + id }
		s.typ.EntityID = func(pid string) (string, bool) { return strings.CutPrefix(pid, "old-") }
		s.open()
		s.mustAsk(waitFor(time.Hour))
		s.reopen()
		defer s.close()
		if n, err := s.actors.Wake(t.Context()); n != 1 || err != nil {
			t.Errorf("Wake started %d entities, %v, want 1", n, err)
		}
		synctest.Wait()
		if n := s.actors.Resident(); n != 1 {
			t.Errorf("%d entities are in memory, want 1", n)
		}
	})
}

// TestTwoIDsWithOnePersistenceID checks that an ID is refused if its persistence ID belongs to another
// ID, is reserved, is invalid or can't be computed.
func TestTwoIDsWithOnePersistenceID(t *testing.T) {
	t.Parallel()
	s := adopting(t)
	s.typ.PersistenceID = func(id string) string {
		switch id {
		case "panic":
			panic("no ID")
		case "reserved":
			return "refold.x|1"
		case "empty":
			return ""
		}
		return "old-" + strings.ToLower(id)
	}
	s.open()
	defer s.close()
	answer, err := s.askOf(t.Context(), "a", addLines("x"))
	expect(t, answer, err, "x")
	for _, id := range []string{"A", "panic", "reserved", "empty"} {
		_, err = s.askOf(t.Context(), id, addLines("y"))
		expectError(t, err, eventsourcing.ErrInvalid)
		if _, err = eventsourcing.Fold(t.Context(), s.rt, s.typ, id, eventsourcing.FoldOptions[actorEvent]{}); err == nil {
			t.Errorf("Fold of %q succeeded", id)
		}
	}
	_, err = s.askOf(t.Context(), "", addLines("y"))
	expectError(t, err, eventsourcing.ErrArgument)
	answer, err = s.askOf(t.Context(), "a", recall)
	expect(t, answer, err, "x")
}

// TestPersistenceIDNeedsItsInverse checks that a type with only one of the two functions is refused.
func TestPersistenceIDNeedsItsInverse(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"PersistenceID", "EntityID"} {
		s := adopting(t)
		typ := s.typ
		if missing == "EntityID" {
			typ.EntityID = nil
		} else {
			typ.PersistenceID = nil
		}
		rt, err := eventsourcing.Open(s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = eventsourcing.Host(rt, typ)
		expectError(t, err, eventsourcing.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "Type.EntityID") {
			t.Errorf("without %s the error is %v, want one that names Type.EntityID", missing, err)
		}
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
