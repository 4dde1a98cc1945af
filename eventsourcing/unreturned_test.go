// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/snapshot"
)

// TestUnreturned checks that effects which a handler makes and does not return are reported, and no
// others.
func TestUnreturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, log := newScene(t).withSignals(), &logBuffer{}
		s.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		s.cfg.Observer.Unreturned = func(i eventsourcing.UnreturnedInfo) {
			s.note("%s %T %d", i.PersistenceID, i.Message, i.Effects)
		}
		s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
			if _, ok := signal.(eventsourcing.RecoveryCompleted); ok {
				ctx.Persist(line{"lost"})
			}
			return ctx.Effect
		})
		s.open()
		defer s.close()
		run := func(want int, f func(ctx *actorCtx) actorStep) {
			t.Helper()
			if _, err := s.ask(func(ctx *actorCtx, _ *actor, c act) actorDecision { return f(ctx).Reply("") }); err != nil {
				t.Error(err)
			}
			if want == 0 {
				s.expectNotes()
				return
			}
			s.expectNotes(fmt.Sprintf("actor|1 eventsourcing_test.act %d", want))
		}
		s.start()
		s.expectNotes("actor|1 eventsourcing.RecoveryCompleted 1")
		run(0, func(ctx *actorCtx) actorStep { return ctx.Persist(line{"1"}) })
		run(0, func(ctx *actorCtx) actorStep {
			ctx.Persist()
			ctx.Refuse(errNoLine)
			ctx.Unhandled()
			return ctx.Persist(line{"2"}).And(ctx.PersistAsync(line{"3"})).And(ctx.Then(nothing)).And(ctx.ThenAsync(nothing))
		})
		run(0, func(ctx *actorCtx) actorStep {
			e := ctx.Persist(line{"4"})
			return e.And(e)
		})
		run(1, func(ctx *actorCtx) actorStep {
			ctx.Persist(line{"lost"})
			return ctx.Persist(line{"5"})
		})
		run(8, func(ctx *actorCtx) actorStep {
			ctx.PersistAsync(line{"lost"})
			ctx.Then(nothing)
			ctx.ThenAsync(nothing)
			ctx.SaveSnapshot()
			ctx.DeleteSnapshots(snapshot.Criteria{All: true})
			ctx.DeleteEvents(eventsourcing.DeleteEvents{})
			ctx.UnstashAll()
			ctx.Passivate()
			return ctx.Effect
		})
		run(1, func(ctx *actorCtx) actorStep {
			return ctx.Persist(line{"6"}).Then(func(ctx *actorCtx) actorStep {
				ctx.Persist(line{"lost"})
				return ctx.Effect
			})
		})
		s.expectStored("1", "2", "3", "4", "4", "5", "6")
		for _, message := range []string{"eventsourcing.RecoveryCompleted", "eventsourcing_test.act"} {
			first := fmt.Sprintf("persistence_id=actor|1 message=%s effects=1", message)
			if all, n := log.count("message="+message), log.count(first); all != 1 || n != 1 {
				t.Errorf("%d lines of the log have the message %s, and %d have %q; want one line", all, message, n, first)
			}
		}
	})
}
