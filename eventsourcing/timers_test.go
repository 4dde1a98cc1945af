// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/store"
)

// noting returns a command that only notes the time at which it is handled.
func noting(s *scene, began time.Time, name string) act {
	return act{f: func(ctx *actorCtx, _ *actor, _ act) actorDecision {
		s.note("%s %v", name, time.Since(began))
		return ctx.Reply("")
	}}
}

func TestTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		began := time.Now()
		with := func(f func(ctx *actorCtx) actorStep) {
			s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision { return f(ctx).Reply("") })
		}
		with(func(ctx *actorCtx) actorStep {
			return ctx.StartTimer("a", time.Second, noting(s, began, "a")).
				StartTimer("b", 2*time.Second, noting(s, began, "b")).
				StartTimer("c", 3*time.Second, noting(s, began, "c")).
				StartTicker("t", 1500*time.Millisecond, noting(s, began, "t"))
		})
		pass(1100 * time.Millisecond)
		with(func(ctx *actorCtx) actorStep {
			return ctx.StartTimer("b", time.Second, noting(s, began, "b again")). // replaces the timer
												StopTimer("c").StopTimer("unknown")
		})
		pass(4900 * time.Millisecond)
		s.expectNotes("a 1s", "t 1.5s", "b again 2.1s", "t 3s", "t 4.5s", "t 6s")
		with(func(ctx *actorCtx) actorStep { return ctx.StopTimer("t") })
		pass(time.Minute)
		s.expectNotes()

		// A timer starts when the events of its effect are durable, and never if their write fails.
		start := func(name string) func(ctx *actorCtx, a *actor, c act) actorDecision {
			return func(ctx *actorCtx, _ *actor, c act) actorDecision {
				return ctx.StartTimer(name, time.Second, noting(s, time.Now(), name)).Persist(line{name}).Reply("")
			}
		}
		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		wait := later(func() (string, error) { return s.ask(start("slow")) })
		pass(5 * time.Second)
		s.expectNotes()
		gate.Release()
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		s.expectNotes("slow 6s")
		s.journal.Inject(journaltest.Fault{Do: journaltest.Reject})
		_, err := s.ask(start("rejected"))
		expectError(t, err, eventsourcing.ErrRejected)
		pass(time.Minute)
		s.expectNotes()

		// Timers survive a recovery after a failed write, and end when the entity stops.
		began = time.Now()
		with(func(ctx *actorCtx) actorStep { return ctx.StartTicker("t", time.Second, noting(s, began, "t")) })
		pass(1500 * time.Millisecond)
		_, _ = s.ask(func(*actorCtx, *actor, act) actorDecision { panic("oops") })
		pass(time.Second)
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.Stop() }))
		pass(time.Minute)
		s.expectNotes("t 1s", "t 2s")
		if n := s.actors.Resident(); n != 0 {
			t.Errorf("%d entities are in memory, want 0", n)
		}
	})
}

// TestGo checks that the result of Effect.Go arrives as a command.
func TestGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		start := func(work func(ctx context.Context) eventsourcing.Message[actor]) {
			s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision {
				return ctx.Go(work).Persist(line{"started"}).Reply("")
			})
		}
		release := make(chan struct{})
		start(func(context.Context) eventsourcing.Message[actor] {
			<-release
			return act{f: addLines("finished")}
		})
		expect(t, s.mustAsk(recall), nil, "started")
		close(release)
		synctest.Wait()
		expect(t, s.mustAsk(recall), nil, "started finished")
		start(func(context.Context) eventsourcing.Message[actor] { return nil })
		start(func(context.Context) eventsourcing.Message[actor] { panic("oops") })
		synctest.Wait()
		expect(t, s.mustAsk(recall), nil, "started finished started started")

		// A result starts the entity again. Close waits until the functions have returned.
		release = make(chan struct{})
		start(func(ctx context.Context) eventsourcing.Message[actor] {
			<-ctx.Done()
			s.note("ended by Close")
			return act{f: addLines("after Close")}
		})
		start(func(context.Context) eventsourcing.Message[actor] {
			<-release
			return act{f: addLines("again")}
		})
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.Stop() }))
		synctest.Wait()
		if n := s.actors.Resident(); n != 0 {
			t.Errorf("%d entities are in memory, want 0", n)
		}
		close(release)
		synctest.Wait()
		if text := s.mustAsk(recall); !strings.HasSuffix(text, "again") {
			t.Errorf("the lines are %q, want again as the last one", text)
		}
		s.close()
		s.expectNotes("ended by Close")
	})
}

