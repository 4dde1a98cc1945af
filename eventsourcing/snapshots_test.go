// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
	"github.com/refold-io/refold/store"
)

// TestRetention checks which snapshots and which events remain.
func TestRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy eventsourcing.Snapshots[actor, actorEvent]
		units  []int // events of each command
		want   []uint64
		events int
	}{
		"all":                 {eventsourcing.Snapshots[actor, actorEvent]{Every: 3}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1}, []uint64{9, 6, 3}, 9},
		"two":                 {eventsourcing.Snapshots[actor, actorEvent]{Every: 3, Keep: 2}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1}, []uint64{9, 6}, 9},
		"two and events":      {eventsourcing.Snapshots[actor, actorEvent]{Every: 3, Keep: 2, DeleteEvents: true}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1}, []uint64{9, 6, 3}, 6},
		"units":               {eventsourcing.Snapshots[actor, actorEvent]{Every: 3, Keep: 1}, []int{2, 2, 2, 2, 2}, []uint64{10}, 10},
		"a unit of many":      {eventsourcing.Snapshots[actor, actorEvent]{Every: 3, Keep: 2}, []int{10}, []uint64{10}, 10},
		"each":                {eventsourcing.Snapshots[actor, actorEvent]{Every: 1, Keep: 1}, []int{1, 1, 1}, []uint64{3}, 3},
		"each and events":     {eventsourcing.Snapshots[actor, actorEvent]{Every: 1, Keep: 1, DeleteEvents: true}, []int{1, 1, 1}, []uint64{3, 2}, 1},
		"not yet":             {eventsourcing.Snapshots[actor, actorEvent]{Every: 10, Keep: 1}, []int{4, 5}, nil, 9},
		"never":               {eventsourcing.Snapshots[actor, actorEvent]{}, []int{4, 5}, nil, 9},
		"a unit over a limit": {eventsourcing.Snapshots[actor, actorEvent]{Every: 5}, []int{4, 3, 3, 3}, []uint64{10, 7}, 13},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.typ.Snapshots = c.policy
				s.open()
				var recovering atomic.Bool
				s.journal.Inject(journaltest.Fault{Op: journaltest.OpReplay, When: func(call journaltest.Call) bool {
					if call.From != call.To && !recovering.Load() {
						t.Errorf("a deletion replays the events %d to %d, want one event", call.From, call.To)
					}
					return false
				}})
				n := 0
				var all []string
				for _, unit := range c.units {
					var texts []string
					for range unit {
						n++
						texts = append(texts, fmt.Sprint(n))
					}
					all = append(all, texts...)
					expect(t, s.mustAsk(addLines(texts...)), nil, strings.Join(all, " "))
					synctest.Wait() // one save at a time
				}
				recovering.Store(true)
				s.expectSaved(c.want...)
				if got := s.stored(); !slices.Equal(got, all[len(all)-c.events:]) {
					t.Errorf("the journal holds %q, want the last %d", got, c.events)
				}
				s.reopen()
				expect(t, s.mustAsk(recall), nil, strings.Join(all, " "))
				s.close()
			})
		})
	}
}

// TestRetentionCalls counts the calls of the stores for one snapshot. One load shows that the snapshot
// covers the deleted events, and one list that it was not deleted in the meantime.
func TestRetentionCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 3, Keep: 1, DeleteEvents: true}
		s.open()
		defer s.close()
		var counts [snapshottest.OpDelete + 1]atomic.Int64
		for op := range counts {
			s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.Op(op), When: func(snapshottest.Call) bool {
				counts[op].Add(1)
				return false
			}})
		}
		calls := func() string {
			return fmt.Sprintf("save %d, load %d, list %d, delete %d; replay %d, highest %d, delete %d",
				counts[snapshottest.OpSave].Load(), counts[snapshottest.OpLoad].Load(), counts[snapshottest.OpList].Load(), counts[snapshottest.OpDelete].Load(),
				s.journal.Calls(journaltest.OpReplay), s.journal.Calls(journaltest.OpHighest), s.journal.Calls(journaltest.OpDelete))
		}
		s.mustAsk(addLines("1", "2", "3"))
		synctest.Wait()
		const before = "save 1, load 1, list 0, delete 0; replay 0, highest 1, delete 0"
		if got := calls(); got != before {
			t.Errorf("a start and a save: %s, want %s", got, before)
		}
		s.mustAsk(addLines("4", "5", "6"))
		synctest.Wait()
		const after = "save 2, load 2, list 1, delete 1; replay 0, highest 1, delete 1"
		if got := calls(); got != after {
			t.Errorf("with a save that deletes: %s, want %s", got, after)
		}
		s.expectStored("4", "5", "6")
	})
}

