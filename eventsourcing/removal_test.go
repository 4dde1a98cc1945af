// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// errKilled is the error for the commands of entities that are killed.
var errKilled = fmt.Errorf("moved: %w", eventsourcing.ErrStopped)

// shardedScene is a scene whose actors run for a region: they can be drained and killed.
type shardedScene struct {
	*scene
	connection hosting.Sharding
	onGone     func()

	mu    sync.Mutex
	calls []string // of the hooks
}

func newSharded(tb testing.TB) *shardedScene {
	tb.Helper()
	s := &shardedScene{scene: newScene(tb)}
	s.connection.Hooks = hosting.Hooks{
		Route: func(m hosting.Message) error { return s.connection.Host.Deliver(m) },
		Gone: func(string, bool) {
			if s.report("gone"); s.onGone != nil {
				s.onGone()
			}
		},
		Busy:   func(string) { s.report("busy") },
		Killed: errKilled,
	}
	hosting.Shard(&s.opts, &s.connection)
	s.cfg.Observer.Failure = func(_ string, cause error) { s.report("failure: " + cause.Error()) }
	return s
}

func (s *shardedScene) report(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

// expectCalls compares the calls of the hooks since the last time.
func (s *shardedScene) expectCalls(want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.calls, want) {
		s.t.Errorf("the calls of hooks are %q, want %q", s.calls, want)
	}
	s.calls = nil
}

// block makes the actor "1" busy with a command until the returned function is called.
func (s *shardedScene) block() (release func()) {
	s.t.Helper()
	blocked := make(chan struct{})
	s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
		<-blocked
		return ctx.Reply("")
	})
	synctest.Wait()
	return func() { close(blocked) }
}

// asks sends n asks to the actor "1" one after the other and returns the functions that wait.
func (s *shardedScene) asks(n int, f func(i int) func(*actorCtx, *actor, act) actorDecision) (waits []func() (string, error)) {
	for i := range n {
		waits = append(waits, later(func() (string, error) { return s.ask(f(i)) }))
		synctest.Wait()
	}
	return waits
}

// TestStopWithinTurn stops an entity at various places of a long mailbox. The commands after the
// stop are handled in order by one instance at a time.
func TestStopWithinTurn(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 1, 100, 254, 255, 256, 399} {
		t.Run(fmt.Sprint("at ", at), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSharded(t)
				s.open()
				defer s.close()
				s.start()
				release := s.block()
				var handled []string
				var instances []*actor
				for i := range 400 {
					s.tell(func(ctx *actorCtx, a *actor, _ act) actorDecision {
						handled = append(handled, fmt.Sprint(i))
						if n := len(instances); n == 0 || instances[n-1] != a {
							instances = append(instances, a)
						}
						switch {
						case i == at:
							return ctx.Stop().Reply("")
						case i < at: // nothing is pending, so the stop takes effect at once
							return ctx.Reply("")
						}
						return ctx.Persist(line{fmt.Sprint(i)}).Reply("")
					})
				}
				goneAt := 400 // the number of handled commands when Gone is called
				s.onGone = func() { goneAt = len(handled) }
				release()
				synctest.Wait()
				if goneAt != 400 {
					t.Errorf("Gone was called after %d commands, want 400", goneAt)
				}
				s.onGone = nil
				last := s.mustAsk(addLines("last"))
				var want, stored []string
				for i := range 400 {
					want = append(want, fmt.Sprint(i))
					if i > at {
						stored = append(stored, fmt.Sprint(i))
					}
				}
				stored = append(stored, "last")
				if !slices.Equal(handled, want) {
					t.Errorf("%d commands were handled, want 400 in order", len(handled))
				}
				if len(instances) > 2 {
					t.Errorf("%d instances handled commands in turns, want at most 2", len(instances))
				}
				s.expectStored(stored...)
				if text := fmt.Sprint(stored); "["+last+"]" != text {
					t.Errorf("the last reply is %q", last)
				}
				synctest.Wait()
				if len(s.calls) > 1 { // the entity may have stopped without another command
					t.Errorf("the calls of hooks are %q, want at most one", s.calls)
				}
			})
		})
	}
}

// TestKillAnswersAllAsks kills an entity with 600 waiting asks. All of them end with the error of the
// hooks.
func TestKillAnswersAllAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharded(t)
		s.open()
		defer s.close()
		s.start()
		release := s.block()
		waits := s.asks(600, func(int) func(*actorCtx, *actor, act) actorDecision { return addLines("x") })
		if !s.connection.Host.Kill("1") {
			t.Error("the entity is not in memory")
		}
		release()
		for i, wait := range waits {
			if _, err := wait(); !errors.Is(err, errKilled) {
				t.Errorf("ask %d: error %v, want %v", i, err, errKilled)
			}
		}
		s.expectCalls("gone")
		s.expectStored()
		expect(t, s.mustAsk(addLines("next")), nil, "next")
	})
}

