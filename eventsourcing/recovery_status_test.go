// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
)

// only returns the last signal of type G that the scene has received since the last call.
func only[G eventsourcing.Signal](s *scene) (last G) {
	s.t.Helper()
	found := false
	for _, signal := range s.take() {
		if g, ok := signal.(G); ok {
			last, found = g, true
		}
	}
	if !found {
		s.t.Errorf("no %T was received", last)
	}
	return last
}

// TestRecoveryCompletedFields checks the sequence number, the snapshot and the events in the signal.
func TestRecoveryCompletedFields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals()
		s.typ.Snapshots.Every = 2
		s.open()
		defer func() { s.close() }()
		s.mustAsk(addLines("1"))
		if got, want := only[eventsourcing.RecoveryCompleted](s), (eventsourcing.RecoveryCompleted{}); got != want {
			t.Errorf("the signal of a new entity is %+v, want %+v", got, want)
		}
		s.mustAsk(addLines("2"))
		s.mustAsk(addLines("3"))
		synctest.Wait()
		s.reopen()
		s.mustAsk(recall)
		if got, want := only[eventsourcing.RecoveryCompleted](s), (eventsourcing.RecoveryCompleted{SequenceNr: 3, SnapshotNr: 2, Events: 1}); got != want {
			t.Errorf("the signal is %+v, want %+v", got, want)
		}
	})
}

// TestPersistSignalsNameTheEvent checks the event and the number in PersistFailed and PersistRejected.
func TestPersistSignalsNameTheEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		defer s.close()
		s.mustAsk(addLines("1"))
		s.journal.Inject(journaltest.Fault{Err: journal.ErrNotSent})
		s.mustFail(addLines("2", "3"))
		s.mustAsk(recall)
		if f := only[eventsourcing.PersistFailed](s); f.Event != (line{"2"}) || f.SequenceNr != 2 || f.Err == nil {
			t.Errorf("the signal is %+v, want event 2", f)
		}
		for number, text := range map[uint64]string{0: "2", 3: "3"} { // 0 stands for the whole write
			s.journal.Inject(journaltest.Fault{Err: &journal.RejectedError{ID: "actor|1", SequenceNr: number, Reason: errors.New("injected")}})
			s.mustFail(addLines("2", "3"))
			s.mustAsk(recall)
			if r := only[eventsourcing.PersistRejected](s); r.Event != (line{text}) || r.SequenceNr != max(number, 2) || r.Err == nil {
				t.Errorf("the signal is %+v, want event %s", r, text)
			}
		}
	})
}

// TestRecordedRecovering checks the field in a recovery, in a Fold, and for new events.
func TestRecordedRecovering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Apply = nil
		s.typ.ApplyRecorded = func(a *actor, e actorEvent, r eventsourcing.Recorded) {
			a.Lines = append(a.Lines, fmt.Sprint(e.(line).Text, r.Recovering)) //nolint:errcheck,forcetypeassert // there is no other event
		}
		s.open()
		defer func() { s.close() }()
		expect(t, s.mustAsk(addLines("1")), nil, "1false")
		s.reopen()
		expect(t, s.mustAsk(addLines("2")), nil, "1true 2false")
		folded, err := eventsourcing.Fold(context.Background(), s.rt, s.typ, "1", eventsourcing.FoldOptions[actorEvent]{})
		if err != nil || !slices.Equal(folded.State.Lines, []string{"1true", "2true"}) {
			t.Errorf("Fold = %+v, %v", folded.State, err)
		}
	})
}

// TestPresence checks the answers before, during and after a recovery, in a back-off, and after the end.
func TestPresence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		check := func(at string, want eventsourcing.Presence) {
			t.Helper()
			synctest.Wait()
			if got := s.actors.Presence("1"); got != want {
				t.Errorf("%s: the entity is %v, want %v", at, got, want)
			}
		}
		check("at first", eventsourcing.Absent)
		replay := s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall})
		wait := later(func() (string, error) { return s.ask(addLines("1")) })
		<-replay.Struck()
		check("during the recovery", eventsourcing.Recovering)
		replay.Release()
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		check("after the recovery", eventsourcing.Running)
		s.journal.Inject(journaltest.Fault{Err: journal.ErrNotSent})
		s.mustFail(addLines("2"))
		check("in a back-off", eventsourcing.Recovering)
		pass(10 * time.Second)
		check("after the back-off", eventsourcing.Running)
		s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Stop().Reply("") })
		check("at the end", eventsourcing.Absent)
		for p, want := range map[eventsourcing.Presence]string{eventsourcing.Absent: "absent", eventsourcing.Recovering: "recovering", eventsourcing.Running: "running", 9: "unknown"} {
			if got := p.String(); got != want {
				t.Errorf("the text of %d is %q, want %q", p, got, want)
			}
		}
	})
}