// TestReceiveTimeout checks that a signal follows each interval without a command.
func TestReceiveTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals().open()
		defer s.close()
		began := time.Now()
		s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
			if signal == (eventsourcing.ReceiveTimeout{}) {
				s.note("%v", time.Since(began))
			}
			return ctx.Effect
		})
		set := func(d time.Duration) {
			s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision {
				return ctx.ReceiveTimeout(d).Reply("")
			})
		}
		set(10 * time.Second)
		pass(6 * time.Second)
		s.mustAsk(recall)
		pass(9 * time.Second)
		s.expectNotes()
		pass(12 * time.Second)
		s.expectNotes("16s", "26s")
		set(time.Second)
		pass(1500 * time.Millisecond)
		s.expectNotes("28s")
		set(0)
		pass(time.Hour)
		s.expectNotes()
	})
}

// TestTimeSteps checks that events have the time of Config.Now and that timers use a steady clock.
func TestTimeSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals()
		var off atomic.Int64
		s.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		s.opts.PassivateAfter = time.Minute
		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		began := time.Now()
		s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
			if signal == (eventsourcing.ReceiveTimeout{}) {
				s.note("%v, wall clock %v", time.Since(began), ctx.Now().Sub(began))
				return ctx.ReceiveTimeout(0)
			}
			return ctx.Effect
		})
		set := func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.ReceiveTimeout(10 * time.Second).Reply("")
		}
		s.mustAsk(set)
		off.Store(int64(-time.Hour))
		pass(11 * time.Second)
		s.expectNotes("10s, wall clock -59m50s")
		s.mustAsk(set)
		off.Store(int64(time.Hour))
		pass(9 * time.Second)
		s.mustAsk(recall)
		pass(9 * time.Second)
		s.expectNotes()
		pass(2 * time.Second)
		s.expectNotes("30s, wall clock 1h0m30s")
		if s.actors.Resident() != 1 {
			t.Error("an entity was passivated because the clock was set forward")
		}
		off.Store(int64(-time.Hour))
		pass(2 * time.Minute)
		if s.actors.Resident() != 0 {
			t.Error("an idle entity was kept because the clock was set back")
		}
	})
}

// waitUntil sets a deadline; each other event removes it.
type waitUntil struct{ At time.Time }

func (waitUntil) isActorEvent() {}

func newTimed(t *testing.T) *scene {
	t.Helper()
	s := newScene(t).withSignals()
	s.typ.Events = timedEvents()
	s.typ.Apply = func(a *actor, event actorEvent) {
		a.Until = time.Time{}
		if e, ok := event.(waitUntil); ok {
			a.Until = e.At
			return
		}
		a.apply(event)
	}
	s.typ.Deadline = func(a *actor) time.Time { return a.Until }
	s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
		if e, ok := signal.(eventsourcing.StateTimeout); ok {
			s.note("due %v late", time.Since(e.Deadline))
		}
		return ctx.Effect
	})
	return s
}

// waitFor sets a deadline.
func waitFor(d time.Duration) func(ctx *actorCtx, a *actor, c act) actorDecision {
	return func(ctx *actorCtx, _ *actor, c act) actorDecision {
		return ctx.Persist(waitUntil{ctx.Now().Add(d)}).Reply("")
	}
}

