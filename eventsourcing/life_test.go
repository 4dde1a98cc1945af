// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// TestConfigurations checks that all mistakes are reported at once with their fields.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, err := eventsourcing.Open(eventsourcing.Config{MaxRecoveries: -1, RecoveryTimeout: -1, MaxEventSize: 17 << 20, Workers: -1})
		expectError(t, err, eventsourcing.ErrInvalid)
		for _, field := range []string{"MaxRecoveries", "RecoveryTimeout", "MaxEventSize", "Workers"} {
			if err == nil || !strings.Contains(err.Error(), "Config."+field) {
				t.Errorf("the error does not name %s: %v", field, err)
			}
		}
		s := newScene(t).open()
		defer s.close()
		typ := s.typ
		typ.Name = "another"
		_, err = eventsourcing.HostWith(s.rt, typ, eventsourcing.HostOptions{MaxPending: -1, MinBackoff: 2, MaxBackoff: 1, Overflow: 9})
		expectError(t, err, eventsourcing.ErrInvalid)
		for _, field := range []string{"MaxPending", "MinBackoff", "Overflow"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("the error does not name %s: %v", field, err)
			}
		}
		for name, change := range map[string]func(*eventsourcing.Type[actor, actorEvent]){
			"already hosts this type": func(typ *eventsourcing.Type[actor, actorEvent]) { typ.Name = "actor" },
			"is blank":                func(typ *eventsourcing.Type[actor, actorEvent]) { typ.Name = " " },
			`contains a "|"`:          func(typ *eventsourcing.Type[actor, actorEvent]) { typ.Name = "a|b" },
			"is not UTF-8":            func(typ *eventsourcing.Type[actor, actorEvent]) { typ.Name = "a\xff" },
			"more than 510 bytes":     func(typ *eventsourcing.Type[actor, actorEvent]) { typ.Name = strings.Repeat("a", 511) },
			`"refold.sharding" begins with "refold.", which is reserved`: func(typ *eventsourcing.Type[actor, actorEvent]) { typ.Name = "refold.sharding" },
			"Type.Apply is missing": func(typ *eventsourcing.Type[actor, actorEvent]) { typ.Apply = nil },
			"are both set": func(typ *eventsourcing.Type[actor, actorEvent]) {
				typ.ApplyRecorded = func(*actor, actorEvent, eventsourcing.Recorded) {}
			},
			"has two handlers": func(typ *eventsourcing.Type[actor, actorEvent]) { typ.Commands = append(typ.Commands, typ.Commands...) },
			"nil handler of eventsourcing_test.act": func(typ *eventsourcing.Type[actor, actorEvent]) {
				typ.Commands = eventsourcing.Commands(eventsourcing.On[actor, actorEvent, string, act]("", nil))
			},
			"needs a handler of StateTimeout": func(typ *eventsourcing.Type[actor, actorEvent]) {
				typ.Deadline = func(*actor) time.Time { return time.Time{} }
			},
			"returned nil": func(typ *eventsourcing.Type[actor, actorEvent]) {
				typ.New = func(string) *actor { return nil }
			},
			"Type.New: eventsourcing": func(typ *eventsourcing.Type[actor, actorEvent]) {
				typ.New = func(string) *actor { panic("new") }
			},
		} {
			typ := s.typ
			typ.Name = "another"
			change(&typ)
			_, err := eventsourcing.HostWith(s.rt, typ, s.opts)
			expectError(t, err, eventsourcing.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("the error is %v, want one that contains %q", err, name)
			}
		}
	})
}

// TestStateWithoutEncoding checks that a type with a state that can't be encoded can be
// hosted only if it saves no snapshots.
func TestStateWithoutEncoding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		typ := eventsourcing.Type[unexportedField, actorEvent]{Name: "unexportedField"}
		if _, err := eventsourcing.Host(s.rt, typ); err != nil {
			t.Error(err)
		}
		typ.Name, typ.Snapshots.Every = "another", 10
		_, err := eventsourcing.Host(s.rt, typ)
		expectError(t, err, eventsourcing.ErrInvalid)
	})
}

// unexportedField has a field that no snapshot can hold.
type unexportedField struct{ secret int } //nolint:unused // only its presence matters

