// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// onCaller reports whether the present turn is taken on the goroutine of a caller.
func onCaller() bool {
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, ".takeCallersTurn") {
			return true
		}
		if !more {
			return false
		}
	}
}

// immediately makes a journal immediate.
type immediately struct{ journal.Journal }

func (j immediately) Immediate() journal.Journal { return j }

// callersScene is a scene with the actor "1" in memory, in a bubble, with a journal that has a writer
// and with an immediate one.
func callersScene(t *testing.T, prepare func(s *shardedScene), test func(s *shardedScene)) {
	t.Helper()
	for _, immediate := range []bool{false, true} {
		t.Run(fmt.Sprintf("immediate=%t", immediate), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSharded(t)
				if immediate {
					s.cfg.Store = store.Of(immediately{s.journal}, s.snapshots)
				}
				if prepare != nil {
					prepare(s)
				}
				s.open()
				s.mustAsk(addLines("0"))
				synctest.Wait()
				test(s)
			})
		})
	}
}

// where notes the kind of goroutine of a turn and calls f.
func (s *scene) where(f func(ctx *actorCtx, a *actor, c act) actorDecision) func(ctx *actorCtx, a *actor, c act) actorDecision {
	return func(ctx *actorCtx, a *actor, c act) actorDecision {
		if onCaller() {
			s.note("caller")
		} else {
			s.note("worker")
		}
		return f(ctx, a, c)
	}
}

// gated returns a command that waits for the returned function.
func gated(f func(ctx *actorCtx, a *actor, c act) actorDecision) (command func(ctx *actorCtx, a *actor, c act) actorDecision, release func()) {
	gate := make(chan struct{})
	return func(ctx *actorCtx, a *actor, c act) actorDecision {
		<-gate
		return f(ctx, a, c)
	}, func() { close(gate) }
}

// TestAskTakesTurn checks which turns the caller takes: those of asks of an idle entity.
func TestAskTakesTurn(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		defer s.close()
		text, err := s.ask(s.where(recall))
		expect(t, text, err, "0")
		text, err = s.ask(s.where(addLines("1")))
		expect(t, text, err, "0 1")
		s.expectNotes("caller", "caller")
		s.tell(s.where(recall))
		synctest.Wait()
		s.expectNotes("worker")
		command, release := gated(s.where(addLines("2")))
		first := later(func() (string, error) { return s.ask(command) })
		synctest.Wait()
		second := later(func() (string, error) { return s.ask(s.where(addLines("3"))) })
		synctest.Wait()
		s.expectNotes()
		release()
		text, err = first()
		expect(t, text, err, "0 1 2")
		text, err = second()
		expect(t, text, err, "0 1 2 3")
		s.expectNotes("caller", "worker")
		s.expectStored("0", "1", "2", "3")
	})
}

// TestWorkersOnly checks that HostOptions.WorkersOnly leaves all turns to the workers.
func TestWorkersOnly(t *testing.T) {
	t.Parallel()
	callersScene(t, func(s *shardedScene) { s.opts.WorkersOnly = true }, func(s *shardedScene) {
		t := s.t
		defer s.close()
		text, err := s.ask(s.where(addLines("1")))
		expect(t, text, err, "0 1")
		s.expectNotes("worker")
	})
}

// TestWorkersDuringAppend checks that workers take the turns of all entities while the journal stores the
// events of one, and callers again afterwards.
func TestWorkersDuringAppend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.cfg.Store = store.Of(&slowAppends{s.journal, time.Second}, s.snapshots)
		s.open()
		defer s.close()
		s.mustAsk(addLines("0"))
		stored := later(func() (string, error) { return s.askOf(t.Context(), "2", addLines("1")) })
		synctest.Wait()
		text, err := s.ask(s.where(recall))
		expect(t, text, err, "0")
		text, err = stored()
		expect(t, text, err, "1")
		synctest.Wait()
		text, err = s.ask(s.where(recall))
		expect(t, text, err, "0")
		s.expectNotes("worker", "caller")
	})
}

// notedAppends notes the kind of goroutine of each append.
type notedAppends struct {
	journal.Journal
	note  func(format string, args ...any)
	local bool
}

