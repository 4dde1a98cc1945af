// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
	"github.com/refold-io/refold/store"
)

// chronicle returns a scene with the lines 1 to n, one second apart, and a snapshot after each of
// the given numbers. It also returns the time of each line.
func chronicle(t *testing.T, n int, snapshots ...int) (*scene, []time.Time) {
	t.Helper()
	s := newScene(t).open()
	times := []time.Time{{}}
	for i := 1; i <= n; i++ {
		time.Sleep(time.Second)
		times = append(times, time.Now().UTC())
		f := addLines(fmt.Sprint(i))
		for _, at := range snapshots {
			if at == i {
				f = func(ctx *actorCtx, a *actor, c act) actorDecision {
					return ctx.Persist(line{fmt.Sprint(i)}).And(ctx.SaveSnapshot()).ReplyFunc(a.text)
				}
			}
		}
		s.mustAsk(f)
		synctest.Wait()
	}
	s.close()
	return s, times
}

// TestRecoveryOptions checks the limits of a recovery and the snapshot from which it starts.
func TestRecoveryOptions(t *testing.T) {
	t.Parallel()
	latest := snapshot.Latest()
	upTo3 := latest
	upTo3.MaxSequenceNr = 3
	for name, c := range map[string]struct {
		recovery func(times []time.Time) eventsourcing.Recovery
		want     string
		readOnly bool
		replayed uint64
		snapshot uint64
	}{
		"all":                 {func([]time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{} }, "1 2 3 4 5 6", false, 2, 4},
		"without snapshots":   {func([]time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{DisableSnapshots: true} }, "1 2 3 4 5 6", false, 6, 0},
		"older snapshots":     {func([]time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{Snapshots: upTo3} }, "1 2 3 4 5 6", false, 4, 2},
		"disabled":            {func([]time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{Disabled: true} }, "", false, 0, 0},
		"up to 3":             {func([]time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{UpTo: 3} }, "1 2 3", true, 1, 2},
		"up to 4":             {func([]time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{UpTo: 4} }, "1 2 3 4", true, 0, 4},
		"up to 1":             {func([]time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{UpTo: 1} }, "1", true, 1, 0},
		"beyond the end":      {func([]time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{UpTo: 99} }, "1 2 3 4 5 6", true, 2, 4},
		"as of the third":     {func(at []time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{AsOf: at[3]} }, "1 2 3", true, 1, 2},
		"before the third":    {func(at []time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{AsOf: at[3].Add(-1)} }, "1 2", true, 0, 2},
		"before the first":    {func(at []time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{AsOf: at[1].Add(-1)} }, "", true, 0, 0},
		"both bounds":         {func(at []time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{AsOf: at[5], UpTo: 3} }, "1 2 3", true, 1, 2},
		"both, the other way": {func(at []time.Time) eventsourcing.Recovery { return eventsourcing.Recovery{AsOf: at[3], UpTo: 5} }, "1 2 3", true, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, times := chronicle(t, 6, 2, 4)
				s.opts.Recovery = c.recovery(times)
				var recovered []eventsourcing.RecoveryInfo
				s.cfg.Observer.Recovery = func(info eventsourcing.RecoveryInfo) { recovered = append(recovered, info) }
				s.open()
				defer s.close()
				expect(t, s.mustAsk(recall), nil, c.want)
				text, err := s.ask(addLines("more"))
				if c.readOnly {
					expectError(t, err, eventsourcing.ErrReadOnly)
				} else {
					expect(t, text, err, strings.TrimSpace(c.want+" more"))
					if got := s.stored(); len(got) != 7 || got[6] != "more" {
						t.Errorf("the journal contains %q, want 7 lines, the last one more", got)
					}
				}
				expect(t, s.mustAsk(recall), nil, text[:max(len(text), 0)]+map[bool]string{true: c.want}[c.readOnly])
				if r := recovered[0]; r.Events != c.replayed || r.SnapshotNr != c.snapshot {
					t.Errorf("%d events were replayed on the snapshot at %d, want %d and %d", r.Events, r.SnapshotNr, c.replayed, c.snapshot)
				}
			})
		})
	}
}