// TestSnapshotPolicies checks that mistakes are reported when the type is hosted.
func TestSnapshotPolicies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		for want, policy := range map[string]eventsourcing.Snapshots[actor, actorEvent]{
			"Every is negative":             {Every: -1},
			"Keep is negative":              {Every: 1, Keep: -1},
			"Version is negative":           {Version: -1},
			"Keep needs Every":              {Keep: 1},
			"DeleteEvents needs Keep":       {Every: 5, DeleteEvents: true},
			"DeleteEvents excludes Optiona": {Every: 5, Keep: 1, DeleteEvents: true, Optional: true},
		} {
			s.typ.Name, s.typ.Snapshots = want, policy
			_, err := eventsourcing.HostWith(s.rt, s.typ, s.opts)
			expectError(t, err, eventsourcing.ErrInvalid)
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want one that contains %q", err, want)
			}
		}
	})
}

// TestSaveFails checks that the entity continues without the snapshot and receives the signal, and
// that no event and no snapshot is deleted.
func TestSaveFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals()
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 1, Keep: 1, DeleteEvents: true}
		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		synctest.Wait()
		full := errors.New("disk full")
		s.snapshots.Inject(snapshottest.Fault{Err: full})
		s.take()
		s.mustAsk(addLines("2"))
		synctest.Wait()
		received := s.take()
		failed, ok := received[0].(eventsourcing.SnapshotFailed)
		if !ok || len(received) != 1 || !errors.Is(failed.Err, full) || failed.Metadata.SequenceNr != 2 || failed.Metadata.ID != "actor|1" {
			t.Errorf("the signals are %+v, want one SnapshotFailed for snapshot 2", received)
		}
		s.expectSaved(1)
		s.expectStored("1", "2")
		s.mustAsk(addLines("3"))
		synctest.Wait()
		if got := strings.Join(s.signals(), " "); got != "SnapshotSaved EventsDeleted SnapshotsDeleted" {
			t.Errorf("the signals are %s, want SnapshotSaved EventsDeleted SnapshotsDeleted", got)
		}
		s.expectSaved(3)
		s.expectStored("3")
	})
}

// TestCommandsDoNotWaitForSnapshots also checks that no snapshot is taken while another one is
// being saved.
func TestCommandsDoNotWaitForSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 1}
		s.open()
		defer s.close()
		slow := s.snapshots.Inject(snapshottest.Fault{Do: snapshottest.Stall})
		for _, text := range []string{"1", "2", "3"} {
			s.mustAsk(addLines(text))
		}
		synctest.Wait()
		slow.Release()
		synctest.Wait()
		s.expectSaved(1)
		s.mustAsk(addLines("4"))
		synctest.Wait()
		s.expectSaved(4, 1)
	})
}

// TestSnapshotAfterLongReplay checks that a snapshot is saved after a replay of at least Every
// events.
func TestSnapshotAfterLongReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := chronicle(t, 5)
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 6}
		s.open()
		s.mustAsk(recall)
		synctest.Wait()
		s.expectSaved()
		s.close()
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 5, Keep: 1}
		s.open()
		defer s.close()
		s.mustAsk(recall)
		synctest.Wait()
		s.expectSaved(5)
	})
}