// Local implements snapshot.Local.
func (j *notedAppends) Local() bool { return j.local }

func (j *notedAppends) Append(ctx context.Context, writes []journal.Write) []error {
	if onCaller() {
		j.note("append by caller")
	} else {
		j.note("append")
	}
	return j.Journal.Append(ctx, writes)
}

// TestCallerAppends checks that a caller that takes a turn also appends the events if the writer is idle,
// and that the entity handles other commands during this append.
func TestCallerAppends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.cfg.Store = store.Of(&notedAppends{&slowAppends{s.journal, time.Second}, s.note, true}, s.snapshots)
		s.open()
		defer s.close()
		s.mustAsk(addLines("0"))
		synctest.Wait()
		s.expectNotes("append") // the caller started the entity, so a worker took the turn
		first := later(func() (string, error) { return s.ask(s.where(addLines("1"))) })
		synctest.Wait()
		s.expectNotes("caller", "append by caller")
		second := later(func() (string, error) { return s.ask(s.where(addLines("2"))) })
		synctest.Wait()
		s.expectNotes("worker")
		text, err := first()
		expect(t, text, err, "0 1")
		text, err = second()
		expect(t, text, err, "0 1 2")
		s.expectNotes("append")
		synctest.Wait()
		s.tell(s.where(addLines("3")))
		synctest.Wait()
		s.expectNotes("worker", "append")
	})
}

// TestContextEndsDuringAppend checks that the end of a caller's context does not cut an append short. With
// a local journal, Ask returns the reply when the append ends. With another one, Ask waits no longer than
// its context, because a network may need long to report a failure.
func TestContextEndsDuringAppend(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]bool{"local": true, "remote": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.cfg.Store = store.Of(&notedAppends{&slowAppends{s.journal, 5 * time.Second}, s.note, local}, s.snapshots)
				s.open()
				defer s.close()
				s.mustAsk(addLines("0"))
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				text, err := s.askOf(ctx, "1", addLines("1"))
				took := time.Since(began)
				if local {
					expect(t, text, err, "0 1")
				} else if !errors.Is(err, eventsourcing.ErrOutcomeUnknown) {
					t.Errorf("Ask: %v, want ErrOutcomeUnknown", err)
				}
				if want := map[bool]time.Duration{true: 5 * time.Second, false: time.Second}[local]; took != want {
					t.Errorf("Ask has returned after %v, want %v", took, want)
				}
				s.expectNotes("append", map[bool]string{true: "append by caller", false: "append"}[local])
				text, err = s.ask(recall)
				expect(t, text, err, "0 1")
			})
		})
	}
}

// TestGoexitInObserverOfCommits checks that an ask is answered although Observer.Commit calls
// runtime.Goexit, and so are the following ones.
func TestGoexitInObserverOfCommits(t *testing.T) {
	t.Parallel()
	callersScene(t, func(s *shardedScene) {
		s.opts.WorkersOnly = true
		s.cfg.Observer.Commit = func(eventsourcing.CommitInfo) { runtime.Goexit() }
	}, func(s *shardedScene) {
		defer s.close()
		text, err := s.ask(addLines("1"))
		expect(s.t, text, err, "0 1")
		text, err = s.ask(addLines("2"))
		expect(s.t, text, err, "0 1 2")
	})
}

// TestGoexitInObserverOfStoredEvents checks that an entity goes on after Observer.Durable has called
// runtime.Goexit, on the goroutine of a caller or of the writer.
func TestGoexitInObserverOfStoredEvents(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprintf("local=%t", local), func(t *testing.T) {
			t.Parallel()
			callersScene(t, func(s *shardedScene) {
				if local {
					s.cfg.Store = store.Of(localJournal{s.journal}, s.snapshots)
				}
				exited := false
				s.cfg.Observer.Durable = func(_ string, seqNr uint64) {
					if seqNr == 2 && !exited {
						exited = true
						runtime.Goexit()
					}
				}
			}, func(s *shardedScene) {
				defer s.close()
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				go func() { _, _ = s.askOf(ctx, "1", addLines("1")) }()
				synctest.Wait()
				text, err := s.ask(addLines("2"))
				expect(s.t, text, err, "0 1 2")
				s.expectStored("0", "1", "2")
			})
		})
	}
}