// TestBadSnapshots checks that an unreadable snapshot leads to a longer replay if the events exist.
func TestBadSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, times := chronicle(t, 6, 2)
		save := func(nr uint64, manifest string, payload string) {
			t.Helper()
			err := s.snapshots.Save(t.Context(), snapshot.Snapshot{
				Metadata: snapshot.Metadata{ID: "actor|1", SequenceNr: nr, Time: times[nr]}, Manifest: manifest, Payload: []byte(payload),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var recovered eventsourcing.RecoveryInfo
		s.cfg.Observer.Recovery = func(info eventsourcing.RecoveryInfo) { recovered = info }
		expectRecovery := func(snapshot, events uint64) {
			t.Helper()
			s.open()
			expect(t, s.mustAsk(recall), nil, "1 2 3 4 5 6")
			s.close()
			if recovered.SnapshotNr != snapshot || recovered.Events != events {
				t.Errorf("recovered from %d with %d events, want %d and %d", recovered.SnapshotNr, recovered.Events, snapshot, events)
			}
		}
		expectRecovery(2, 4)
		save(5, "state", "\xc1 not a state")
		expectRecovery(2, 4)
		save(4, "manifest of another program", "")
		expectRecovery(2, 4)
		save(3, "state", "")
		expectRecovery(0, 6) // three snapshots are tried
		s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, Err: fmt.Errorf("a bad disk: %w", snapshot.ErrCorrupt)})
		expectRecovery(0, 6)

		// A failing store is treated as empty only with Snapshots.Optional.
		storeErr := errors.New("store unavailable")
		s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, Err: storeErr})
		s.open()
		_, err := s.ask(recall)
		expectError(t, err, storeErr)
		s.close()
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Optional: true}
		s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, Err: storeErr})
		expectRecovery(0, 6)
	})
}

// TestHistoryGaps checks that a history with a gap leads to an error and never to a partial state.
func TestHistoryGaps(t *testing.T) {
	t.Parallel()
	t.Run("deleted, and no snapshot", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, _ := chronicle(t, 6)
			if err := s.journal.DeleteTo(t.Context(), "actor|1", 3); err != nil {
				t.Fatal(err)
			}
			s.open()
			defer s.close()
			_, err := s.ask(recall)
			gap, ok := errors.AsType[*journal.GapError](err)
			if !ok || gap.ID != "actor|1" || gap.Want != 1 || gap.Got != 4 {
				t.Errorf("the error is %v, want a gap from 1 to 4", err)
			}
		})
	})
	t.Run("all deleted", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, _ := chronicle(t, 3)
			if err := s.journal.DeleteTo(t.Context(), "actor|1", 3); err != nil {
				t.Fatal(err)
			}
			s.open()
			defer s.close()
			_, err := s.ask(recall)
			expectError(t, err, journal.ErrHistoryGap)
		})
	})
	t.Run("a snapshot covers the deleted events", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, times := chronicle(t, 6, 4)
			if err := s.journal.DeleteTo(t.Context(), "actor|1", 4); err != nil {
				t.Fatal(err)
			}
			s.open()
			expect(t, s.mustAsk(addLines("7")), nil, "1 2 3 4 5 6 7")
			s.close()
			for _, r := range []eventsourcing.Recovery{{UpTo: 3}, {AsOf: times[3]}, {DisableSnapshots: true}} {
				s.opts.Recovery = r
				s.open()
				_, err := s.ask(recall)
				expectError(t, err, journal.ErrHistoryGap)
				s.close()
			}
		})
	})
	t.Run("a snapshot above the journal", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, times := chronicle(t, 3, 3)
			err := s.snapshots.Save(t.Context(), snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "actor|1", SequenceNr: 4, Time: times[3]}, Manifest: "state"})
			if err != nil {
				t.Fatal(err)
			}
			good, err := s.snapshots.Load(t.Context(), "actor|1", snapshot.At(3))
			if err != nil {
				t.Fatal(err)
			}
			good.SequenceNr = 4
			if err = s.snapshots.Save(t.Context(), good); err != nil {
				t.Fatal(err)
			}
			s.open()
			defer s.close()
			_, err = s.ask(recall)
			expectError(t, err, journal.ErrHistoryGap)
		})
	})
	for name, damage := range map[string]struct {
		events int
		at     uint64
		fault  error
		want   uint64
	}{
		"all events are missing, and the snapshot cannot be decoded": {at: 3, want: 1},
		"all events are missing, and the snapshot is corrupt":        {at: 3, fault: fmt.Errorf("a bad disk: %w", snapshot.ErrCorrupt), want: 1},
		"the last events are missing, and the snapshot is damaged":   {events: 2, at: 4, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, _ := chronicle(t, damage.events)
				err := s.snapshots.Save(t.Context(), snapshot.Snapshot{
					Metadata: snapshot.Metadata{ID: "actor|1", SequenceNr: damage.at, Time: time.Now()}, Manifest: "state", Payload: []byte("\xc1 not a state"),
				})
				if err != nil {
					t.Fatal(err)
				}
				if damage.fault != nil {
					for range 2 { // a recovery repeats its attempt after a gap
						s.snapshots.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, Err: damage.fault})
					}
				}
				s.open()
				defer s.close()
				_, err = s.ask(recall)
				gap, ok := errors.AsType[*journal.GapError](err)
				if !ok || gap.Want != damage.want {
					t.Errorf("the error is %v, want a gap from %d", err, damage.want)
				}
			})
		})
	}
	t.Run("a record in the middle is missing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, _ := chronicle(t, 5)
			s.cfg.Store = store.Of(&lossyJournal{Journal: s.journal, missing: 3}, s.snapshots)
			s.open()
			defer s.close()
			_, err := s.ask(recall)
			gap, ok := errors.AsType[*journal.GapError](err)
			if !ok || gap.Want != 3 || gap.Got != 4 {
				t.Errorf("the error is %v, want a gap from 3 to 4", err)
			}
		})
	})
	t.Run("the last record is missing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, _ := chronicle(t, 5)
			s.cfg.Store = store.Of(&lossyJournal{Journal: s.journal, missing: 5}, s.snapshots)
			s.open()
			defer s.close()
			_, err := s.ask(recall)
			gap, ok := errors.AsType[*journal.GapError](err)
			if !ok || gap.Want != 5 || gap.Got != 0 {
				t.Errorf("the error is %v, want a gap from 5 to the end", err)
			}
		})
	})
}