// request returns a command with an additional effect and a reply.
func request(f func(ctx *actorCtx) actorStep) func(ctx *actorCtx, a *actor, c act) actorDecision {
	return func(ctx *actorCtx, a *actor, c act) actorDecision { return f(ctx).ReplyFunc(a.text) }
}

// TestExplicitSnapshots checks that handlers save and delete snapshots.
func TestExplicitSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		save := func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }
		for i := 1; i <= 4; i++ {
			s.mustAsk(addLines(fmt.Sprint(i)))
			s.mustAsk(request(save))
			synctest.Wait()
		}
		if got := strings.Join(s.signals(), " "); got != "SnapshotSaved SnapshotSaved SnapshotSaved SnapshotSaved" {
			t.Errorf("the signals are %s, want SnapshotSaved four times", got)
		}
		s.expectSaved(4, 3, 2, 1)
		// The snapshot has the state at the point of the request.
		s.mustAsk(request(func(ctx *actorCtx) actorStep {
			return ctx.Persist(line{"5"}).And(ctx.SaveSnapshot()).And(ctx.Persist(line{"6"}))
		}))
		synctest.Wait()
		s.expectSaved(5, 4, 3, 2, 1)
		saved, err := s.snapshots.Load(t.Context(), "actor|1", snapshot.Latest())
		if err != nil || strings.Contains(string(saved.Payload), "6") {
			t.Errorf("the snapshot at 5 is %q, %v, want it without event 6", saved.Payload, err)
		}
		s.take()
		for _, c := range []snapshot.Criteria{snapshot.At(3), snapshot.UpTo(2)} {
			s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteSnapshots(c) }))
			synctest.Wait()
			if received := s.take(); len(received) != 1 || received[0] != eventsourcing.Signal(eventsourcing.SnapshotsDeleted{Criteria: c}) {
				t.Errorf("the signals are %+v, want one SnapshotsDeleted", received)
			}
		}
		s.expectSaved(5, 4)
		broken := errors.New("broken")
		s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpDelete, Err: broken})
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteSnapshots(snapshot.Criteria{All: true}) }))
		synctest.Wait()
		if failed, ok := s.take()[0].(eventsourcing.SnapshotsNotDeleted); !ok || !errors.Is(failed.Err, broken) || failed.Criteria != (snapshot.Criteria{All: true}) {
			t.Errorf("the signal is %+v, want SnapshotsNotDeleted with the error of the store", failed)
		}
		s.reopen()
		expect(t, s.mustAsk(recall), nil, "1 2 3 4 5 6")
		s.close()
	})
}

