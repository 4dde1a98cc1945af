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
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
)

func panics(*actorCtx, *actor, act) actorDecision { panic("injected") }

// supervised returns a scene with a supervisor, which counts the instances.
func supervised(tb testing.TB, directive eventsourcing.Directive) (s *scene, instances *atomic.Int64) {
	tb.Helper()
	s, instances = newScene(tb), new(atomic.Int64)
	s.typ.New = func(id string) *actor {
		if id == "1" {
			instances.Add(1)
		}
		return &actor{scene: s}
	}
	s.opts.Supervise = func(cause error) eventsourcing.Directive {
		s.note("%v", eventsourcing.StatusOf(cause).Code)
		return directive
	}
	return s, instances
}

// TestSuperviseResume checks that an instance continues after a failure that has left its state intact,
// and that another instance follows after the others.
func TestSuperviseResume(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail      func(s *scene)
		instances int64
		want      string
	}{
		"handler": {func(s *scene) { s.mustFail(panics) }, 1, "1"},
		"callback": {func(s *scene) {
			s.mustFail(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				return ctx.Persist(line{"2"}).Then(func(*actorCtx) actorStep { panic("injected") }).Reply("")
			})
		}, 1, "1 2"},
		"overflow": {func(s *scene) {
			stash := func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Stash() }
			s.tell(stash)
			synctest.Wait()
			s.mustFail(stash)
		}, 1, "1"},
		"apply":        {func(s *scene) { s.mustFail(addLines("poison")) }, 2, "1"},
		"second apply": {func(s *scene) { s.mustFail(addLines("2", "poison")) }, 2, "1"},
		"callback applies": {func(s *scene) {
			s.mustFail(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				return ctx.Then(func(ctx *actorCtx) actorStep { return ctx.Persist(line{"poison"}) }).Reply("")
			})
		}, 2, "1"},
		"write": {func(s *scene) {
			s.journal.Inject(journaltest.Fault{Err: journal.ErrNotSent})
			s.mustFail(addLines("2"))
		}, 2, "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, instances := supervised(t, eventsourcing.Resume)
			s.opts.StashCapacity, s.opts.Overflow = 1, eventsourcing.OverflowFail
			s.opts.PassivateAfter = -1
			s.open()
			defer s.close()
			s.mustAsk(addLines("1"))
			instances.Store(1) // hosting the type makes one, too
			c.fail(s)
			text, err := s.ask(recall)
			if err != nil || text != c.want {
				t.Errorf("%s: the answer is %q, %v, want %q", name, text, err, c.want)
			}
			if n := instances.Load(); n != c.instances {
				t.Errorf("%s: %d instances, want %d", name, n, c.instances)
			}
		})
	}
}

// mustFail asks the actor "1" and expects an error.
func (s *scene) mustFail(f func(ctx *actorCtx, a *actor, c act) actorDecision) {
	s.t.Helper()
	if text, err := s.ask(f); err == nil {
		s.t.Errorf("the answer is %q, want an error", text)
	}
}

// TestResumeKeepsCommands resumes an instance with a stashed command and a timer, more often than
// PanicLimit.
func TestResumeKeepsCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := supervised(t, eventsourcing.Resume)
		s.open()
		defer s.close()
		began := time.Now()
		stashed := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, a *actor, _ act) actorDecision {
				if len(a.Lines) == 0 {
					return ctx.Stash()
				}
				return ctx.Reply("stashed " + a.text())
			})
		})
		synctest.Wait()
		for range 10 {
			s.mustFail(panics)
		}
		s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"1"}).UnstashAll().Reply("")
		})
		text, err := stashed()
		expect(t, text, err, "stashed 1")
		if passed := time.Since(began); passed > 0 {
			t.Errorf("the entity paused for %v, want no pause", passed)
		}
	})
}

// TestSuperviseStop checks that a failed entity leaves memory, that the commands that wait fail, and
// that the next command starts the entity without a pause.
func TestSuperviseStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func(s *scene)
		code string
	}{
		"panic": {func(s *scene) { s.mustFail(panics) }, "refold/panic"},
		"write": {func(s *scene) {
			s.journal.Inject(journaltest.Fault{Err: journal.ErrNotSent})
			s.mustFail(addLines("2"))
		}, "internal"},
		"rejected": {func(s *scene) {
			s.journal.Inject(journaltest.Fault{Err: &journal.RejectedError{ID: "actor|1", Reason: errors.New("injected")}})
			s.mustFail(addLines("2"))
		}, "refold/rejected"},
		"recovery": {func(s *scene) {
			s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Stop().Reply("") })
			synctest.Wait()
			s.journal.Inject(journaltest.Fault{Op: journaltest.OpReplay})
			_, err := s.ask(recall)
			expectError(s.t, err, eventsourcing.ErrRecovery)
		}, "refold/recovery"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := supervised(t, eventsourcing.Stop)
			s.open()
			defer s.close()
			s.mustAsk(addLines("1"))
			began := time.Now()
			c.fail(s)
			synctest.Wait()
			if n := s.actors.Resident(); n != 0 {
				t.Errorf("%s: %d entities are in memory, want 0", name, n)
			}
			expect(t, s.mustAsk(recall), nil, "1")
			if passed := time.Since(began); passed > 0 {
				t.Errorf("%s: the entity paused for %v, want no pause", name, passed)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(s.notes, []string{c.code}) {
				t.Errorf("%s: the supervisor received errors with the codes %q, want %q", name, s.notes, c.code)
			}
		})
	}
}