// TestFilterModes checks that a recovery applies all records if the filter yields all of them, also
// those of two writers with the same number.
func TestFilterModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[journal.FilterMode]string{journal.FilterFail: "", journal.FilterRepairByDiscardOld: "1 2 3", journal.FilterWarn: "1 2 3 2 3", journal.FilterOff: "1 2 3 2 3"} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, _ := chronicle(t, 3)
				s.cfg.Store = store.Of(&doubledJournal{Journal: s.journal, from: 2}, s.snapshots)
				s.cfg.ReplayFilter.Mode = mode
				s.open()
				defer s.close()
				got, err := s.ask(recall)
				if mode == journal.FilterFail {
					expectError(t, err, journal.ErrViolation)
					return
				}
				expect(t, got, err, want)
				expect(t, s.mustAsk(addLines("4")), nil, want+" 4")
			})
		})
	}
}

// doubledJournal yields the records from a number on twice, the second time from another writer.
type doubledJournal struct {
	journal.Journal
	from uint64
}

func (j *doubledJournal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for e, err := range j.Journal.Replay(ctx, id, from, to) {
			if !yield(e, err) {
				return
			}
		}
		for e, err := range j.Journal.Replay(ctx, id, max(from, j.from), to) {
			e.Writer = "another"
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestUnreadableEvents checks that a recovery fails at an unreadable event, and that the error
// names the event.
func TestUnreadableEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := chronicle(t, 3)
		s.typ.Events = codec.Types()
		s.open()
		_, err := s.ask(recall)
		if err == nil || !strings.Contains(err.Error(), `event 1 of "actor|1"`) {
			t.Errorf("the error is %v, want one that names event 1", err)
		}
		s.close()
		s.typ.Events = nil
		s.open()
		_, err = s.ask(recall)
		expectError(t, err, codec.ErrUnknown)
		s.close()
	})
}

// TestRecoveryFails checks that all waiting commands get the error and that the recovery is tried
// again later.
func TestRecoveryFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.BackoffJitter = -1
		s.open()
		defer s.close()
		down := errors.New("down")
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Err: down, Times: 2})
		began := time.Now()
		_, err := s.ask(recall)
		expectError(t, err, down)
		_, err = s.ask(recall) // waits for the second attempt
		expectError(t, err, down)
		expect(t, s.mustAsk(addLines("up")), nil, "up")
		if d := time.Since(began); d != 9*time.Second {
			t.Errorf("the command took %v, want the pauses of 3 s and 6 s", d)
		}
	})
}

// TestUnneededRecoveries checks that the recovery of an entity is not repeated if no command waits
// for it.
func TestUnneededRecoveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Times: -1})
		_, err := s.ask(recall)
		expectError(t, err, journaltest.ErrInjected)
		pass(time.Hour)
		if n := s.journal.Calls(journaltest.OpHighest); n != 1 || s.actors.Resident() != 0 {
			t.Errorf("after an hour %d recoveries were tried and %d entities are in memory, want 1 and 0", n, s.actors.Resident())
		}
	})
}

// TestRecoveryTimeout checks that a recovery without progress fails, and that one with progress has
// no time limit.
func TestRecoveryTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := chronicle(t, 5)
		s.cfg.RecoveryTimeout = 10 * time.Second
		s.open()
		defer s.close()
		stuck := s.journal.Inject(journaltest.Fault{Op: journaltest.OpReplay, AfterEvents: 2, Do: journaltest.Stall})
		began := time.Now()
		_, err := s.ask(recall)
		expectError(t, err, eventsourcing.ErrRecoveryTimeout)
		if d := time.Since(began); d < 10*time.Second || d > 20*time.Second {
			t.Errorf("the recovery failed after %v, want 10 s to 20 s", d)
		}
		stuck.Release()
	})
	synctest.Test(t, func(t *testing.T) {
		s, _ := chronicle(t, 5)
		s.cfg.RecoveryTimeout = 10 * time.Second
		s.cfg.Store = store.Of(&lossyJournal{Journal: s.journal, pause: 8 * time.Second}, s.snapshots)
		s.open()
		defer s.close()
		expect(t, s.mustAsk(recall), nil, "1 2 3 4 5")
	})
}

