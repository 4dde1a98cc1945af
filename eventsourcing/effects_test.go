// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
)

// TestThen checks that callbacks run once, in order, when all earlier events are durable, and that
// callbacks may return further effects.
func TestThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(recall)
		durable := func(name string) func(ctx *actorCtx) actorStep {
			return func(ctx *actorCtx) actorStep {
				s.note("%s %d %d", name, len(s.stored()), ctx.SequenceNr())
				return ctx.Effect
			}
		}
		text, err := s.ask(func(ctx *actorCtx, a *actor, c act) actorDecision {
			s.note("handle")
			return ctx.Persist(line{"1"}, line{"2"}).
				Then(durable("then")).
				ThenReply(func(ctx *actorCtx) actorDecision {
					return ctx.Persist(line{"3"}).Then(durable("nested")).ThenReply(func(ctx *actorCtx) actorDecision {
						return ctx.Reply(a.text())
					})
				})
		})
		expect(t, text, err, "1 2 3")
		s.expectNotes("handle", "then 2 2", "nested 3 3")
		// The callback returns no reply.
		_, err = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"4"}).Then(durable("then")).ThenReply(func(*actorCtx) actorDecision { return actorDecision{} })
		})
		expectError(t, err, eventsourcing.ErrNoReply)
		// The callback refuses the command after its events are stored.
		_, err = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"5"}).ThenReply(func(ctx *actorCtx) actorDecision { return ctx.Refuse(errNoLine) })
		})
		expectError(t, err, errNoLine)
		s.expectStored("1", "2", "3", "4", "5")
	})
}

// TestInvalidActions checks that an action with invalid arguments fails its command, which changes
// nothing.
func TestInvalidActions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		for name, decide := range map[string]func(e actorStep) actorDecision{
			"Then":                     func(e actorStep) actorDecision { return e.Then(nil).Reply("") },
			"ThenAsync":                func(e actorStep) actorDecision { return e.ThenAsync(nil).Reply("") },
			"ThenReply":                func(e actorStep) actorDecision { return e.ThenReply(nil) },
			"StartTicker":              func(e actorStep) actorDecision { return e.StartTicker("t", 0, act{}).Reply("") },
			"StartTicker in the past":  func(e actorStep) actorDecision { return e.StartTicker("t", -1, act{}).Reply("") },
			"a joined effect":          func(e actorStep) actorDecision { return e.And(e.StartTicker("t", 0, act{})).Reply("") },
			"an action after the ones": func(e actorStep) actorDecision { return e.Then(nil).Then(nothing).Reply("") },
		} {
			_, err := s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return decide(ctx.Persist(line{"1"})) })
			if !errors.Is(err, eventsourcing.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		pass(time.Minute)
		s.expectStored()
		expect(t, s.mustAsk(addLines("2")), nil, "2")
	})
}

// TestThenIsABarrier checks that no command is handled between a write and its callback, and that
// the callback does not run if the write fails.
func TestThenIsABarrier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(recall)
		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		first := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, a *actor, c act) actorDecision {
				return ctx.Persist(line{"1"}).ThenReply(func(ctx *actorCtx) actorDecision {
					s.note("then")
					return ctx.Reply(a.text())
				})
			})
		})
		synctest.Wait()
		second := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, a *actor, c act) actorDecision { s.note("next"); return recall(ctx, a, c) })
		})
		synctest.Wait()
		s.expectNotes()
		gate.Release()
		text, err := first()
		expect(t, text, err, "1")
		text, err = second()
		expect(t, text, err, "1")
		s.expectNotes("then", "next")

		s.journal.Inject(journaltest.Fault{Do: journaltest.Reject})
		_, err = s.ask(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.Persist(line{"2"}).And(ctx.Then(func(ctx *actorCtx) actorStep { s.note("never"); return ctx.Effect })).ThenReply(func(ctx *actorCtx) actorDecision {
				s.note("never")
				return ctx.Reply("")
			})
		})
		expectError(t, err, eventsourcing.ErrRejected)

		// The write is found in the journal: the command is answered, and the callback does not run.
		s.journal.Inject(journaltest.Fault{Do: journaltest.Store})
		_, err = s.ask(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.Persist(line{"3"}).Then(func(ctx *actorCtx) actorStep { s.note("never"); return ctx.Effect }).Reply("found")
		})
		if err != nil {
			t.Errorf("the reply for a write that was found in the journal is %v, want nil", err)
		}
		s.expectNotes()
		expect(t, s.mustAsk(recall), nil, "1 3")
	})
}