// TestStopAnswersWaitingCommands stops an entity while commands wait in it.
func TestStopAnswersWaitingCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := supervised(t, eventsourcing.Stop)
		s.open()
		defer s.close()
		waits := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Stash() })
		})
		synctest.Wait()
		s.mustFail(panics)
		_, err := waits()
		expectError(t, err, eventsourcing.ErrStopped)
	})
}

// TestEscalate checks that a failed entity withdraws its type: the other entities stop without loss, and
// the runtime can host the type again.
func TestEscalate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := supervised(t, eventsourcing.Escalate)
		s.typ.Signals = eventsourcing.Signals(on[eventsourcing.Stopping]())
		s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
			return ctx.Persist(line{"bye"})
		})
		s.open()
		defer s.close()
		ctx := context.Background()
		s.mustAsk(addLines("1"))
		if text, err := s.askOf(ctx, "2", addLines("2")); err != nil {
			t.Errorf("the answer is %q, %v", text, err)
		}
		if err := s.actors.Err(); err != nil {
			t.Errorf("Err = %v before the failure, want nil", err)
		}
		s.mustFail(panics)
		<-s.actors.Done()
		if _, ok := errors.AsType[*eventsourcing.PanicError](s.actors.Err()); !ok {
			t.Errorf("Err = %v, want a PanicError", s.actors.Err())
		}
		_, err := s.ask(recall)
		expectError(t, err, eventsourcing.ErrClosed)
		s.on(nil)
		if s.actors, err = eventsourcing.HostWith(s.rt, s.typ, s.opts); err != nil {
			t.Fatal(err)
		}
		expect(t, s.mustAsk(recall), nil, "1")
		text, err := s.askOf(ctx, "2", recall)
		expect(t, text, err, "2 bye")
	})
}

// TestSuperviseFails checks that a supervisor that panics, or returns an unknown directive, restarts the
// entity.
func TestSuperviseFails(t *testing.T) {
	t.Parallel()
	for _, f := range []func(error) eventsourcing.Directive{
		func(error) eventsourcing.Directive { panic("injected") },
		func(error) eventsourcing.Directive { return 99 },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, instances := supervised(t, eventsourcing.Restart)
			s.opts.Supervise = f
			s.open()
			defer s.close()
			s.mustAsk(addLines("1"))
			instances.Store(1)
			s.mustFail(panics)
			expect(t, s.mustAsk(recall), nil, "1")
			if n := instances.Load(); n != 2 {
				t.Errorf("%d instances, want 2", n)
			}
		})
	}
}

// TestPanicLimit checks the number of panics that lead to a pause.
func TestPanicLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.PanicLimit, s.opts.PanicWindow = 2, time.Minute
		s.opts.MinBackoff, s.opts.BackoffJitter = time.Second, -1
		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		for i, want := range []time.Duration{0, time.Second} { // the second panic is the limit
			if i > 0 {
				pass(50 * time.Second) // less than PanicWindow
			}
			began := time.Now()
			s.mustFail(panics)
			s.mustAsk(recall)
			if paused := time.Since(began); paused != want {
				t.Errorf("the pause after panic %d was %v, want %v", i+1, paused, want)
			}
		}
		_, err := eventsourcing.HostWith(s.rt, s.typ, eventsourcing.HostOptions{PanicLimit: -1, PanicWindow: -1})
		expectError(t, err, eventsourcing.ErrInvalid)
		for _, field := range []string{"HostOptions.PanicLimit", "HostOptions.PanicWindow"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("the error does not name %s: %v", field, err)
			}
		}
	})
}

// TestLocalClose withdraws a type under load. No command is lost, and the next host of the type in the
// same runtime continues with all events.
func TestLocalClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		ctx := context.Background()
		select {
		case <-s.actors.Done():
			t.Error("Done is closed before Close")
		default:
		}
		const asks = 100
		waits := make([]func() (string, error), asks)
		for i := range waits {
			waits[i] = later(func() (string, error) { return s.askOf(ctx, fmt.Sprint(i%10), addLines("x")) })
		}
		if err := s.actors.Close(ctx); err != nil {
			t.Errorf("Close = %v", err)
		}
		<-s.actors.Done()
		stored := 0
		for _, wait := range waits {
			switch _, err := wait(); {
			case err == nil:
				stored++
			case !errors.Is(err, eventsourcing.ErrClosed):
				t.Errorf("the error is %v, want ErrClosed", err)
			}
		}
		if err := s.actors.Close(ctx); err != nil {
			t.Errorf("a second Close = %v", err)
		}
		if n, hosted := s.rt.Resident()["actor"]; hosted {
			t.Errorf("the runtime still hosts the type, with %d entities", n)
		}
		again, err := eventsourcing.HostWith(s.rt, s.typ, s.opts)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for i := range 10 {
			err = again.Inspect(ctx, fmt.Sprint(i), func(a *actor, _ uint64) { found += len(a.Lines) })
			if err != nil {
				t.Error(err)
			}
		}
		if found != stored {
			t.Errorf("%d events are stored, want %d", found, stored)
		}
	})
}

// TestLocalCloseByForce ends the context of Close while a write hangs.
func TestLocalCloseByForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		wait := later(func() (string, error) { return s.ask(addLines("1")) })
		<-write.Struck()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.actors.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want the cause of its context", err)
		}
		<-s.actors.Done()
		_, err := wait()
		expectError(t, err, eventsourcing.ErrOutcomeUnknown)
		write.Release()
		synctest.Wait()
		if s.actors, err = eventsourcing.HostWith(s.rt, s.typ, s.opts); err != nil {
			t.Fatal(err)
		}
		expect(t, s.mustAsk(recall), nil, "1")
	})
}