// TestPanics checks that a panic of any user code reaches the caller or the log, and that the
// entity continues.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f      func(ctx *actorCtx, a *actor, c act) actorDecision
		stored string
	}{
		"handler": {func(*actorCtx, *actor, act) actorDecision { panic("oops") }, "before after"},
		"Apply":   {addLines("fine", "poison"), "before after"},
		"Answer": {func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.Persist(line{"stored"}).ReplyFunc(func() string { panic("oops") })
		}, "before stored after"},
		"Then": {func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.Persist(line{"stored"}).Then(func(*actorCtx) actorStep { panic("oops") }).Reply("")
		}, "before stored after"},
		"Defer": {func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Then(func(*actorCtx) actorStep { panic("oops") }).Reply("")
		}, "before after"},
		"Apply of a second unit": {func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"stored"}).And(ctx.Persist(line{"poison"})).Reply("")
		}, "before stored after"},
		"nil error": {func(*actorCtx, *actor, act) actorDecision { panic(fmt.Errorf("wrapped: %w", errNoLine)) }, "before after"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t).open()
				defer s.close()
				s.mustAsk(addLines("before"))
				_, err := s.ask(c.f)
				p, ok := errors.AsType[*eventsourcing.PanicError](err)
				if !ok || p.PersistenceID != "actor|1" || p.Value == nil || len(p.Stack) == 0 {
					t.Errorf("the error is %v, want a PanicError with its stack", err)
				}
				code := "refold/panic"
				if strings.Contains(c.stored, "stored") {
					code = "refold/partly_stored"
				}
				if got := eventsourcing.StatusOf(err).Code; got != code || eventsourcing.NotDone(err) != (code == "refold/panic") {
					t.Errorf("the code of %v is %q, want %q; NotDone returned %t", err, got, code, eventsourcing.NotDone(err))
				}
				expect(t, s.mustAsk(addLines("after")), nil, c.stored)
			})
		})
	}
}

// TestPanicsOfHooks checks the panics of optional functions of a Type.
func TestPanicsOfHooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		panics string
		want   string // of the answer, "" if it fails
	}{
		"Tags":           {"tags", ""},
		"Snapshots.When": {"due", ""},
		"StateAs, to":    {"marshal", "one"},
		"OnSignal":       {"signal", "one"},
		"Deadline":       {"deadline", "one"},
		"StateAs, from":  {"unmarshal", "one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				h := &hooks{}
				s.typ.Snapshots.Every = 1
				h.install(s)
				s.open()
				s.start()
				h.panics(c.panics)
				text, err := s.ask(addLines("one"))
				if _, panicked := errors.AsType[*eventsourcing.PanicError](err); text != c.want || panicked != (c.want == "") {
					t.Errorf("the answer is %q, %v, want %q or a panic", text, err, c.want)
				}
				synctest.Wait()
				s.rt.Close(t.Context()) //nolint:errcheck // it may be in a back-off
				s.open()
				if c.panics == "unmarshal" {
					expect(t, s.mustAsk(recall), nil, "one") // replayed instead
				}
				h.panics("")
				pass(time.Minute)
				text = s.mustAsk(addLines("two"))
				expect(t, text, nil, strings.TrimSpace(c.want+" two"))
				s.close()
			})
		})
	}
}

// hooks select the part of a hooked actor that panics.
type hooks struct{ which atomic.Value }

func (h *hooks) panics(which string) { h.which.Store(which) }

func (h *hooks) run(which string) {
	if h.which.Load() == which {
		panic("oops: " + which)
	}
}

// install sets all optional functions of the type.
func (h *hooks) install(s *scene) {
	s.typ.Signals = eventsourcing.Signals(
		eventsourcing.OnSignal(func(_ *actor, ctx *signalCtx, _ eventsourcing.RecoveryCompleted) signalEffect {
			h.run("signal")
			return ctx.Effect
		}),
		eventsourcing.OnSignal(func(_ *actor, ctx *signalCtx, _ eventsourcing.StateTimeout) signalEffect { return ctx.Effect }),
	)
	s.typ.Tags = func(*actor, actorEvent) []string {
		h.run("tags")
		return nil
	}
	s.typ.Deadline = func(*actor) time.Time {
		h.run("deadline")
		return time.Time{}
	}
	s.typ.Snapshots.When = func(*actor, actorEvent, uint64) bool {
		h.run("due")
		return false
	}
	s.typ.Snapshots.State = eventsourcing.StateAs("page", 0, func(a *actor) (page, error) {
		h.run("marshal")
		return page{a.Lines}, nil
	}, func(a *actor, p page) error {
		a.Lines = p.Lines
		h.run("unmarshal")
		return nil
	})
}