// TestThenOrder checks that a callback runs after all earlier events are durable, and at once if
// there are none.
func TestThenOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		note := func(text string) func(ctx *actorCtx) actorStep {
			return func(ctx *actorCtx) actorStep { s.note("%s", text); return ctx.Effect }
		}
		text, err := s.ask(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.Then(note("d1")).And(ctx.Persist(line{"p"}).Then(note("p"))).And(ctx.Then(note("d2"))).And(ctx.Then(note("d3"))).Reply("ok")
		})
		expect(t, text, err, "ok")
		s.expectNotes("d1", "p", "d2", "d3")

		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		s.tell(addLines("slow"))
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.ThenAsync(note("deferred")).Reply("") })
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { s.note("next"); return ctx.Reply("") })
		synctest.Wait()
		s.expectNotes("next")
		gate.Release()
		synctest.Wait()
		s.expectNotes("deferred")
	})
}

// TestPersistAsync checks that only the reply of its own command waits for the write.
func TestPersistAsync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(recall)
		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		own := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, a *actor, c act) actorDecision {
				return ctx.PersistAsync(line{"1"}).Then(func(ctx *actorCtx) actorStep { s.note("then"); return ctx.Effect }).ReplyFunc(a.text)
			})
		})
		synctest.Wait()
		expect(t, s.mustAsk(recall), nil, "1")
		s.expectNotes()
		behind := later(func() (string, error) { return s.ask(addLines("2")) })
		synctest.Wait()
		gate.Release()
		text, err := own()
		expect(t, text, err, "1")
		text, err = behind()
		expect(t, text, err, "1 2")
		s.expectNotes("then")
		s.expectStored("1", "2")
	})
}

// TestEffectsAreValues checks that two effects that extend the same effect do not change each
// other.
func TestEffectsAreValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		text, err := s.ask(func(ctx *actorCtx, a *actor, c act) actorDecision {
			base := ctx.Persist(line{"1"}).And(ctx.Persist(line{"2"})).And(ctx.Persist(line{"3"}))
			_ = base.And(ctx.Persist(line{"wrong"})).Refuse(errNoLine)
			return base.And(ctx.Persist(line{"4"})).ReplyFunc(a.text)
		})
		expect(t, text, err, "1 2 3 4")
	})
}