// TestDeletingEvents checks that only durable and covered events are deleted, unless the request
// abandons them.
func TestDeletingEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		drop := func(r eventsourcing.DeleteEvents) eventsourcing.Signal {
			s.take()
			s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteEvents(r) }))
			synctest.Wait()
			received := s.take()
			if len(received) != 1 {
				t.Fatalf("the signals are %+v, want one signal", received)
			}
			return received[0]
		}
		failed := func(r eventsourcing.DeleteEvents, want error) {
			t.Helper()
			calls := s.journal.Calls(journaltest.OpDelete)
			h, ok := drop(r).(eventsourcing.EventsNotDeleted)
			if !ok || !errors.Is(h.Err, want) || h.Request != r {
				t.Errorf("signal: %+v, want an error that matches %v", h, want)
			}
			if s.journal.Calls(journaltest.OpDelete) != calls && want != journaltest.ErrInjected { //nolint:errorlint // the same value
				t.Error("the refused request called DeleteTo of the journal")
			}
		}
		for i := 1; i <= 6; i++ {
			s.mustAsk(addLines(fmt.Sprint(i)))
		}
		failed(eventsourcing.DeleteEvents{UpTo: 3}, eventsourcing.ErrNotCovered)
		failed(eventsourcing.DeleteEvents{UpTo: 7}, eventsourcing.ErrInvalid)
		failed(eventsourcing.DeleteEvents{UpTo: 7, Abandon: true}, eventsourcing.ErrInvalid)
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
		synctest.Wait()
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpDelete})
		failed(eventsourcing.DeleteEvents{UpTo: 3}, journaltest.ErrInjected)
		if h := drop(eventsourcing.DeleteEvents{UpTo: 3}); h != eventsourcing.Signal(eventsourcing.EventsDeleted{Request: eventsourcing.DeleteEvents{UpTo: 3}}) {
			t.Errorf("the signal is %+v, want EventsDeleted up to 3", h)
		}
		s.expectStored("4", "5", "6")

		// The last snapshot that covers the deleted events is kept.
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteSnapshots(snapshot.Criteria{All: true}) }))
		synctest.Wait()
		if h, ok := s.take()[0].(eventsourcing.SnapshotsNotDeleted); !ok || !errors.Is(h.Err, eventsourcing.ErrNotCovered) {
			t.Errorf("the signal is %+v, want SnapshotsNotDeleted with ErrNotCovered", h)
		}
		s.expectSaved(6)

		// Delete all durable events.
		if h, ok := drop(eventsourcing.DeleteEvents{}).(eventsourcing.EventsDeleted); !ok || h.Request.UpTo != 6 {
			t.Errorf("the signal is %+v, want EventsDeleted up to 6", h)
		}
		s.expectStored()
		expect(t, s.mustAsk(addLines("7")), nil, "1 2 3 4 5 6 7")
		s.reopen()
		expect(t, s.mustAsk(addLines("8")), nil, "1 2 3 4 5 6 7 8")
		if h, ok := drop(eventsourcing.DeleteEvents{Abandon: true}).(eventsourcing.EventsDeleted); !ok {
			t.Errorf("the signal is %+v, want EventsDeleted", h)
		}
		s.close()
	})
}

// TestDeletionNeedsAReadableSnapshot checks that a stored snapshot covers events only if it can be
// loaded and decoded: events and older snapshots stay otherwise.
func TestDeletionNeedsAReadableSnapshot(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(s *scene, newest snapshot.Snapshot) snapshot.Snapshot{
		"payload": func(_ *scene, newest snapshot.Snapshot) snapshot.Snapshot {
			newest.Payload = []byte{0xc1}
			return newest
		},
		"version": func(_ *scene, newest snapshot.Snapshot) snapshot.Snapshot {
			newest.Manifest += "@9"
			return newest
		},
		"corrupt": func(s *scene, newest snapshot.Snapshot) snapshot.Snapshot {
			at := func(c snapshottest.Call) bool { return c.Criteria.MaxSequenceNr >= newest.SequenceNr }
			s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, When: at, Times: -1, Err: snapshot.ErrCorrupt})
			return newest
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t).withSignals().open()
				defer s.close()
				save := request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() })
				drop := func(upTo uint64) {
					s.mustAsk(request(func(ctx *actorCtx) actorStep {
						return ctx.DeleteEvents(eventsourcing.DeleteEvents{UpTo: upTo})
					}))
					synctest.Wait()
				}
				s.mustAsk(addLines("1", "2", "3"))
				s.mustAsk(save)
				s.mustAsk(addLines("4", "5", "6"))
				s.mustAsk(save)
				synctest.Wait()
				newest, err := s.snapshots.Load(t.Context(), "actor|1", snapshot.Latest())
				if err != nil {
					t.Fatal(err)
				}
				if err := s.snapshots.Save(t.Context(), damage(s, newest)); err != nil {
					t.Fatal(err)
				}
				s.take()
				drop(6)
				if h, ok := s.take()[0].(eventsourcing.EventsNotDeleted); !ok || !errors.Is(h.Err, eventsourcing.ErrNotCovered) {
					t.Errorf("the signal is %+v, want EventsNotDeleted with ErrNotCovered", h)
				}
				s.expectStored("1", "2", "3", "4", "5", "6")
				drop(2)
				s.expectStored("3", "4", "5", "6")
				s.take()
				s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteSnapshots(snapshot.At(3)) }))
				synctest.Wait()
				if h, ok := s.take()[0].(eventsourcing.SnapshotsNotDeleted); !ok || !errors.Is(h.Err, eventsourcing.ErrNotCovered) {
					t.Errorf("the signal is %+v, want SnapshotsNotDeleted with ErrNotCovered", h)
				}
				s.expectSaved(6, 3)
				if name != "corrupt" { // a store that fails on its newest snapshot loads an older one itself
					s.reopen()
					expect(t, s.mustAsk(recall), nil, "1 2 3 4 5 6")
				}
			})
		})
	}
}