// TestAskKeepsOrder checks that an ask does not overtake what its sender has told before.
func TestAskKeepsOrder(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		defer s.close()
		command, release := gated(addLines("1"))
		s.tell(command)
		synctest.Wait()
		s.tell(addLines("2"))
		wait := later(func() (string, error) { return s.ask(addLines("3")) })
		synctest.Wait()
		release()
		text, err := wait()
		expect(t, text, err, "0 1 2 3")
		s.expectStored("0", "1", "2", "3")
	})
}

// TestAskAfterStashed checks that an ask does not overtake commands that wait in the machine, here for a
// callback.
func TestAskAfterStashed(t *testing.T) {
	t.Parallel()
	callersScene(t, func(s *shardedScene) {
		s.cfg.Store = store.Of(&slowAppends{s.journal, time.Second}, s.snapshots)
	}, func(s *shardedScene) {
		t := s.t
		defer s.close()
		first := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, a *actor, _ act) actorDecision {
				return ctx.Persist(line{"1"}).ThenReply(func(ctx *actorCtx) actorDecision { return ctx.Reply(a.text()) })
			})
		})
		synctest.Wait()
		s.tell(addLines("2"))
		synctest.Wait()
		text, err := s.ask(addLines("3"))
		expect(t, text, err, "0 1 2 3")
		text, err = first()
		expect(t, text, err, "0 1")
	})
}

// TestOneOwner lets senders mix asks and tells of few entities. No two turns of an entity overlap, the
// messages of each sender arrive in order, and both kinds of goroutines take turns.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	const senders, entities = 8, 3
	messages := times(2000, 20_000)
	type state struct {
		inside atomic.Int32
		last   [senders]uint64
	}
	for name, j := range map[string]journal.Journal{"writer": journaltest.NewFaulty(inmem.NewJournal()), "immediate": inmem.NewJournal()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.cfg.Store, s.cfg.Workers, s.opts.StashCapacity = store.Of(j, s.snapshots), 4, -1
			s.open()
			defer s.close()
			var states [entities]state
			var callers, workers atomic.Int64
			var wg sync.WaitGroup
			for sender := range senders {
				wg.Go(func() {
					var sent [entities]uint64
					for n := range messages {
						id := (int(n)*7 + sender + int(n)/50) % entities
						sent[id]++
						nr, st := sent[id], &states[id]
						command := func(ctx *actorCtx, _ *actor, _ act) actorDecision {
							if st.inside.Add(1) != 1 {
								t.Error("two turns of an entity overlap")
							}
							defer st.inside.Add(-1)
							if st.last[sender]+1 != nr {
								t.Errorf("message %d of sender %d follows message %d", nr, sender, st.last[sender])
							}
							st.last[sender] = nr
							if onCaller() {
								callers.Add(1)
							} else {
								workers.Add(1)
							}
							if nr%3 == 0 {
								return ctx.Persist(line{""}).Reply("")
							}
							return ctx.Reply("")
						}
						to := s.actors.Ref(fmt.Sprint(id))
						var err error
						if n%5 == 0 {
							err = eventsourcing.Tell(t.Context(), to, act{f: command})
						} else {
							_, err = eventsourcing.Ask(t.Context(), to, act{f: command})
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			if callers.Load() == 0 || workers.Load() == 0 {
				t.Errorf("callers took %d turns and workers %d, want both to take turns", callers.Load(), workers.Load())
			}
		})
	}
}

// TestPanicOnCaller checks that a panic in a caller's turn is the error of the command.
func TestPanicOnCaller(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		defer s.close()
		_, err := s.ask(s.where(func(*actorCtx, *actor, act) actorDecision { panic("oops") }))
		if p, ok := errors.AsType[*eventsourcing.PanicError](err); !ok || p.Value != "oops" {
			t.Errorf("the error is %v, want a PanicError", err)
		}
		text, err := s.ask(addLines("1"))
		expect(t, text, err, "0 1")
		s.expectNotes("caller")
	})
}