// TestPanicInNew checks that a panic of Type.New is a failed recovery.
func TestPanicInNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var fail atomic.Bool
		s.typ.New = func(string) *actor {
			if fail.Load() {
				panic("new")
			}
			return &actor{scene: s}
		}
		s.open()
		defer s.close()
		fail.Store(true)
		_, err := s.ask(recall)
		if _, ok := errors.AsType[*eventsourcing.PanicError](err); !ok {
			t.Errorf("the error is %v, want a PanicError", err)
		}
		fail.Store(false)
		expect(t, s.mustAsk(addLines("fine")), nil, "fine")
	})
}

// TestManyPanics checks that repeated panics lead to a pause, after which all waiting commands are
// handled.
func TestManyPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.BackoffJitter = -1
		s.open()
		defer s.close()
		began := time.Now()
		for range 5 {
			_, _ = s.ask(func(*actorCtx, *actor, act) actorDecision { panic("oops") })
		}
		expect(t, s.mustAsk(addLines("fine")), nil, "fine")
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("the command took %v, want the pause of 3 s", d)
		}
	})
}

// TestPassivation checks that an idle entity leaves memory and is recovered later, and that a busy
// one stays.
func TestPassivation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.PassivateAfter = time.Minute
		var stopped []string
		s.cfg.Observer.Stopped = func(id string) { stopped = append(stopped, id) }
		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		pass(50 * time.Second)
		s.mustAsk(addLines("2"))
		pass(50 * time.Second)
		if s.actors.Resident() != 1 {
			t.Error("the entity was passivated before PassivateAfter had passed")
		}
		pass(40 * time.Second)
		if s.actors.Resident() != 0 || len(stopped) != 1 || stopped[0] != "actor|1" {
			t.Errorf("%d entities are in memory, stopped are %q", s.actors.Resident(), stopped)
		}
		expect(t, s.mustAsk(recall), nil, "1 2")

		promised := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.ReplyLater() })
		})
		pass(time.Hour)
		if s.actors.Resident() != 1 {
			t.Error("an entity with a pending reply was passivated")
		}
		s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.Passivate() }))
		_, err := promised()
		expectError(t, err, eventsourcing.ErrStopped)
		synctest.Wait()
		if s.actors.Resident() != 0 {
			t.Error("the entity did not passivate itself")
		}
	})
}

// TestPassivationDefault checks that an idle entity leaves memory after two minutes by default, and
// never if PassivateAfter is negative.
func TestPassivationDefault(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]int{0: 0, -1: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.opts.PassivateAfter = after
			s.open()
			defer s.close()
			s.mustAsk(addLines("1"))
			pass(2 * time.Minute)
			if s.actors.Resident() != 1 {
				t.Errorf("PassivateAfter %d: the entity left within two minutes", after)
			}
			pass(time.Minute)
			if n := s.actors.Resident(); n != want {
				t.Errorf("PassivateAfter %d: %d entities are in memory after three minutes, want %d", after, n, want)
			}
		})
	}
}

// TestUnknownIDsLeave checks that entities without events leave memory when they have handled their
// commands, and that the next command starts them again.
func TestUnknownIDsLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.PassivateAfter = -1
		s.open()
		defer s.close()
		for i := range 1000 {
			id := fmt.Sprint("unknown ", i)
			text, err := s.askOf(t.Context(), id, recall)
			expect(t, text, err, "")
			if _, err = s.askOf(t.Context(), id, func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Refuse(errNoLine) }); !errors.Is(err, errNoLine) {
				t.Errorf("the error is %v, want %v", err, errNoLine)
			}
		}
		s.mustAsk(addLines("1"))
		synctest.Wait()
		if n := s.actors.Resident(); n != 1 {
			t.Errorf("%d entities are in memory, want only the one with an event", n)
		}
		expect(t, s.mustAsk(recall), nil, "1")
	})
}