// TestRecoveryOf checks that one entity is recovered to an earlier event, and is read-only, while another
// one is recovered completely.
func TestRecoveryOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		ctx := context.Background()
		for _, id := range []string{"1", "2"} {
			for _, text := range []string{"a", "b"} {
				if _, err := s.askOf(ctx, id, addLines(text)); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.close()
		s.opts.RecoveryOf = func(id string) eventsourcing.Recovery {
			switch id {
			case "1":
				return eventsourcing.Recovery{UpTo: 1}
			case "3":
				panic("injected")
			}
			return eventsourcing.Recovery{}
		}
		s.open()
		defer func() { s.close() }()
		expect(t, s.mustAsk(recall), nil, "a")
		_, err := s.ask(addLines("c"))
		expectError(t, err, eventsourcing.ErrReadOnly)
		text, err := s.askOf(ctx, "2", addLines("c"))
		expect(t, text, err, "a b c")
		_, err = s.askOf(ctx, "3", recall)
		expectError(t, err, eventsourcing.ErrRecovery)
		_, err = eventsourcing.HostWith(s.rt, s.typ, eventsourcing.HostOptions{SharedJournal: true, RecoveryOf: s.opts.RecoveryOf})
		expectError(t, err, eventsourcing.ErrInvalid)
	})
}

// TestRecoveryFailedSignal checks the state and the effects of the handler, and that Stop ends the
// attempts.
func TestRecoveryFailedSignal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		react    func(*signalCtx) signalEffect
		attempts int // within ten minutes
		notes    []string
	}{
		"nothing": {func(ctx *signalCtx) signalEffect { return ctx.Effect }, 20, nil},
		"stop":    {func(ctx *signalCtx) signalEffect { return ctx.Stop() }, 1, nil},
		"then": {func(ctx *signalCtx) signalEffect {
			return ctx.Then(func(ctx *signalCtx) signalEffect { return ctx.Stop() })
		}, 1, nil},
		"persist": {func(ctx *signalCtx) signalEffect { return ctx.Persist(line{"x"}).Stop() }, 20, nil},
		"save":    {func(ctx *signalCtx) signalEffect { return ctx.SaveSnapshot().Stop() }, 20, nil},
		"delete": {func(ctx *signalCtx) signalEffect {
			return ctx.DeleteEvents(eventsourcing.DeleteEvents{Abandon: true}).Stop()
		}, 20, nil},
		"panic": {func(*signalCtx) signalEffect { panic("injected") }, 20, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.typ.Signals = eventsourcing.Signals(on[eventsourcing.RecoveryFailed]())
			s.on(func(ctx *signalCtx, a *actor, signal eventsourcing.Signal) signalEffect {
				f, ok := signal.(eventsourcing.RecoveryFailed)
				if !ok || !errors.Is(f.Err, journaltest.ErrInjected) || len(a.Lines) > 0 || ctx.ID() != "1" {
					t.Errorf("%s: the entity %q with %d lines received %+v", name, ctx.ID(), len(a.Lines), signal)
				}
				return c.react(ctx)
			})
			s.opts.PassivateAfter = -1
			s.open()
			defer func() { s.close() }()
			s.mustAsk(addLines("1"))
			s.reopen()
			s.journal.Inject(journaltest.Fault{Op: journaltest.OpReplay, Times: -1})
			_, err := s.ask(recall)
			expectError(t, err, eventsourcing.ErrRecovery)
			for range 60 { // commands keep the attempts going
				pass(10 * time.Second)
				if c.attempts > 1 {
					s.tell(recall)
				}
			}
			n := len(s.take())
			if c.attempts == 1 && n != 1 || c.attempts > 1 && n < c.attempts {
				t.Errorf("%s: the entity received %d signals, want %d", name, n, c.attempts)
			}
			if resident := s.actors.Resident(); c.attempts == 1 && resident != 0 {
				t.Errorf("%s: %d entities are in memory, want 0", name, resident)
			}
			s.journal.Reset()
			pass(time.Minute)
			expect(t, s.mustAsk(recall), nil, "1")
			s.expectStored("1")
			s.expectSaved()
		})
	}
}