// TestGoexitOnCaller checks that runtime.Goexit in a caller's turn ends the caller, and that workers take
// the turns of the entity afterwards.
func TestGoexitOnCaller(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		defer s.close()
		for name, f := range map[string]func(ctx *actorCtx, a *actor, c act) actorDecision{
			"handler": func(*actorCtx, *actor, act) actorDecision {
				runtime.Goexit()
				return actorDecision{}
			},
			"ReplyFunc": func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				return ctx.Persist(line{"stored"}).ReplyFunc(func() string {
					runtime.Goexit()
					return ""
				})
			},
		} {
			before, returned, ended := s.mustAsk(recall), false, make(chan struct{})
			started, release := gated(s.where(f))
			go func() {
				defer close(ended)
				_, _ = s.ask(started)
				returned = true
			}()
			synctest.Wait()
			next := later(func() (string, error) { return s.ask(s.where(addLines("next"))) })
			synctest.Wait()
			release()
			<-ended
			if returned {
				t.Errorf("%s: Ask has returned, want the end of its goroutine", name)
			}
			want := before + " next"
			if name == "ReplyFunc" {
				want = before + " stored next"
			}
			text, err := next()
			expect(t, text, err, want)
			s.expectNotes("caller", "worker")
		}
	})
}

// TestUnstashNotOnCaller checks that a command does not run on the goroutine of a caller that has sent
// another one: runtime.Goexit in an unstashed command does not end the caller that has unstashed it.
func TestUnstashNotOnCaller(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		defer s.close()
		stash := true
		stashed := later(func() (string, error) {
			return s.ask(s.where(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				if stash {
					stash = false
					return ctx.Stash()
				}
				runtime.Goexit()
				return actorDecision{}
			}))
		})
		synctest.Wait()
		ended, returned := make(chan struct{}), false
		go func() {
			defer close(ended)
			text, err := s.ask(s.where(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.UnstashAll().Reply("done") }))
			expect(t, text, err, "done")
			returned = true
		}()
		if <-ended; !returned {
			t.Error("another command has ended the goroutine of the caller")
		}
		if _, err := stashed(); err == nil {
			t.Error("the stashed command has succeeded, want an error")
		}
		s.expectNotes("caller", "worker", "worker")
	})
}

// TestContextEndsOnCaller checks that the end of the caller's context is noticed when the handler ends:
// a reply that is there is returned, and a write is not waited for.
func TestContextEndsOnCaller(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    func(ctx *actorCtx, a *actor, c act) actorDecision
		want []error
	}{
		"reply": {recall, nil},
		"write": {addLines("1"), []error{eventsourcing.ErrOutcomeUnknown, context.DeadlineExceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.cfg.Store = store.Of(&slowAppends{s.journal, 5 * time.Second}, s.snapshots)
				s.open()
				defer s.close()
				s.mustAsk(addLines("0"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				command, release := gated(s.where(c.f))
				time.AfterFunc(2*time.Second, release)
				began := time.Now()
				_, err := s.askOf(ctx, "1", command)
				if took := time.Since(began); took != 2*time.Second {
					t.Errorf("Ask has returned after %v, want 2s", took)
				}
				expectError(t, err, c.want...)
				if c.want == nil && err != nil {
					t.Errorf("the error is %v, want the reply", err)
				}
				s.expectNotes("caller")
			})
		})
	}
}

// TestStopDuringCallersTurn requests the end of an entity in each way while a caller has its turn. The
// turn ends as usual, and the request is carried out afterwards.
func TestStopDuringCallersTurn(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(s *shardedScene){
		"passivate": func(s *shardedScene) { s.connection.Host.Passivate("1") },
		"drain":     func(s *shardedScene) { s.connection.Host.Drain("1") },
		"kill":      func(s *shardedScene) { s.connection.Host.Kill("1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			callersScene(t, nil, func(s *shardedScene) {
				t := s.t
				defer s.close()
				command, release := gated(s.where(recall))
				first := later(func() (string, error) { return s.ask(command) })
				synctest.Wait()
				stop(s)
				second := later(func() (string, error) { return s.ask(addLines("1")) })
				synctest.Wait()
				s.expectCalls()
				release()
				text, err := first()
				expect(t, text, err, "0")
				s.expectNotes("caller")
				text, err = second()
				if name == "kill" && err != nil { // the second command had arrived when the entity was killed
					expectError(t, err, errKilled)
					return
				}
				expect(t, text, err, "0 1")
			})
		})
	}
}

