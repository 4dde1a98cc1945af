// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// withOwnStore moves the stores of a scene from the runtime to the type. The runtime gets an empty
// store, which is returned.
func (s *scene) withOwnStore() (*inmem.Journal, *inmem.SnapshotStore) {
	j, saved := inmem.NewJournal(), inmem.NewSnapshotStore()
	s.opts.Store, s.cfg.Store = s.cfg.Store, store.Of(j, saved)
	return j, saved
}

// TestStoreOfAType checks that everything that a type stores and reads uses HostOptions.Store.
func TestStoreOfAType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals()
		j, saved := s.withOwnStore()
		s.typ.Snapshots.Every = 2
		s.open()
		expect(t, s.mustAsk(addLines("a", "b", "c")), nil, "a b c")
		synctest.Wait()
		s.expectStored("a", "b", "c")
		s.expectSaved(3)
		s.reopen()
		expect(t, s.mustAsk(recall), nil, "a b c")

		ids, err := s.ids(t.Context())
		if err != nil || !slices.Equal(ids, []string{"1"}) {
			t.Errorf("the IDs are %q, %v, want 1", ids, err)
		}
		folded, err := eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", eventsourcing.FoldOptions[actorEvent]{})
		if err != nil || folded.State.text() != "a b c" || folded.SnapshotNr != 3 {
			t.Errorf("Fold returned %+v, %v, want a b c from the snapshot", folded, err)
		}
		var viewed []string
		view, err := eventsourcing.NewView(s.rt, s.typ, "1", eventsourcing.ViewOptions{}, func(v eventsourcing.Viewed[actorEvent]) error {
			viewed = append(viewed, v.Event.(line).Text) //nolint:errcheck,forcetypeassert // there is no other
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err = view.Update(t.Context()); err != nil || !slices.Equal(viewed, []string{"a", "b", "c"}) {
			t.Errorf("the view saw %q, %v, want a, b and c", viewed, err)
		}
		s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.DeleteEvents(eventsourcing.DeleteEvents{UpTo: 2}).Reply("")
		})
		synctest.Wait()
		s.expectStored("c")
		s.close()

		for pid, err := range j.PersistenceIDs(t.Context(), "") {
			t.Errorf("the journal of the runtime contains %q, %v", pid, err)
		}
		for md, err := range saved.List(t.Context(), "actor|1", snapshot.Latest()) {
			t.Errorf("the snapshot store of the runtime contains %+v, %v", md, err)
		}
		// The runtime does not close the store.
		if _, err := s.journal.HighestSequenceNr(t.Context(), "actor|1"); err != nil {
			t.Errorf("the journal of the type returns %v after the end of the runtime", err)
		}
	})
}

// TestStoreOfATypeWithoutStoreOfTheRuntime checks that HostOptions.Store suffices, and that a type
// without a store is refused.
func TestStoreOfATypeWithoutStoreOfTheRuntime(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.opts.Store, s.cfg.Store = s.cfg.Store, nil
	s.open()
	expect(t, s.mustAsk(addLines("a")), nil, "a")
	other := s.typ
	other.Name = "other"
	if _, err := eventsourcing.Host(s.rt, other); err == nil {
		t.Error("a type with events is hosted without a journal")
	}
	s.close()
	s.expectStored("a")
}

// TestTypesShareTheWriterOfAStore checks that the events of two types with the same store are written
// in one batch, and those of a type with another store are not.
func TestTypesShareTheWriterOfAStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		batches := make(chan int, 10)
		s := newScene(t)
		s.withOwnStore()
		s.cfg.Observer.Commit = func(i eventsourcing.CommitInfo) { batches <- i.Writes }
		s.open()
		defer s.close()
		twin, err := s.hostTwin("twin", s.opts)
		if err != nil {
			t.Fatal(err)
		}
		apart, err := s.hostTwin("apart", eventsourcing.HostOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stall := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall, Times: 1})
		ctx := context.Background()
		tell := func(to *eventsourcing.Local[actor, actorEvent], id string) {
			if err := eventsourcing.Tell(ctx, to.Ref(id), act{f: addLines("x")}); err != nil {
				t.Error(err)
			}
		}
		tell(s.actors, "1")
		synctest.Wait()
		tell(s.actors, "2")
		tell(twin, "2")
		synctest.Wait()
		tell(apart, "2")
		synctest.Wait() // only the write to the other store ends
		stall.Release()
		synctest.Wait()
		close(batches)
		var sizes []int
		for n := range batches {
			sizes = append(sizes, n)
		}
		if want := []int{1, 1, 2}; !slices.Equal(sizes, want) {
			t.Errorf("the batches have %d writes, want %d", sizes, want)
		}
	})
}

// hostTwin hosts the type of the scene under another name.
func (s *scene) hostTwin(name string, opts eventsourcing.HostOptions) (*eventsourcing.Local[actor, actorEvent], error) {
	typ := s.typ
	typ.Name = name
	return eventsourcing.HostWith(s.rt, typ, opts)
}

// TestCloseWritesToTheStoreOfAType checks that Close waits for the writes to each store.
func TestCloseWritesToTheStoreOfAType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.withOwnStore()
		s.open()
		stall := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall, Times: 1})
		answer := later(func() (string, error) { return s.ask(addLines("a")) })
		synctest.Wait()
		closed := later(func() (bool, error) { return true, s.rt.Close(context.Background()) })
		synctest.Wait()
		stall.Release()
		text, err := answer()
		expect(t, text, err, "a")
		if _, err := closed(); err != nil {
			t.Error(err)
		}
		s.expectStored("a")
	})
}

// uncomparable is a store.DB that can't be compared.
type uncomparable struct {
	store.DB
	_ []journal.Journal
}

// TestUncomparableStore checks that such a store is accepted.
func TestUncomparableStore(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.cfg.Store = uncomparable{DB: s.cfg.Store}
	s.opts.Store = s.cfg.Store
	s.open()
	defer s.close()
	expect(t, s.mustAsk(addLines("a")), nil, "a")
}