// TestReplyLater checks that a token answers once, and only while the entity is in memory.
func TestReplyLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		var tokens []eventsourcing.Token[string]
		promise := func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			tokens = append(tokens, ctx.Token())
			return ctx.Persist(line{"asked"}).ReplyLater()
		}
		resolve := func(i int, text string) func(ctx *actorCtx, a *actor, c act) actorDecision {
			return func(ctx *actorCtx, a *actor, c act) actorDecision {
				return ctx.Persist(line{text}).Resolve(tokens[i].With(text)).ReplyFunc(a.text)
			}
		}
		first := later(func() (string, error) { return s.ask(promise) })
		synctest.Wait()
		second := later(func() (string, error) { return s.ask(promise) })
		synctest.Wait()
		expect(t, s.mustAsk(resolve(0, "one")), nil, "asked asked one")
		text, err := first()
		expect(t, text, err, "one")
		s.mustAsk(resolve(0, "again")) // no caller waits
		s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.Effect.Resolve(tokens[1].Refuse(errNoLine)).Reply("")
		})
		_, err = second()
		expectError(t, err, errNoLine)

		// The resolving command fails: the caller gets its error, and later resolutions are dropped.
		third := later(func() (string, error) { return s.ask(promise) })
		synctest.Wait()
		s.journal.Inject(journaltest.Fault{Do: journaltest.Reject})
		_, err = s.ask(resolve(2, "rejected"))
		expectError(t, err, eventsourcing.ErrRejected)
		s.mustAsk(resolve(2, "stored"))
		_, err = third()
		expectError(t, err, eventsourcing.ErrNoReply, eventsourcing.ErrRejected)

		// The token of a Tell and the zero token belong to no caller.
		s.tell(promise)
		s.mustAsk(resolve(3, "x"))
		s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.Effect.Resolve(eventsourcing.Token[string]{}.With("")).Reply("")
		})

		// The caller stops waiting. Then the entity stops.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = s.askOf(ctx, "1", promise)
		cancel()
		expectError(t, err, context.DeadlineExceeded, eventsourcing.ErrOutcomeUnknown)
		s.mustAsk(resolve(4, "too late"))
		last := later(func() (string, error) { return s.ask(promise) })
		synctest.Wait()
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.Stop() }))
		_, err = last()
		expectError(t, err, eventsourcing.ErrStopped, eventsourcing.ErrNoReply)
		if eventsourcing.NotDone(err) {
			t.Errorf("NotDone is true for %v, but the command was done", err)
		}
	})
}

// TestStash checks that stashed commands are handled in order and before later commands.
func TestStash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.StashCapacity = 3
		s.open()
		defer s.close()
		ready := false
		wait := func(name string) func(ctx *actorCtx, a *actor, c act) actorDecision {
			return func(ctx *actorCtx, _ *actor, c act) actorDecision {
				if !ready {
					return ctx.Stash()
				}
				s.note("%s", name)
				return ctx.Persist(line{name}).Reply(name)
			}
		}
		var waits []func() (string, error)
		for _, name := range []string{"a", "b", "c", "d"} {
			waits = append(waits, later(func() (string, error) { return s.ask(wait(name)) }))
			synctest.Wait()
		}
		_, err := waits[3]()
		expectError(t, err, eventsourcing.ErrStashFull)
		s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			ready = true
			return ctx.UnstashAll().Reply("")
		})
		for i, name := range []string{"a", "b", "c"} {
			text, answer := waits[i]()
			expect(t, text, answer, name)
		}
		s.expectNotes("a", "b", "c")

		// A caller may stop waiting while its command is stashed: the command is not handled.
		ready = false
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = s.askOf(ctx, "1", wait("gone"))
		cancel()
		expectError(t, err, context.DeadlineExceeded)
		if errors.Is(err, eventsourcing.ErrOutcomeUnknown) {
			t.Errorf("the error %v matches ErrOutcomeUnknown, but the command was not handled", err)
		}
		last := later(func() (string, error) { return s.ask(wait("stopped")) })
		synctest.Wait()
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.Stop() }))
		_, err = last()
		expectError(t, err, eventsourcing.ErrStopped)
		s.expectStored("a", "b", "c")
	})
}

// TestOverflow checks the answers to commands that arrive while the stash is full.
func TestOverflow(t *testing.T) {
	t.Parallel()
	for overflow, want := range map[eventsourcing.Overflow]string{
		eventsourcing.OverflowDrop: "eventsourcing: stash full",
		eventsourcing.OverflowFail: "eventsourcing: stash full",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.opts.StashCapacity, s.opts.Overflow = 2, overflow
			failures := 0
			s.cfg.Observer.Failure = func(string, error) { failures++ }
			s.open()
			defer s.close()
			gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
			s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				return ctx.Persist(line{"1"}).Then(func(ctx *actorCtx) actorStep { return ctx.Effect }).Reply("")
			})
			<-gate.Struck()
			waits := []func() (string, error){}
			for range 3 {
				waits = append(waits, later(func() (string, error) { return s.ask(recall) }))
				synctest.Wait()
			}
			text, err := waits[2]()
			if err != nil {
				text = err.Error()
			}
			if text != want {
				t.Errorf("overflow %d: the answer is %q, want %q", overflow, text, want)
			}
			gate.Release()
			for _, wait := range waits[:2] {
				text, err := wait()
				expect(t, text, err, "1")
			}
			if restarts := map[bool]int{true: 1}[overflow == eventsourcing.OverflowFail]; failures != restarts {
				t.Errorf("overflow %d: the entity restarted %d times, want %d", overflow, failures, restarts)
			}
		})
	}
}