// TestCloseDuringCallersTurn checks that Close waits for the turn of a caller, as for a worker.
func TestCloseDuringCallersTurn(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		command, release := gated(s.where(addLines("1")))
		asked := later(func() (string, error) { return s.ask(command) })
		synctest.Wait()
		var closed atomic.Bool
		done := later(func() (string, error) {
			defer closed.Store(true)
			return "", s.rt.Close(context.Background())
		})
		synctest.Wait()
		if closed.Load() {
			t.Error("Close has returned during the turn of a caller")
		}
		release()
		text, err := asked()
		expect(t, text, err, "0 1")
		if _, err = done(); err != nil {
			t.Errorf("close: %v", err)
		}
		s.expectNotes("caller")
	})
}

// TestCloseAbortsCallersTurn checks that the end of the context of Close does not wait for the turn of a
// caller, and that the entity is killed after it.
func TestCloseAbortsCallersTurn(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		command, release := gated(s.where(addLines("1")))
		asked := later(func() (string, error) { return s.ask(command) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expectError(t, s.rt.Close(ctx), context.DeadlineExceeded)
		ended := later(func() (string, error) { return "", s.rt.Close(context.Background()) })
		synctest.Wait()
		release()
		if _, err := asked(); err == nil {
			t.Error("the ask has succeeded although the journal's writer is closed")
		}
		if _, err := ended(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		s.expectStored("0")
		s.expectNotes("caller")
	})
}

// TestAskInHandler checks that asks in handlers do not enter an entity again: an ask of an entity that
// has a turn waits until its context ends, in the entity itself and around a cycle.
func TestAskInHandler(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		defer s.close()
		if _, err := s.askOf(t.Context(), "2", addLines("0")); err != nil {
			t.Fatal(err)
		}
		inner := func(id string, f func(ctx *actorCtx, a *actor, c act) actorDecision) func(ctx *actorCtx, a *actor, c act) actorDecision {
			return s.where(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				bounded, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				text, err := s.askOf(bounded, id, f)
				if err != nil {
					return ctx.Refuse(err)
				}
				return ctx.Reply("inner " + text)
			})
		}
		text, err := s.ask(inner("2", s.where(recall)))
		expect(t, text, err, "inner 0")
		s.expectNotes("caller", "caller")
		_, err = s.ask(inner("1", recall))
		expectError(t, err, context.DeadlineExceeded)
		s.expectNotes("caller")
		synctest.Wait()
		_, err = s.ask(inner("2", inner("1", recall)))
		expectError(t, err, context.DeadlineExceeded)
		s.expectNotes("caller", "caller")
		text, err = s.ask(recall)
		expect(t, text, err, "0")
	})
}

// TestLateReplyOnCaller checks commands whose reply leaves in a later turn.
func TestLateReplyOnCaller(t *testing.T) {
	t.Parallel()
	callersScene(t, nil, func(s *shardedScene) {
		t := s.t
		defer s.close()
		var token eventsourcing.Token[string]
		later1 := later(func() (string, error) {
			return s.ask(s.where(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				token = ctx.Token()
				return ctx.ReplyLater()
			}))
		})
		synctest.Wait()
		stashed := false
		later2 := later(func() (string, error) {
			return s.ask(s.where(func(ctx *actorCtx, a *actor, c act) actorDecision {
				if !stashed {
					stashed = true
					return ctx.Stash()
				}
				return addLines("2")(ctx, a, c)
			}))
		})
		synctest.Wait()
		_, err := s.ask(s.where(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"1"}).Resolve(token.With("late")).UnstashAll().Reply("")
		}))
		if err != nil {
			t.Error(err)
		}
		text, err := later1()
		expect(t, text, err, "late")
		text, err = later2()
		expect(t, text, err, "0 1 2")
	})
}