// TestDeletionsOfTwoProcesses deletes events in one process while another one deletes the snapshot
// that covers them. The snapshot is restored.
func TestDeletionsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		defer s.close()
		saveNow := request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() })
		s.mustAsk(addLines("1", "2", "3"))
		s.mustAsk(saveNow)
		synctest.Wait()
		s.take()

		// The other process deletes the snapshot after the check, before the events are deleted.
		deletion := s.journal.Inject(journaltest.Fault{Op: journaltest.OpDelete, Do: journaltest.Stall})
		s.mustAsk(request(func(ctx *actorCtx) actorStep {
			return ctx.DeleteEvents(eventsourcing.DeleteEvents{UpTo: 2})
		}))
		<-deletion.Struck()
		if err := s.snapshots.Delete(t.Context(), "actor|1", snapshot.Criteria{All: true}); err != nil {
			t.Fatal(err)
		}
		deletion.Release()
		synctest.Wait()
		if h, ok := s.take()[0].(eventsourcing.EventsDeleted); !ok {
			t.Errorf("the signal is %+v, want EventsDeleted", h)
		}
		s.expectStored("3")
		s.expectSaved(3)
		s.reopen()
		expect(t, s.mustAsk(addLines("4", "5")), nil, "1 2 3 4 5")
		s.mustAsk(saveNow)
		synctest.Wait()
		s.take()

		// The other process deletes events after the check, before the snapshots are deleted.
		stalled := s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpDelete, Do: snapshottest.Stall})
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteSnapshots(snapshot.At(5)) }))
		<-stalled.Struck()
		if err := s.journal.DeleteTo(t.Context(), "actor|1", 4); err != nil {
			t.Fatal(err)
		}
		stalled.Release()
		synctest.Wait()
		if h, ok := s.take()[0].(eventsourcing.SnapshotsNotDeleted); !ok || !errors.Is(h.Err, eventsourcing.ErrNotCovered) {
			t.Errorf("the signal is %+v, want SnapshotsNotDeleted with ErrNotCovered", h)
		}
		s.expectSaved(5, 3)
		s.reopen()
		expect(t, s.mustAsk(recall), nil, "1 2 3 4 5")
	})
}

// TestDeletionDuringAppend checks that an event that is stored during the deletion of a snapshot does not
// count as deleted.
func TestDeletionDuringAppend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		defer s.close()
		for _, text := range []string{"1", "2"} {
			s.mustAsk(addLines(text))
			s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
			synctest.Wait()
		}
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteEvents(eventsourcing.DeleteEvents{}) }))
		synctest.Wait()
		s.take()
		s.expectStored()

		highest := s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall})
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteSnapshots(snapshot.At(1)) }))
		<-highest.Struck() // event 3 was not found
		s.mustAsk(addLines("3"))
		highest.Release()
		synctest.Wait()
		if h, ok := s.take()[0].(eventsourcing.SnapshotsDeleted); !ok {
			t.Errorf("the signal is %+v, want SnapshotsDeleted", h)
		}
		s.expectSaved(2)
		s.reopen()
		expect(t, s.mustAsk(recall), nil, "1 2 3")
	})
}

// localStore is a snapshot store that is local to one node of a cluster.
type localStore struct{ *snapshottest.Faulty }

func (localStore) Local() bool { return true }

// localJournal is a journal that is local to one node of a cluster.
type localJournal struct{ *journaltest.Faulty }

func (localJournal) Local() bool { return true }

