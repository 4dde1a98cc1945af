// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// newParting returns a scene whose actors persist "bye" and the reason, and save a snapshot, before
// they stop.
func newParting(tb testing.TB) *shardedScene {
	tb.Helper()
	s := newSharded(tb)
	s.typ.Signals = eventsourcing.Signals(on[eventsourcing.Stopping](), on[eventsourcing.SnapshotSaved](), on[eventsourcing.PersistFailed]())
	s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
		if stopping, ok := signal.(eventsourcing.Stopping); ok {
			return ctx.Persist(line{fmt.Sprint("bye", stopping.Reason)}).SaveSnapshot()
		}
		return ctx.Effect
	})
	return s
}

// TestStopping checks the reason of the signal, and that its event and its snapshot are stored when
// the entity has left memory.
func TestStopping(t *testing.T) {
	t.Parallel()
	for reason, stop := range map[eventsourcing.StopReason]func(*shardedScene){
		eventsourcing.StopIdle:   func(s *shardedScene) { s.connection.Host.Passivate("1") },
		eventsourcing.StopMoved:  func(s *shardedScene) { s.connection.Host.Drain("1") },
		eventsourcing.StopClosed: func(s *shardedScene) { s.close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newParting(t).openSharded()
			s.mustAsk(addLines("1", "2"))
			save := s.snapshots.Inject(snapshottest.Fault{Do: snapshottest.Stall})
			go stop(s)
			<-save.Struck()
			s.expectCalls() // the snapshot is not saved yet
			if n := s.actors.Resident(); n != 1 {
				t.Errorf("reason %d: %d entities are in memory before the snapshot is saved, want 1", reason, n)
			}
			save.Release()
			s.expectCalls("gone")
			bye := fmt.Sprint("bye", reason)
			s.expectStored("1", "2", bye)
			s.expectSaved(3)
			if got := s.signals(); len(got) != 1 || got[0] != "Stopping" {
				t.Errorf("reason %d: the signals are %q, want one Stopping", reason, got)
			}
			if reason == eventsourcing.StopClosed {
				return
			}
			expect(t, s.mustAsk(recall), nil, "1 2 "+bye)
			s.close()
		})
	}
}

// openSharded is open.
func (s *shardedScene) openSharded() *shardedScene {
	s.open()
	return s
}

// TestStoppingAfterIdleTime checks the signal of an entity that its host passivates.
func TestStoppingAfterIdleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Signals = eventsourcing.Signals(on[eventsourcing.Stopping]())
		s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
			return ctx.Persist(line{fmt.Sprintf("%+v", signal)})
		})
		s.opts.PassivateAfter = time.Minute
		s.open()
		defer s.close()
		s.mustAsk(addLines("1"))
		pass(2 * time.Minute)
		if n := s.actors.Resident(); n != 0 {
			t.Errorf("%d entities are in memory, want 0", n)
		}
		s.expectStored("1", "{signal:{} Reason:0}")
	})
}

// TestStoppingFollowsCommands drains an entity with commands in its mailbox. The signal is handled
// after them.
func TestStoppingFollowsCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newParting(t).openSharded()
		defer s.close()
		release := s.block()
		waits := s.asks(3, func(i int) func(*actorCtx, *actor, act) actorDecision { return addLines(fmt.Sprint(i)) })
		s.connection.Host.Drain("1")
		release()
		for _, wait := range waits {
			if _, err := wait(); err != nil {
				t.Error(err)
			}
		}
		s.expectCalls("gone")
		s.expectStored("0", "1", "2", "bye1")
	})
}

// TestCommandDuringStopping sends a command while the event of the signal is being stored. The next
// instance handles the command. A region that wanted the idle entity to leave learns that it stays.
func TestCommandDuringStopping(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]struct {
		by    func(*shardedScene)
		calls string
		bye   string
	}{
		"idle":  {func(s *shardedScene) { s.connection.Host.Passivate("1") }, "busy", "bye0"},
		"moved": {func(s *shardedScene) { s.connection.Host.Drain("1") }, "gone", "bye1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newParting(t).openSharded()
			defer s.close()
			s.mustAsk(addLines("1"))
			write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
			stop.by(s)
			<-write.Struck()
			synctest.Wait()
			s.expectCalls()
			stop.by(s) // again: the signal arrives once
			wait := later(func() (string, error) { return s.ask(recall) })
			synctest.Wait()
			write.Release()
			text, err := wait()
			if want := "1 " + stop.bye; err != nil || text != want {
				t.Errorf("%s: the answer is %q, %v, want %q", name, text, err, want)
			}
			s.expectCalls(stop.calls)
		})
	}
}

// TestStoppingFails checks that an entity leaves although the event of the signal is not stored, the
// handler panics, or the snapshot is not saved.
func TestStoppingFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*shardedScene){
		"write":    func(s *shardedScene) { s.journal.Inject(journaltest.Fault{Err: journal.ErrNotSent}) },
		"unknown":  func(s *shardedScene) { s.journal.Inject(journaltest.Fault{}) },
		"snapshot": func(s *shardedScene) { s.snapshots.Inject(snapshottest.Fault{}) },
		"panic": func(s *shardedScene) {
			s.on(func(*signalCtx, *actor, eventsourcing.Signal) signalEffect { panic("injected") })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newParting(t).openSharded()
			defer s.close()
			s.mustAsk(addLines("1"))
			fail(s)
			s.connection.Host.Passivate("1")
			synctest.Wait()
			if n := s.actors.Resident(); n != 0 {
				t.Errorf("%s: %d entities are in memory, want 0", name, n)
			}
			s.on(nil)
			if text, err := s.ask(recall); err != nil || text != "1" && (name != "snapshot" || text != "1 bye0") {
				t.Errorf("%s: the answer is %q, %v, want %q", name, text, err, "1")
			}
		})
	}
}

// TestKillDuringStopping kills an entity whose event of the signal is not stored in time.
func TestKillDuringStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newParting(t).openSharded()
		s.mustAsk(addLines("1"))
		write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		s.connection.Host.Drain("1")
		<-write.Struck()
		s.expectCalls()
		s.connection.Host.Kill("1")
		s.expectCalls("gone")
		s.mustAsk(recall)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		if err := s.rt.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want the cause of its context", err)
		}
	})
}

// TestNoStopping checks that an entity that stops itself, or has no events and no work, hears no
// signal.
func TestNoStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newParting(t).openSharded()
		defer s.close()
		s.mustAsk(recall)
		s.expectCalls("gone")
		s.mustAsk(func(ctx *actorCtx, a *actor, _ act) actorDecision { return ctx.Persist(line{"1"}).Stop().Reply("") })
		s.expectCalls("gone")
		s.mustAsk(func(ctx *actorCtx, a *actor, _ act) actorDecision { return ctx.Passivate().Reply("") })
		s.expectCalls("gone")
		s.expectStored("1")
		if got := s.signals(); len(got) > 0 {
			t.Errorf("the signals are %q, want none", got)
		}
	})
}