// TestWriteFailsInCallersTurn checks that a caller gets no reply before its events are stored: the
// journal stores nothing, and the ask fails.
func TestWriteFailsInCallersTurn(t *testing.T) {
	t.Parallel()
	callersScene(t, func(s *shardedScene) { s.opts.MinBackoff = time.Millisecond }, func(s *shardedScene) {
		t := s.t
		defer s.close()
		for _, do := range []journaltest.Effect{journaltest.NotSent, journaltest.Reject, journaltest.Lose, journaltest.Store} {
			before := s.mustAsk(recall)
			s.journal.Inject(journaltest.Fault{Do: do, Op: journaltest.OpAppend})
			_, err := s.ask(s.where(addLines("x")))
			s.expectNotes("caller")
			text, again := s.ask(recall)
			switch {
			case do == journaltest.Store: // stored, with an error that leaves the outcome open
				expect(t, text, again, before+" x")
			case err == nil:
				t.Errorf("fault %v: the ask has succeeded", do)
			default:
				expect(t, text, again, before)
			}
		}
	})
}

// TestCallersShareProcessor checks that callers that never block hand the processor over often. With the
// rule of letCallersRun, a caller takes 32 turns in a row on average while the other seven wait, which
// makes 625 hand-overs in the first half of the turns. Without it, the scheduler takes the processor from
// a caller every 10 ms, which makes about 45 with the race detector and 3 without.
func TestCallersShareProcessor(t *testing.T) { //nolint:paralleltest // it sets GOMAXPROCS
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, asks, want = 8, 5000, 200
	s := newScene(t)
	s.open()
	defer s.close()
	s.mustAsk(addLines("x"))
	var turns []int
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for range asks {
				if _, err := s.ask(func(ctx *actorCtx, a *actor, c act) actorDecision {
					turns = append(turns, caller)
					return recall(ctx, a, c)
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	changes, first := 0, turns[:len(turns)/2] // later a caller may be the last one
	for i, caller := range first {
		if i > 0 && first[i-1] != caller {
			changes++
		}
	}
	if changes < want {
		t.Errorf("%d callers took %d turns with %d hand-overs, want at least %d", callers, len(first), changes, want)
	}
}

// TestCallerHidesNoPanic checks that a panic outside of user code ends the process, even if the caller
// of Ask recovers panics, as net/http does. The function Now has no protection, and neither has the log,
// which is used here after the caller has stored its event.
func TestCallerHidesNoPanic(t *testing.T) {
	t.Parallel()
	const variable = "REFOLD_TEST_PANIC_ON_CALLER"
	if subject := os.Getenv(variable); subject != "" {
		s := newScene(t)
		s.cfg.Store = store.Of(localJournal{s.journal}, s.snapshots)
		var fail atomic.Bool
		failing := func(at string) {
			if at == subject && fail.Load() {
				panic("no " + subject)
			}
		}
		s.cfg.Now = func() time.Time {
			failing("time")
			return time.Now()
		}
		s.cfg.Logger = slog.New(handlerFunc(func() { failing("log") }))
		s.cfg.Observer.Durable = func(string, uint64) { failing("log") }
		s.open()
		s.mustAsk(addLines("x"))
		defer func() {
			_ = recover()
			os.Exit(0)
		}()
		fail.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, _ = s.askOf(ctx, "1", addLines("y"))
		return
	}
	for _, subject := range []string{"time", "log"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCallerHidesNoPanic$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"="+subject)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no "+subject) {
			t.Errorf("the process has ended with %v, want a panic: %s", err, out)
		}
	}
}

// handlerFunc is a log handler that calls a function for each record.
type handlerFunc func()

func (handlerFunc) Enabled(context.Context, slog.Level) bool { return true }

func (f handlerFunc) Handle(context.Context, slog.Record) error {
	f()
	return nil
}

func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler { return f }

func (f handlerFunc) WithGroup(string) slog.Handler { return f }