// TestLocalSnapshots checks that entities that move between nodes delete no events of a shared
// journal if their snapshots stay on one node.
func TestLocalSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharded(t)
		s.withSignals()
		s.cfg.Store = store.Of(s.journal, localStore{s.snapshots})
		typ := s.typ
		typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 1, Keep: 1, DeleteEvents: true}
		host := func(db store.DB, typ eventsourcing.Type[actor, actorEvent], opts eventsourcing.HostOptions) error {
			rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
			if err != nil {
				t.Fatal(err)
			}
			_, err = eventsourcing.HostWith(rt, typ, opts)
			if closed := rt.Close(t.Context()); closed != nil {
				t.Fatal(closed)
			}
			return err
		}
		if err := host(s.cfg.Store, typ, s.opts); !errors.Is(err, eventsourcing.ErrInvalid) || !strings.Contains(err.Error(), "Type.Snapshots.DeleteEvents") {
			t.Errorf("HostWith with sharding: %v, want ErrInvalid for Type.Snapshots.DeleteEvents", err)
		}
		for name, err := range map[string]error{
			"without sharding":     host(s.cfg.Store, typ, eventsourcing.HostOptions{}),
			"with shared stores":   host(store.Of(s.journal, s.snapshots), typ, s.opts),
			"with a local journal": host(store.Of(localJournal{s.journal}, localStore{s.snapshots}), typ, s.opts),
		} {
			if err != nil {
				t.Errorf("HostWith %s: %v", name, err)
			}
		}

		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
		synctest.Wait()
		s.take()
		s.mustAsk(request(func(ctx *actorCtx) actorStep {
			return ctx.DeleteEvents(eventsourcing.DeleteEvents{UpTo: 1})
		}))
		synctest.Wait()
		if h, ok := s.take()[0].(eventsourcing.EventsNotDeleted); !ok || !errors.Is(h.Err, eventsourcing.ErrNotCovered) {
			t.Errorf("the signal is %+v, want EventsNotDeleted with ErrNotCovered", h)
		}
	})
}

// TestSnapshotsWhen checks that a snapshot is saved after each line "save".
func TestSnapshotsWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Snapshots.When = func(a *actor, event actorEvent, seqNr uint64) bool {
			e, ok := event.(line)
			a.scene.note("%d", seqNr)
			return ok && e.Text == "save"
		}
		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		s.mustAsk(addLines("2", "save", "4"))
		synctest.Wait()
		s.expectSaved(4)
		s.expectNotes("1", "2", "3", "4")
		s.mustAsk(addLines("5"))
		s.mustAsk(addLines("save"))
		synctest.Wait()
		s.expectSaved(6, 4)
	})
}