// TestContext checks the methods of Context.
func TestContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Hour)
		defer cancel()
		var kept *actorCtx
		text, err := s.askOf(ctx, "7", func(c *actorCtx, _ *actor, cmd act) actorDecision {
			kept = c
			deadline, ok := c.Context().Deadline()
			want, _ := ctx.Deadline()
			if c.Context().Value(key{}) != "value" || !ok || !deadline.Equal(want) {
				t.Errorf("the context is %v, want the value and the deadline of the caller", c.Context())
			}
			if now := time.Now().UTC().Truncate(time.Microsecond); !c.Now().Equal(now) || c.Now().Location() != time.UTC {
				t.Errorf("now is %v, want %v", c.Now(), now)
			}
			if c.Logger() == nil {
				t.Error("Logger returned nil")
			}
			return c.Persist(line{"x"}).ReplyFunc(func() string {
				if c.SequenceNr() != 1 {
					t.Errorf("in ReplyFunc the sequence number is %d, want 1", c.SequenceNr())
				}
				return strings.Join([]string{c.ID(), c.PersistenceID(), c.Self().String()}, " ")
			})
		})
		expect(t, text, err, "7 actor|7 actor|7")
		kept.Go(func(context.Context) eventsourcing.Message[actor] {
			t.Error("an effect that began after its handler had returned was performed")
			return nil
		})
		synctest.Wait()
	})
}

// TestFailedResolution checks that a caller with a later reply gets the error of the command that
// resolves it, whatever that error is. The error does not claim that the caller's own command was
// not done.
func TestFailedResolution(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  *journaltest.Fault
		events []actorEvent
		then   func(*actorCtx) actorStep
		want   error // nil for a panic
	}{
		"rejected by the codec":   {events: []actorEvent{unlisted{}}, want: eventsourcing.ErrRejected},
		"rejected by the journal": {fault: &journaltest.Fault{Do: journaltest.Reject}, want: eventsourcing.ErrRejected},
		"conflict":                {fault: &journaltest.Fault{Do: journaltest.Conflict}, want: eventsourcing.ErrConflict},
		"lost":                    {fault: &journaltest.Fault{}, want: eventsourcing.ErrNotStored},
		"panic of Apply":          {events: lines("poison")},
		"panic of a callback":     {then: func(*actorCtx) actorStep { panic("oops") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t).open()
				defer s.close()
				var token eventsourcing.Token[string]
				waiting := later(func() (string, error) {
					return s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
						token = ctx.Token()
						return ctx.Persist(line{"asked"}).ReplyLater()
					})
				})
				synctest.Wait()
				if c.fault != nil {
					s.journal.Inject(*c.fault)
				}
				_, failure := s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
					eff := ctx.Persist(append(c.events, line{"x"})...).Resolve(token.With("resolved"))
					if c.then != nil {
						eff = eff.Then(c.then)
					}
					return eff.Reply("")
				})
				_, err := waiting()
				expectError(t, err, eventsourcing.ErrNoReply)
				for _, err := range []error{failure, err} {
					_, isPanic := errors.AsType[*eventsourcing.PanicError](err)
					if c.want == nil && !isPanic || c.want != nil && !errors.Is(err, c.want) {
						t.Errorf("the error is %v, want %v", err, c.want)
					}
				}
				if eventsourcing.NotDone(err) {
					t.Errorf("NotDone(%v) is true, but the command of the caller is stored", err)
				}
			})
		})
	}
}