// TestWorkWithoutEvents checks that an entity without events stays in memory while it has work, or
// recent failures.
func TestWorkWithoutEvents(t *testing.T) {
	t.Parallel()
	var token eventsourcing.Token[string]
	for name, c := range map[string]struct {
		begin func(*actorCtx, *actor, act) actorDecision
		end   func(*actorCtx, *actor, act) actorDecision // nil if the entity stays
	}{
		"timer": {
			begin: request(func(ctx *actorCtx) actorStep { return ctx.StartTimer("t", time.Hour, act{f: recall}) }),
			end:   request(func(ctx *actorCtx) actorStep { return ctx.StopTimer("t") }),
		},
		"receive timeout": {
			begin: request(func(ctx *actorCtx) actorStep { return ctx.ReceiveTimeout(time.Hour) }),
			end:   request(func(ctx *actorCtx) actorStep { return ctx.ReceiveTimeout(0) }),
		},
		"later": {
			begin: func(ctx *actorCtx, _ *actor, _ act) actorDecision { token = ctx.Token(); return ctx.ReplyLater() },
			end:   request(func(ctx *actorCtx) actorStep { return ctx.Resolve(token.With("")) }),
		},
		"stash": {
			begin: func() func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				stashed := false
				return func(ctx *actorCtx, _ *actor, _ act) actorDecision {
					if !stashed {
						stashed = true
						return ctx.Stash()
					}
					return ctx.Reply("")
				}
			}(),
			end: request(func(ctx *actorCtx) actorStep { return ctx.UnstashAll() }),
		},
		"panic": {begin: func(*actorCtx, *actor, act) actorDecision { panic("oops") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.opts.PassivateAfter = -1
			s.open()
			defer s.close()
			wait := later(func() (string, error) { return s.ask(c.begin) })
			synctest.Wait()
			if n := s.actors.Resident(); n != 1 {
				t.Errorf("%s: %d entities are in memory, want the one with work", name, n)
			}
			if c.end != nil {
				s.mustAsk(c.end)
			}
			if _, err := wait(); err != nil && c.end != nil {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			want := 0
			if c.end == nil {
				want = 1
			}
			if n := s.actors.Resident(); n != want {
				t.Errorf("%s: %d entities are in memory after the work, want %d", name, n, want)
			}
		})
	}
}

// TestPassivationLosesNothing checks that no command is lost while entities are passivated as soon
// as they are idle.
func TestPassivationLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.PassivateAfter = 2 * time.Millisecond
		var stopped atomic.Int64
		s.cfg.Observer.Stopped = func(string) { stopped.Add(1) }
		s.open()
		const clients, each, entities = 8, 150, 4
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				for n := range each {
					id := fmt.Sprint((c + n) % entities)
					if _, err := s.askOf(t.Context(), id, addLines("x")); err != nil {
						t.Errorf("client %d: %v", c, err)
						return
					}
					if err := eventsourcing.Tell(t.Context(), s.actors.Ref(id), act{f: addLines("x")}); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration((c*7+n*3)%11) * time.Millisecond / 2)
				}
			})
		}
		wg.Wait()
		total := 0
		for i := range entities {
			text, err := s.askOf(t.Context(), fmt.Sprint(i), recall)
			if err != nil {
				t.Fatal(err)
			}
			total += len(strings.Fields(text))
		}
		if total != 2*clients*each {
			t.Errorf("%d lines are stored, want %d", total, 2*clients*each)
		}
		if stopped.Load() < 10 {
			t.Errorf("entities were passivated %d times, want at least 10", stopped.Load())
		}
		s.close()
	})
}

// TestStop checks that a command after the stop starts the entity again.
func TestStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		made := 0
		fresh := s.typ.New
		s.close()
		s.typ.New = func(id string) *actor { made++; return fresh(id) }
		s.open()
		s.mustAsk(addLines("1"))
		before := made
		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		waits := []func() (string, error){}
		for _, f := range []func(ctx *actorCtx, a *actor, c act) actorDecision{
			func(ctx *actorCtx, a *actor, c act) actorDecision {
				return ctx.Persist(line{"2"}).And(ctx.Stop()).ReplyFunc(a.text)
			},
			addLines("3"), recall,
		} {
			waits = append(waits, later(func() (string, error) { return s.ask(f) }))
			synctest.Wait()
		}
		gate.Release()
		for i, want := range []string{"1 2", "1 2 3", "1 2 3"} {
			text, err := waits[i]()
			expect(t, text, err, want)
		}
		synctest.Wait()
		if s.actors.Resident() != 0 || made != before {
			t.Errorf("%d entities are in memory, %d were created, want 0 and 0", s.actors.Resident(), made-before)
		}
		expect(t, s.mustAsk(recall), nil, "1 2 3")
	})
}