// TestSnapshotsWithoutHistory checks that an instance that was recovered without its events saves no
// snapshots and deletes no events. The first instance of an entity has no events, so it is complete.
func TestSnapshotsWithoutHistory(t *testing.T) {
	t.Parallel()
	type policy = eventsourcing.Snapshots[actor, actorEvent]
	disabled := eventsourcing.Recovery{Disabled: true}
	all := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"}
	for name, c := range map[string]struct {
		policy policy
		opts   eventsourcing.HostOptions
		left   int // events before the second instance
	}{
		"Recovery":   {policy{Every: 3, Keep: 1, DeleteEvents: true}, eventsourcing.HostOptions{Recovery: disabled}, 3},
		"RecoveryOf": {policy{Every: 3, Keep: 1, DeleteEvents: true}, eventsourcing.HostOptions{RecoveryOf: func(string) eventsourcing.Recovery { return disabled }}, 3},
		"When":       {policy{When: func(_ *actor, _ actorEvent, nr uint64) bool { return nr%3 == 0 }}, eventsourcing.HostOptions{Recovery: disabled}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t).withSignals()
				s.typ.Snapshots, s.opts = c.policy, c.opts
				s.open()
				add := func(texts []string) {
					t.Helper()
					for i, text := range texts {
						expect(t, s.mustAsk(addLines(text)), nil, strings.Join(texts[:i+1], " "))
						synctest.Wait()
					}
				}
				add(all[:6])
				s.expectSaved(6, 3)
				s.expectStored(all[6-c.left : 6]...)
				s.reopen()
				add(all[6:])
				s.take()
				s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
				synctest.Wait()
				if got := s.take(); len(got) != 1 {
					t.Errorf("the signals are %+v, want one SnapshotFailed", got)
				} else if failed, ok := got[0].(eventsourcing.SnapshotFailed); !ok || !errors.Is(failed.Err, eventsourcing.ErrInvalid) || failed.Metadata.SequenceNr != 12 {
					t.Errorf("the signal is %+v, want SnapshotFailed at 12 with ErrInvalid", got[0])
				}
				for _, r := range []eventsourcing.DeleteEvents{{UpTo: 5}, {}, {UpTo: 5, Abandon: true}} {
					s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteEvents(r) }))
					synctest.Wait()
					if got := s.take(); len(got) != 1 {
						t.Errorf("the signals are %+v, want one EventsNotDeleted", got)
					} else if failed, ok := got[0].(eventsourcing.EventsNotDeleted); !ok || !errors.Is(failed.Err, eventsourcing.ErrInvalid) || failed.Request != r {
						t.Errorf("the signal is %+v, want EventsNotDeleted of %+v with ErrInvalid", got[0], r)
					}
				}
				s.expectSaved(6, 3)
				s.expectStored(all[6-c.left:]...)
				s.opts = eventsourcing.HostOptions{}
				s.reopen()
				expect(t, s.mustAsk(recall), nil, strings.Join(all, " "))
				s.close()
			})
		})
	}
}

// TestSnapshotTime checks that a snapshot has the time of its last event, so that a query for an
// earlier state does not depend on the time of the save.
func TestSnapshotTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, times := chronicle(t, 2)
		s.open()
		defer s.close()
		time.Sleep(time.Hour)
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
		synctest.Wait()
		saved, err := s.snapshots.Load(context.Background(), "actor|1", snapshot.Latest())
		if err != nil || saved.SequenceNr != 2 || !saved.Time.Equal(times[2]) {
			t.Errorf("the snapshot is %+v, %v, want the time %v", saved.Metadata, err, times[2])
		}
	})
}

// TestDeletionsDoNotOvertake checks that a deletion of snapshots waits for a deletion of events. If
// both ran at the same time, they could delete the events and the snapshot that covers them.
func TestDeletionsDoNotOvertake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		s.mustAsk(addLines("1", "2"))
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
		synctest.Wait()
		gate := s.journal.Inject(journaltest.Fault{Op: journaltest.OpDelete, Do: journaltest.Stall})
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteEvents(eventsourcing.DeleteEvents{}) }))
		<-gate.Struck()
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteSnapshots(snapshot.Criteria{All: true}) }))
		go func() {
			time.Sleep(time.Second)
			gate.Release()
		}()
		time.Sleep(2 * time.Second)
		s.close()
		s.expectSaved(2)
		s.open()
		expect(t, s.mustAsk(recall), nil, "1 2")
		s.close()
	})
}

// TestPanicInSnapshot checks that a panic while a snapshot is encoded is a failed snapshot. The
// entity continues.
func TestPanicInSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals()
		s.typ.Snapshots.Every = 2
		s.typ.Snapshots.State = eventsourcing.StateAs("page", 0, func(*actor) (page, error) { panic("oops") }, func(*actor, page) error { return nil })
		s.open()
		defer s.close()
		for i, want := range []string{"x", "x x", "x x x", "x x x x"} {
			text, err := s.ask(addLines("x"))
			if expect(t, text, err, want); err != nil {
				t.Fatalf("command %d failed", i)
			}
		}
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
		synctest.Wait()
		if got := s.signals(); !slices.Equal(got, []string{"SnapshotFailed", "SnapshotFailed", "SnapshotFailed"}) {
			t.Errorf("the signals are %q, want three of SnapshotFailed", got)
		}
	})
}