// TestDeadlines checks that one signal follows a deadline, even if the entity was not in memory at
// that time.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimed(t).open()
		s.mustAsk(waitFor(10 * time.Second))
		pass(9 * time.Second)
		s.expectNotes()
		pass(time.Hour)
		s.expectNotes("due 0s late")

		// The state changes before the deadline.
		s.mustAsk(waitFor(10 * time.Second))
		pass(9 * time.Second)
		s.mustAsk(addLines("moved on"))
		pass(time.Hour)
		s.expectNotes()

		// A later, and then an earlier deadline.
		s.mustAsk(waitFor(time.Minute))
		s.mustAsk(waitFor(time.Hour))
		pass(59 * time.Minute)
		s.expectNotes()
		s.mustAsk(waitFor(time.Second))
		pass(time.Second)
		s.expectNotes("due 0s late")

		// A deadline survives restarts.
		s.mustAsk(waitFor(time.Minute))
		s.reopen()
		s.mustAsk(recall)
		pass(time.Minute)
		s.expectNotes("due 0s late")
		s.reopen()
		s.mustAsk(recall)
		synctest.Wait()
		s.expectNotes("due 0s late") // once for each instance
		s.mustAsk(waitFor(time.Minute))
		s.close()
		time.Sleep(time.Hour)
		s.open()
		s.mustAsk(recall)
		synctest.Wait()
		s.expectNotes("due 59m0s late")
		s.close()
	})
}

// TestDeadlineOfAnIdleEntity checks that an entity is not passivated between its deadline and the
// signal. Both are due in one turn, because a handler occupied the entity until then.
func TestDeadlineOfAnIdleEntity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimed(t)
		s.opts.PassivateAfter = time.Minute
		s.open()
		defer s.close()
		s.mustAsk(waitFor(time.Hour))
		gate := make(chan struct{})
		occupied := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				<-gate
				return ctx.Reply("")
			})
		})
		time.Sleep(time.Hour + time.Minute)
		close(gate)
		if _, err := occupied(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.expectNotes("due 1m0s late")
		pass(5 * time.Minute)
		if s.actors.Resident() != 0 {
			t.Error("an idle entity was kept after its deadline")
		}
	})
}

// TestDeadlineOfALostInstance checks that a recovered instance receives the signal again if the
// events of the first one were not stored.
func TestDeadlineOfALostInstance(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]journaltest.Effect{"rejected": journaltest.Reject, "lost": journaltest.Lose} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTimed(t)
				s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
					if _, ok := signal.(eventsourcing.StateTimeout); ok {
						return ctx.Persist(line{"timed out"})
					}
					return ctx.Effect
				})
				s.open()
				defer s.close()
				s.mustAsk(waitFor(10 * time.Second))
				s.journal.Inject(journaltest.Fault{Do: fault})
				pass(time.Minute)
				expect(t, s.mustAsk(recall), nil, "timed out")
			})
		})
	}
}

// TestDeadlineUnderLoad checks that a deadline is reported although writes are always in flight.
func TestDeadlineUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimed(t)
		s.cfg.Store = store.Of(&slowAppends{Journal: s.journal, pause: 10 * time.Millisecond}, s.snapshots)
		s.open()
		defer s.close()
		until := time.Now().Add(time.Second)
		again := func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(waitUntil{until}).Reply("")
		}
		var waits []func() (string, error)
		for range 400 {
			waits = append(waits, later(func() (string, error) { return s.ask(again) }))
			time.Sleep(4 * time.Millisecond)
		}
		synctest.Wait()
		s.mu.Lock()
		notes := slices.Clone(s.notes)
		s.mu.Unlock()
		if len(notes) == 0 {
			t.Error("the deadline passed without a signal")
		}
		for _, wait := range waits {
			if _, err := wait(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestTimersEndWithTheirInstance checks that timers end although the next instance starts at once.
func TestTimersEndWithTheirInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		began := time.Now()
		s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.StartTimer("t", time.Minute, noting(s, began, "t")).Reply("")
		})
		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall, Times: 2})
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"1"}).And(ctx.Stop()).Reply("")
		})
		s.tell(addLines("2")) // still for this instance
		synctest.Wait()
		gate.Release()
		synctest.Wait()
		next := later(func() (string, error) { return s.ask(addLines("3")) })
		synctest.Wait()
		gate.Release()
		text, err := next()
		expect(t, text, err, "1 2 3")
		pass(time.Hour)
		s.expectNotes()
	})
}
