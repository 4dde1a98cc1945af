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

// noting is a command that only notes when it is handled.
func noting(s *scene, began time.Time, name string) act {
	return act{f: func(ctx *actorCtx, _ *actor, _ act) actorEffect {
		s.note("%s %v", name, time.Since(began))
		return ctx.None()
	}}
}

func TestTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		began := time.Now()
		with := func(f func(ctx *actorCtx)) {
			s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorEffect {
				f(ctx)
				return ctx.Reply(c.With(""))
			})
		}
		with(func(ctx *actorCtx) {
			ctx.StartTimer("a", time.Second, noting(s, began, "a"))
			ctx.StartTimer("b", 2*time.Second, noting(s, began, "b"))
			ctx.StartTimer("c", 3*time.Second, noting(s, began, "c"))
			ctx.StartTicker("t", 1500*time.Millisecond, noting(s, began, "t"))
		})
		pass(1100 * time.Millisecond)
		with(func(ctx *actorCtx) {
			ctx.StartTimer("b", time.Second, noting(s, began, "b again")) // replaces it
			ctx.StopTimer("c")
			ctx.StopTimer("unknown")
		})
		pass(4900 * time.Millisecond)
		s.expectNotes("a 1s", "t 1.5s", "b again 2.1s", "t 3s", "t 4.5s", "t 6s")
		with(func(ctx *actorCtx) { ctx.StopTimer("t") })
		pass(time.Minute)
		s.expectNotes()

		// What a handler asks for happens when its effect is durable, and not at
		// all if it never is.
		start := func(name string) func(ctx *actorCtx, a *actor, c act) actorEffect {
			return func(ctx *actorCtx, _ *actor, c act) actorEffect {
				ctx.StartTimer(name, time.Second, noting(s, time.Now(), name))
				return ctx.Persist(line{name}).Reply(c.With(""))
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

		// Timers outlive a refolding, and end when the entity stops.
		began = time.Now()
		with(func(ctx *actorCtx) { ctx.StartTicker("t", time.Second, noting(s, began, "t")) })
		pass(1500 * time.Millisecond)
		_, _ = s.ask(func(*actorCtx, *actor, act) actorEffect { panic("oops") })
		pass(time.Second)
		s.mustAsk(request(func(ctx *actorCtx) actorEffect { return ctx.Stop() }))
		pass(time.Minute)
		s.expectNotes("t 1s", "t 2s")
		if n := s.actors.Resident(); n != 0 {
			t.Errorf("%d entities are in memory", n)
		}
	})
}

// TestGo: work beside the entity comes back as a command.
func TestGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		start := func(work func(ctx context.Context) actorCommand) {
			s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorEffect {
				ctx.Go(work)
				return ctx.Persist(line{"started"}).Reply(c.With(""))
			})
		}
		release := make(chan struct{})
		start(func(context.Context) actorCommand {
			<-release
			return act{f: say("finished")}
		})
		expect(t, s.mustAsk(recall), nil, "started")
		close(release)
		synctest.Wait()
		expect(t, s.mustAsk(recall), nil, "started finished")
		start(func(context.Context) actorCommand { return nil })
		start(func(context.Context) actorCommand { panic("oops") })
		synctest.Wait()
		expect(t, s.mustAsk(recall), nil, "started finished started started")

		// It starts the entity again, and is awaited by Close.
		release = make(chan struct{})
		start(func(ctx context.Context) actorCommand {
			<-ctx.Done()
			s.note("ended by Close")
			return act{f: say("nobody hears it")}
		})
		start(func(context.Context) actorCommand {
			<-release
			return act{f: say("again")}
		})
		s.mustAsk(request(func(ctx *actorCtx) actorEffect { return ctx.Stop() }))
		synctest.Wait()
		if n := s.actors.Resident(); n != 0 {
			t.Errorf("%d entities are in memory", n)
		}
		close(release)
		synctest.Wait()
		if text := s.mustAsk(recall); !strings.HasSuffix(text, "again") {
			t.Errorf("the lines are %q", text)
		}
		s.close()
		s.expectNotes("ended by Close")
	})
}