// TestClose checks that all accepted commands are handled, that later commands are refused, and
// that no goroutine remains.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 3}
		s.open()
		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		var waits []func() (string, error)
		for i := range 30 {
			waits = append(waits, later(func() (string, error) { return s.askOf(context.Background(), fmt.Sprint(i%3), addLines("x")) }))
			synctest.Wait()
		}
		closed := later(func() (string, error) { return "", s.rt.Close(context.Background()) })
		synctest.Wait()
		_, err := s.ask(recall)
		expectError(t, err, eventsourcing.ErrStopped)
		_, err = eventsourcing.HostWith(s.rt, s.typ, s.opts)
		expectError(t, err, eventsourcing.ErrStopped)
		gate.Release()
		if _, err := closed(); err != nil {
			t.Errorf("close: %v", err)
		}
		for i, wait := range waits {
			if text, err := wait(); err != nil || len(strings.Fields(text)) != i/3+1 {
				t.Errorf("answer %d is %q, %v, want %d lines", i, text, err, i/3+1)
			}
		}
		if err := s.rt.Close(context.Background()); err != nil {
			t.Errorf("a second close: %v", err)
		}
	})
}

// TestCloseSavesSnapshots checks that Close waits for the save of a snapshot.
func TestCloseSavesSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 1}
		s.open()
		slow := s.snapshots.Inject(snapshottest.Fault{Do: snapshottest.Stall})
		s.mustAsk(addLines("1"))
		closed := later(func() (string, error) { return "", s.rt.Close(context.Background()) })
		synctest.Wait()
		slow.Release()
		if _, err := closed(); err != nil {
			t.Errorf("close: %v", err)
		}
		s.expectSaved(1)
	})
}

// TestCloseDeadline checks that Close aborts at its deadline and that callers receive the known
// outcome.
func TestCloseDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		s.mustAsk(recall)
		write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		inFlight := later(func() (string, error) { return s.ask(addLines("slow")) })
		<-write.Struck()
		read := s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall})
		recovering := later(func() (string, error) { return s.askOf(context.Background(), "2", recall) })
		<-read.Struck()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := s.rt.Close(ctx)
		expectError(t, err, context.DeadlineExceeded)
		if d := time.Since(began); d != time.Second {
			t.Errorf("Close took %v, want 1 s", d)
		}
		_, err = inFlight()
		expectError(t, err, eventsourcing.ErrOutcomeUnknown)
		_, err = recovering()
		expectError(t, err, eventsourcing.ErrStopped)
	})
}

// TestCloseWhileSaveBlocks checks that Close returns at the end of its context although a save of a
// snapshot does not end, and that the save is awaited by a second Close.
func TestCloseWhileSaveBlocks(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"the store", "the observer"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 1}
				blocked := make(chan struct{})
				release := sync.OnceFunc(func() { close(blocked) })
				defer time.AfterFunc(time.Hour, release).Stop() // so that a Close without an end fails
				if in == "the observer" {
					s.cfg.Observer.Snapshot = func(eventsourcing.SnapshotInfo) { <-blocked }
				} else {
					s.snapshots.Inject(snapshottest.Fault{Do: snapshottest.Stall})
				}
				s.open()
				s.mustAsk(addLines("1"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				expectError(t, s.rt.Close(ctx), context.DeadlineExceeded)
				if d := time.Since(began); d < time.Second || d > 1200*time.Millisecond {
					t.Errorf("Close took %v, want 1 s and a moment", d)
				}
				if in == "the observer" {
					again, end := context.WithTimeout(t.Context(), time.Second)
					defer end()
					expectError(t, s.rt.Close(again), context.DeadlineExceeded)
					release()
					s.expectSaved(1)
				}
				if err := s.rt.Close(t.Context()); err != nil {
					t.Errorf("the last Close: %v", err)
				}
			})
		})
	}
}

// TestCloseWithoutJournal checks that Close ends although the journal does not respond.
func TestCloseWithoutJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		s.mustAsk(recall)
		s.journal.Inject(journaltest.Fault{Times: -1, Err: fmt.Errorf("unreachable: %w", journal.ErrUnavailable)})
		wait := later(func() (string, error) { return s.ask(addLines("x")) })
		pass(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		expectError(t, s.rt.Close(ctx), context.DeadlineExceeded)
		_, err := wait()
		expectError(t, err, eventsourcing.ErrOutcomeUnknown)
	})
}