// TestRecoveryLimit checks that only MaxRecoveries entities recover at the same time and that the
// others wait in order.
func TestRecoveryLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.cfg.MaxRecoveries = limit
			var order []string
			var running, most atomic.Int64
			s.cfg.Observer.RecoveryStarted = func(id string) { s.note("%s", id); most.Store(max(most.Load(), running.Add(1))) }
			s.cfg.Observer.Recovery = func(eventsourcing.RecoveryInfo) { running.Add(-1) }
			s.open()
			defer s.close()
			gate := s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall, Times: -1})
			var waits []func() (string, error)
			for i := range 80 {
				id := fmt.Sprint(i)
				order = append(order, "actor|"+id)
				waits = append(waits, later(func() (string, error) { return s.askOf(context.Background(), id, recall) }))
				synctest.Wait()
			}
			want := int64(50)
			if limit > 0 {
				want = int64(limit)
			}
			if got := running.Load(); got != want {
				t.Errorf("%d recoveries are running, want %d", got, want)
			}
			for running.Load() > 0 {
				gate.Release()
				synctest.Wait()
			}
			for _, wait := range waits {
				if _, err := wait(); err != nil {
					t.Fatal(err)
				}
			}
			if most.Load() != want {
				t.Errorf("up to %d recoveries were running, want %d", most.Load(), want)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			// Recoveries that start together may start in any order.
			for i := int(want); i < len(order); i++ {
				if pos := indexOf(s.notes, order[i]); pos < i-int(want) || pos > i+int(want) {
					t.Errorf("the recovery of %s was number %d, want %d, give or take %d", order[i], pos, i, want)
				}
			}
		})
	}
}

func indexOf(all []string, s string) int {
	for i, x := range all {
		if x == s {
			return i
		}
	}
	return -1
}

// TestCommandsWaitForRecovery checks that commands are handled in the order of their arrival.
func TestCommandsWaitForRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		defer s.close()
		gate := s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall})
		s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
			s.note("%T", signal)
			return ctx.Effect
		})
		for i := range 200 {
			s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { s.note("%d", i); return ctx.Reply("") })
		}
		synctest.Wait()
		last := later(func() (string, error) { return s.ask(recall) }) // before the entity, which has no events, leaves memory
		synctest.Wait()
		s.expectNotes()
		gate.Release()
		if _, err := last(); err != nil {
			t.Error(err)
		}
		want := []string{"eventsourcing.RecoveryCompleted"}
		for i := range 200 {
			want = append(want, fmt.Sprint(i))
		}
		s.expectNotes(want...)
	})
}

// TestSnapshotsThatDecodeHalfway checks that a snapshot whose decoding fails halfway leaves nothing
// in the state.
func TestSnapshotsThatDecodeHalfway(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			h := &hooks{}
			s.typ.Snapshots.Every = 1
			h.install(s)
			s.open()
			var want []string
			for i := range n {
				want = append(want, fmt.Sprint(i))
				s.mustAsk(addLines(want[i]))
				synctest.Wait()
			}
			s.close()
			h.panics("unmarshal")
			s.open()
			defer s.close()
			expect(t, s.mustAsk(recall), nil, strings.Join(want, " "))
		})
	}
}

// TestTimesAfterDisabledRecovery checks that an event after a recovery without a replay does not
// precede the stored ones, although the clock went back, and although they are deleted.
func TestTimesAfterDisabledRecovery(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			var back atomic.Int64
			s.cfg.Now = func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
			s.open()
			s.mustAsk(addLines("1"))
			if deleted {
				s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
				synctest.Wait()
				s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteEvents(eventsourcing.DeleteEvents{}) }))
				synctest.Wait()
			}
			want := time.Now()
			s.close()
			back.Store(int64(time.Hour))
			s.opts.Recovery.Disabled = true
			s.open()
			defer s.close()
			s.mustAsk(addLines("2"))
			for e, err := range s.journal.Unwrap().Replay(t.Context(), "actor|1", 2, journal.MaxSequenceNr) {
				if err != nil || e.Time.Before(want) {
					t.Errorf("event %d has the time %v, %v, want at least %v", e.SequenceNr, e.Time, err, want)
				}
			}
		})
	}
}