// TestDrainedEntityStartsAgain sends commands to an entity that waits for its last write before it
// stops. A new instance handles them, in order, after the end of the drained one was reported.
func TestDrainedEntityStartsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharded(t)
		s.open()
		defer s.close()
		s.start()
		write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		first := later(func() (string, error) { return s.ask(addLines("first")) })
		<-write.Struck()
		s.connection.Host.Drain("1")
		synctest.Wait()
		waits := s.asks(600, func(i int) func(*actorCtx, *actor, act) actorDecision { return addLines(fmt.Sprint(i)) })
		s.expectCalls()
		write.Release()
		text, err := first()
		expect(t, text, err, "first")
		want := "first"
		for i, wait := range waits {
			want += fmt.Sprint(" ", i)
			text, err := wait()
			expect(t, text, err, want)
		}
		s.expectCalls("gone")
		s.connection.Host.Drain("1")
		s.expectCalls("gone")
	})
}

// TestCommandBeforeRemoval sends a command to an entity that has been drained or killed and that has
// not left memory yet. A new instance handles the command.
func TestCommandBeforeRemoval(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(hosting.Host, string) bool{"drain": hosting.Host.Drain, "kill": hosting.Host.Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSharded(t)
				s.cfg.Observer.Stopped = func(string) {
					if len(s.notes) == 0 {
						s.note("stopped")
						s.tell(addLines("late"))
					}
				}
				s.open()
				defer s.close()
				s.mustAsk(addLines("early"))
				end(s.connection.Host, "1")
				s.expectCalls("gone")
				expect(t, s.mustAsk(recall), nil, "early late")
			})
		})
	}
}

// TestKillDropsUnsentWrites kills an entity whose second write waits for room in the writer. The
// write is never stored.
func TestKillDropsUnsentWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharded(t)
		s.cfg.Writer.MaxQueuedWrites = 1
		s.open()
		defer s.close()
		s.start()
		write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		waits := s.asks(3, func(i int) func(*actorCtx, *actor, act) actorDecision { return addLines(fmt.Sprint(i)) })
		<-write.Struck()
		s.connection.Host.Kill("1")
		for i, wait := range waits {
			if _, err := wait(); !errors.Is(err, eventsourcing.ErrOutcomeUnknown) && !errors.Is(err, errKilled) {
				t.Errorf("ask %d: error %v, want ErrOutcomeUnknown or %v", i, err, errKilled)
			}
		}
		s.expectCalls("gone")
		write.Release()
		synctest.Wait()
		if stored := s.stored(); len(stored) > 2 || !slices.Equal(stored, []string{"0", "1"}[:len(stored)]) {
			t.Errorf("the journal holds %q, want the writes that the writer had accepted", stored)
		}
	})
}

// TestDrainedEntityDropsSignals drains an entity whose snapshot is saved while it waits for its last
// write. The signal neither starts a new instance nor reaches the one that the next command starts.
func TestDrainedEntityDropsSignals(t *testing.T) {
	t.Parallel()
	for _, commands := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			s := newSharded(t)
			s.withSignals()
			s.open()
			defer s.close()
			s.mustAsk(addLines("0"))
			save := s.snapshots.Inject(snapshottest.Fault{Do: snapshottest.Stall})
			s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
			<-save.Struck()
			write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
			last := later(func() (string, error) { return s.ask(addLines("1")) })
			<-write.Struck()
			s.connection.Host.Drain("1")
			synctest.Wait()
			waits := s.asks(commands, func(int) func(*actorCtx, *actor, act) actorDecision { return recall })
			save.Release()
			synctest.Wait()
			write.Release()
			text, err := last()
			expect(t, text, err, "0 1")
			for _, wait := range waits {
				text, err := wait()
				expect(t, text, err, "0 1")
			}
			s.expectCalls("gone")
			s.expectSaved(1)
			if names := s.signals(); len(names) > 0 {
				t.Errorf("the signals are %q, want none", names)
			}
		})
	}
}

// TestGoneBeforeNextInstance checks that Gone is called before the next instance handles the
// commands that a drained entity has not received.
func TestGoneBeforeNextInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharded(t)
		s.open()
		defer s.close()
		s.start()
		hold := make(chan struct{})
		s.onGone = func() { <-hold }
		write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		first := later(func() (string, error) { return s.ask(addLines("first")) })
		<-write.Struck()
		s.connection.Host.Drain("1")
		synctest.Wait()
		handled := false
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			handled = true
			return ctx.Stop().Reply("")
		})
		write.Release()
		text, err := first()
		expect(t, text, err, "first")
		synctest.Wait()
		if handled {
			t.Error("the next instance has handled a command during the call of Gone")
		}
		s.onGone = nil
		close(hold)
		s.expectCalls("gone", "gone")
		if !handled {
			t.Error("the command was lost")
		}
	})
}