// TestSlowHandlers checks that handlers that block, against the rules, do not delay other entities.
func TestSlowHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.cfg.Workers = 2
		s.open()
		defer s.close()
		release := make(chan struct{})
		block := func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			<-release
			return ctx.Reply("late")
		}
		var waits []func() (string, error)
		began := time.Now()
		for i := range 10 {
			waits = append(waits, later(func() (string, error) { return s.askOf(context.Background(), fmt.Sprint("slow", i), block) }))
		}
		for i := range 20 {
			if _, err := s.askOf(context.Background(), fmt.Sprint("quick", i), recall); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("the other entities waited for %v, want at most 1 s", d)
		}
		close(release)
		for _, wait := range waits {
			text, err := wait()
			expect(t, text, err, "late")
		}
		pass(time.Second)
		for i := range 20 {
			if _, err := s.askOf(context.Background(), fmt.Sprint("quick", i), recall); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestPanicAfterRecovery checks a panic in the encoding of a snapshot that is due after a long
// replay.
func TestPanicAfterRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		h := &hooks{}
		h.install(s)
		s.open()
		s.mustAsk(addLines("1", "2", "3"))
		s.close()
		s.typ.Snapshots.Every = 3
		h.panics("marshal")
		s.open()
		defer s.close()
		expect(t, s.mustAsk(recall), nil, "1 2 3")
		s.expectSaved()
	})
}

// TestGoexit checks that a command whose code calls runtime.Goexit fails like one that panics, and
// that the commands after it are handled.
func TestGoexit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f      func(ctx *actorCtx, a *actor, c act) actorDecision
		stored string
	}{
		"handler": {func(*actorCtx, *actor, act) actorDecision {
			runtime.Goexit()
			return actorDecision{}
		}, ""},
		"ReplyFunc": {func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"stored"}).ReplyFunc(func() string {
				runtime.Goexit()
				return ""
			})
		}, "stored "},
		"Then": {func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"stored"}).Then(func(ctx *actorCtx) actorStep {
				runtime.Goexit()
				return ctx.Effect
			}).Reply("")
		}, "stored "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSharded(t)
				s.open()
				defer s.close()
				s.mustAsk(recall)
				release := s.block()
				waits := s.asks(300, func(i int) func(*actorCtx, *actor, act) actorDecision {
					if i == 1 {
						return c.f
					}
					return addLines(fmt.Sprint(i))
				})
				release()
				want := "0 " + c.stored
				for i, wait := range waits {
					text, err := wait()
					switch p, ok := errors.AsType[*eventsourcing.PanicError](err); {
					case i == 1 && (!ok || p.Value == nil):
						t.Errorf("the error is %v, want a PanicError", err)
					case i == 0:
						expect(t, text, err, "0")
					case i > 1:
						want += fmt.Sprint(i, " ")
						expect(t, text+" ", err, want)
					}
				}
			})
		})
	}
}

// TestCloseWhileHandlerBlocks checks that Close returns at the end of its context although handlers
// block. The commands that wait for a worker end with an error at once.
func TestCloseWhileHandlerBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharded(t)
		s.cfg.Workers = 1
		s.open()
		blocked := make(chan struct{})
		first := later(func() (string, error) {
			return s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
				<-blocked
				return ctx.Persist(line{"x"}).Reply("")
			})
		})
		synctest.Wait()
		waits := s.asks(2, func(int) func(*actorCtx, *actor, act) actorDecision { return recall })
		waits = append(waits, later(func() (string, error) { return s.askOf(t.Context(), "2", recall) }))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		expectError(t, s.rt.Close(ctx), context.DeadlineExceeded)
		if d := time.Since(began); d < time.Second || d > 1200*time.Millisecond {
			t.Errorf("Close took %v, want 1 s and a moment", d)
		}
		again, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		expectError(t, s.rt.Close(again), context.DeadlineExceeded)
		close(blocked)
		if err := s.rt.Close(t.Context()); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		if _, err := first(); !errors.Is(err, eventsourcing.ErrOutcomeUnknown) && !errors.Is(err, eventsourcing.ErrNotStored) {
			t.Errorf("the blocked command ended with %v, want ErrOutcomeUnknown or ErrNotStored", err)
		}
		for _, wait := range waits[:2] {
			_, err := wait()
			expectError(t, err, eventsourcing.ErrStopped)
		}
		_, _ = waits[2]() // it may have been handled in time, by another worker
	})
}