// TestReceiveTimeout: told whenever no command came for a while.
func TestReceiveTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).listening().open()
		defer s.close()
		began := time.Now()
		s.on(func(ctx *actorCtx, _ *actor, signal eventsourcing.Signal) actorEffect {
			if signal == (eventsourcing.ReceiveTimeout{}) {
				s.note("%v", time.Since(began))
			}
			return ctx.None()
		})
		set := func(d time.Duration) {
			s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorEffect {
				ctx.ReceiveTimeout(d)
				return ctx.Reply(c.With(""))
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

// TestTimeSteps: events carry the wall's time, and what waits goes by a steady one.
func TestTimeSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).listening()
		var off atomic.Int64
		s.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		s.opts.PassivateAfter = time.Minute
		s.open()
		defer s.close()
		began := time.Now()
		s.on(func(ctx *actorCtx, _ *actor, signal eventsourcing.Signal) actorEffect {
			if signal == (eventsourcing.ReceiveTimeout{}) {
				s.note("%v, the wall says %v", time.Since(began), ctx.Now().Sub(began))
				ctx.ReceiveTimeout(0)
			}
			return ctx.None()
		})
		set := func(ctx *actorCtx, _ *actor, c act) actorEffect {
			ctx.ReceiveTimeout(10 * time.Second)
			return ctx.Reply(c.With(""))
		}
		s.mustAsk(set)
		off.Store(int64(-time.Hour))
		pass(11 * time.Second)
		s.expectNotes("10s, the wall says -59m50s")
		s.mustAsk(set)
		off.Store(int64(time.Hour))
		pass(9 * time.Second)
		s.mustAsk(recall)
		pass(9 * time.Second)
		s.expectNotes()
		pass(2 * time.Second)
		s.expectNotes("30s, the wall says 1h0m30s")
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

// timed has a state that ends by itself: each line "wait" sets a deadline of 10 s
// after it, any other one takes it away.
type timed struct {
	listener
	Until time.Time
}

// waiting sets a deadline.
type waitUntil struct{ At time.Time }

func (waitUntil) isActorEvent() {}

func (w *timed) ApplyEvent(event actorEvent) {
	w.Until = time.Time{}
	if e, ok := event.(waitUntil); ok {
		w.Until = e.At
		return
	}
	w.actor.ApplyEvent(event)
}

func (w *timed) Deadline() time.Time { return w.Until }

func newTimed(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.typ.Events = timedEvents()
	s.typ.New = func(string) eventsourcing.Aggregate[actorCommand, actorEvent] {
		return &timed{listener: listener{actor{scene: s}}}
	}
	s.on(func(ctx *actorCtx, _ *actor, signal eventsourcing.Signal) actorEffect {
		if e, ok := signal.(eventsourcing.StateTimeout); ok {
			s.note("due %v late", time.Since(e.Deadline))
		}
		return ctx.None()
	})
	return s
}

// waitFor sets a deadline.
func waitFor(d time.Duration) func(ctx *actorCtx, a *actor, c act) actorEffect {
	return func(ctx *actorCtx, _ *actor, c act) actorEffect {
		return ctx.Persist(waitUntil{ctx.Now().Add(d)}).Reply(c.With(""))
	}
}

// TestDeadlines: told once when a state has lasted too long, even if the entity
// was not there at the time.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimed(t).open()
		s.mustAsk(waitFor(10 * time.Second))
		pass(9 * time.Second)
		s.expectNotes()
		pass(time.Hour)
		s.expectNotes("due 0s late")

		// A state that changes in time.
		s.mustAsk(waitFor(10 * time.Second))
		pass(9 * time.Second)
		s.mustAsk(say("moved on"))
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

		// It survives restarts.
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

// TestDeadlineOfALostInstance: what the time-out led to was not stored, so the
// refolded instance is told again.
func TestDeadlineOfALostInstance(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]journaltest.Effect{"rejected": journaltest.Reject, "lost": journaltest.Lose} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTimed(t)
				s.on(func(ctx *actorCtx, _ *actor, signal eventsourcing.Signal) actorEffect {
					if _, ok := signal.(eventsourcing.StateTimeout); ok {
						return ctx.Persist(line{"timed out"})
					}
					return ctx.None()
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

// TestDeadlineUnderLoad: a deadline counts even if writes are in flight all the
// time.
func TestDeadlineUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimed(t)
		s.cfg.Store = store.Of(&slowAppends{Journal: s.journal, pause: 10 * time.Millisecond}, s.snapshots)
		s.open()
		defer s.close()
		until := time.Now().Add(time.Second)
		again := func(ctx *actorCtx, _ *actor, c act) actorEffect {
			return ctx.Persist(waitUntil{until}).Reply(c.With(""))
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
			t.Error("the deadline passed, and nobody was told")
		}
		for _, wait := range waits {
			if _, err := wait(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestTimersEndWithTheirInstance, even if the next one follows at once.
func TestTimersEndWithTheirInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		began := time.Now()
		s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorEffect {
			ctx.StartTimer("t", time.Minute, noting(s, began, "t"))
			return ctx.Reply(c.With(""))
		})
		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall, Times: 2})
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorEffect { return ctx.Persist(line{"1"}).And(ctx.Stop()) })
		s.tell(say("2")) // still for this instance
		synctest.Wait()
		gate.Release()
		synctest.Wait()
		next := later(func() (string, error) { return s.ask(say("3")) })
		synctest.Wait()
		gate.Release()
		text, err := next()
		expect(t, text, err, "1 2 3")
		pass(time.Hour)
		s.expectNotes()
	})
}