// TestStopsUnderLoad requests stops of all kinds while several callers send commands. No command is
// lost, overtaken or handled twice, and no two instances are alive. With Kill, a command may fail,
// but only with the error of the hooks, an unknown outcome, or a conflict with a write that was in
// flight.
func TestStopsUnderLoad(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		kills := seed%2 == 1
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				s := newSharded(t)
				s.cfg.Workers = 4
				s.opts.MinBackoff, s.opts.MaxBackoff = time.Millisecond, time.Millisecond
				s.open()
				var live atomic.Int64 // handlers of the entity that run
				var mu sync.Mutex
				var current *actor // the instance that has handled the last command
				seen := make(map[*actor]bool)
				handle := func(text string, end bool) func(*actorCtx, *actor, act) actorDecision {
					return func(ctx *actorCtx, a *actor, _ act) actorDecision {
						if live.Add(1) != 1 {
							t.Error("two handlers of the entity run")
						}
						defer live.Add(-1)
						mu.Lock()
						if a != current && seen[a] {
							t.Error("an instance handles a command after its successor")
						}
						current, seen[a] = a, true
						mu.Unlock()
						runtime.Gosched()
						d := ctx.Persist(line{text})
						if end {
							d = d.Stop()
						}
						return d.ReplyFunc(a.text)
					}
				}
				const callers, each = 4, 200
				var done sync.WaitGroup
				outcomes := make([][]error, callers)
				for c := range callers {
					ends := random.Perm(each)[:5]
					done.Go(func() {
						for i := range each {
							_, err := s.ask(handle(fmt.Sprintf("%d.%03d", c, i), slices.Contains(ends, i)))
							outcomes[c] = append(outcomes[c], err)
						}
					})
				}
				done.Go(func() {
					for range 300 {
						switch n := random.IntN(8); {
						case n == 0 && kills:
							s.connection.Host.Kill("1")
						case n < 4:
							s.connection.Host.Drain("1")
						default:
							s.connection.Host.Passivate("1")
						}
						for range random.IntN(50) {
							runtime.Gosched()
						}
					}
				})
				done.Wait()
				synctest.Wait()
				s.close()
				if !kills && slices.ContainsFunc(s.calls, func(call string) bool { return strings.HasPrefix(call, "failure") }) {
					t.Errorf("the calls of hooks are %q, want no failure", s.calls)
				}
				if s.actors.Resident() != 0 {
					t.Errorf("%d entities are in memory after Close", s.actors.Resident())
				}
				stored := s.stored()
				for c := range callers {
					var of []string
					for _, text := range stored {
						if strings.HasPrefix(text, fmt.Sprint(c, ".")) {
							of = append(of, text)
						}
					}
					if !slices.IsSorted(of) || len(slices.Compact(slices.Clone(of))) != len(of) {
						t.Errorf("the commands of caller %d are stored as %q", c, of)
					}
					for i, err := range outcomes[c] {
						_, found := slices.BinarySearch(of, fmt.Sprintf("%d.%03d", c, i))
						switch {
						case err == nil && !found:
							t.Errorf("command %d of caller %d is lost", i, c)
						case err == nil || kills && errors.Is(err, eventsourcing.ErrOutcomeUnknown):
						case !kills || !errors.Is(err, errKilled) && !errors.Is(err, eventsourcing.ErrConflict) || found:
							t.Errorf("command %d of caller %d: stored %t, error %v", i, c, found, err)
						}
					}
				}
			})
		})
	}
}

// TestIdleStopIsReported requests an entity with a long mailbox to stop if it is idle. It stays, and
// this is reported.
func TestIdleStopIsReported(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 10, 255, 256, 257, 600} {
		synctest.Test(t, func(t *testing.T) {
			s := newSharded(t)
			s.open()
			defer s.close()
			s.mustAsk(addLines("1"))
			release := s.block()
			for range n {
				s.tell(recall)
			}
			s.connection.Host.Passivate("1")
			release()
			synctest.Wait()
			want := "gone"
			if n > 256 { // more than one turn
				want = "busy"
			}
			if !slices.Equal(s.calls, []string{want}) {
				t.Errorf("%d commands wait: the calls of hooks are %q, want %q", n, s.calls, want)
			}
		})
	}
}

// TestKillFreesItsRecovery kills one entity that recovers, and one that waits for its recovery. The
// next recovery starts at once.
func TestKillFreesItsRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharded(t)
		s.cfg.MaxRecoveries = 1
		s.cfg.Observer.RecoveryStarted = func(id string) { s.note("%s", id) }
		s.cfg.Observer.Recovery = func(i eventsourcing.RecoveryInfo) { s.note("%s %t", i.PersistenceID, i.Err == nil) }
		s.open()
		defer s.close()
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, ID: "actor|1", Do: journaltest.Stall})
		var waits []func() (string, error)
		for _, id := range []string{"1", "2", "3"} {
			waits = append(waits, later(func() (string, error) { return s.askOf(t.Context(), id, recall) }))
			synctest.Wait()
		}
		began := time.Now()
		s.connection.Host.Kill("2")
		_, err := waits[1]()
		expectError(t, err, errKilled)
		s.connection.Host.Kill("1")
		_, err = waits[0]()
		expectError(t, err, errKilled)
		text, err := waits[2]()
		expect(t, text, err, "")
		if d := time.Since(began); d != 0 {
			t.Errorf("the last entity has waited for %v, want 0", d)
		}
		s.expectNotes("actor|1", "actor|1 false", "actor|3", "actor|3 true")
	})
}
