// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/store"
)

// newReplicas returns two scenes with HostOptions.SharedJournal and the same stores. The counter
// counts the recoveries of both.
func newReplicas(tb testing.TB, prepare func() *scene) (a, b *scene, recoveries *atomic.Int64) {
	tb.Helper()
	a, b, recoveries = prepare(), prepare(), &atomic.Int64{}
	b.journal, b.snapshots, b.cfg.Store = a.journal, a.snapshots, a.cfg.Store
	for _, s := range []*scene{a, b} {
		s.opts.SharedJournal = true
		s.cfg.Observer.Recovery = func(eventsourcing.RecoveryInfo) { recoveries.Add(1) }
	}
	return a, b, recoveries
}

// TestSharedJournal checks that two runtimes that share a journal see each write of the other, without
// a recovery and without a conflict, and that a third runtime accepts the history.
func TestSharedJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, recoveries := newReplicas(t, func() *scene { return newScene(t) })
		a.open()
		b.open()
		var want []string
		for i := range 20 {
			writer, reader := a, b
			if i%2 == 1 {
				writer, reader = b, a
			}
			want = append(want, fmt.Sprint(i))
			expect(t, writer.mustAsk(addLines(fmt.Sprint(i))), nil, strings.Join(want, " "))
			expect(t, reader.mustAsk(recall), nil, strings.Join(want, " "))
		}
		if n := recoveries.Load(); n != 2 {
			t.Errorf("the entities recovered %d times, want once in each runtime", n)
		}
		a.close()
		b.close()
		a.open()
		expect(t, a.mustAsk(recall), nil, strings.Join(want, " "))
		a.close()
	})
}

// TestSharedConflicts checks that commands to several runtimes at the same time are all handled.
func TestSharedConflicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := newReplicas(t, func() *scene { return newScene(t) })
		slow := &slowJournal{Journal: a.journal, rng: rand.New(rand.NewPCG(1, 2))}
		a.cfg.Store, b.cfg.Store = store.Of(slow, a.snapshots), store.Of(slow, a.snapshots)
		a.open()
		b.open()
		var clients sync.WaitGroup
		for c := range 8 {
			clients.Go(func() {
				for range 25 {
					if _, err := []*scene{a, b}[c%2].ask(addLines("x")); err != nil {
						t.Errorf("a command failed: %v", err)
					}
				}
			})
		}
		clients.Wait()
		if n := len(strings.Fields(a.mustAsk(recall))); n != 200 {
			t.Errorf("%d lines are stored, want 200", n)
		}
		a.close()
		b.close()
	})
}

// TestSharedConflictLimit checks that a command whose writes always conflict ends with ErrConflict.
func TestSharedConflictLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.SharedJournal = true
		s.open()
		defer s.close()
		decided := 0
		s.journal.Inject(journaltest.Fault{Do: journaltest.Conflict, Times: -1})
		_, err := s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { decided++; return ctx.Persist(line{"x"}).Reply("") })
		expectError(t, err, eventsourcing.ErrConflict)
		if !eventsourcing.NotDone(err) || decided != 101 {
			t.Errorf("the command was handled %d times and ended with %v, want 101 times and an error that reports that nothing was done", decided, err)
		}
		s.journal.Reset()
		expect(t, s.mustAsk(recall), nil, "")
	})
}

// TestSharedRetention checks that a runtime recovers an entity if another one has deleted the events
// that it has not applied yet.
func TestSharedRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, recoveries := newReplicas(t, func() *scene { return newScene(t).withSignals() })
		a.open()
		b.open()
		expect(t, a.mustAsk(addLines("1")), nil, "1")
		expect(t, b.mustAsk(addLines("2", "3")), nil, "1 2 3")
		b.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
		synctest.Wait()
		b.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteEvents(eventsourcing.DeleteEvents{}) }))
		synctest.Wait()
		if got := b.stored(); len(got) > 0 {
			t.Fatalf("the journal holds %q, want no event", got)
		}
		expect(t, a.mustAsk(recall), nil, "1 2 3")
		if n := recoveries.Load(); n != 3 {
			t.Errorf("the entities recovered %d times, want twice in the first runtime and once in the other", n)
		}
		a.close()
		b.close()
	})
}

// TestDeletedOutcome checks a write that seems to fail, if another runtime deletes the records that show
// its outcome before the fence reaches the journal. The command is not decided again, and the entity
// recovers.
func TestDeletedOutcome(t *testing.T) {
	t.Parallel()
	cover := func(b *scene, upTo uint64) {
		b.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.SaveSnapshot() }))
		synctest.Wait()
		b.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.DeleteEvents(eventsourcing.DeleteEvents{UpTo: upTo}) }))
		synctest.Wait()
	}
	for name, c := range map[string]struct {
		command func(ctx *actorCtx, a *actor, c act) actorDecision
		do      journaltest.Effect
		between func(b *scene) // in the other runtime, between the write and the fence
		want    string         // the reply; empty for an unknown outcome
		state   string
	}{
		"all, events follow": {addLines("2"), journaltest.Store, func(b *scene) { cover(b, 0); b.mustAsk(addLines("3")) }, "", "1 2 3"},
		"all":                {addLines("2"), journaltest.Store, func(b *scene) { cover(b, 0) }, "", "1 2"},
		"the first of two":   {addLines("2", "3"), journaltest.Store, func(b *scene) { cover(b, 2); b.mustAsk(addLines("4")) }, "1 2 3", "1 2 3 4"},
		"of another event":   {addLines("2"), journaltest.Lose, func(b *scene) { b.mustAsk(addLines("x")); cover(b, 0) }, "", "1 x"},
	} {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, shared %t", name, shared), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					a, b, _ := newReplicas(t, func() *scene { return newScene(t).withSignals() })
					a.opts.SharedJournal, b.opts.SharedJournal = shared, shared
					a.open()
					b.open()
					expect(t, a.mustAsk(addLines("1")), nil, "1")
					a.journal.Inject(journaltest.Fault{Do: c.do})
					fence := a.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					answer := later(func() (string, error) { return a.askOf(ctx, "1", c.command) })
					<-fence.Struck()
					c.between(b)
					a.signals()
					fence.Release()
					text, err := answer()
					switch {
					case errors.Is(err, context.DeadlineExceeded):
						t.Errorf("the entity does not answer within a minute: %v", err)
						b.mustAsk(addLines("more")) // so that the entity ends
					case c.want != "":
						expect(t, text, err, c.want)
					case !errors.Is(err, eventsourcing.ErrOutcomeUnknown) || errors.Is(err, eventsourcing.ErrConflict) || errors.Is(err, eventsourcing.ErrNotStored):
						t.Errorf("the answer is %q, %v, want ErrOutcomeUnknown only", text, err)
					case eventsourcing.StatusOf(err).Outcome != eventsourcing.DoneUnknown:
						t.Errorf("the status of %v is %+v, want DoneUnknown", err, eventsourcing.StatusOf(err))
					}
					expect(t, a.mustAsk(recall), nil, c.state)
					if got := a.signals(); len(got) > 0 {
						t.Errorf("the first runtime received the signals %q, want none", got)
					}
					a.close()
					b.close()
				})
			})
		}
	}
}

// TestAppendDuringProbe checks that an event that is stored while the outcome of a write is determined
// does not count as deleted. The journal reports a conflict that is untrue at the time.
func TestAppendDuringProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := newReplicas(t, func() *scene { return newScene(t) })
		a.opts.SharedJournal, b.opts.SharedJournal = false, false
		a.open()
		b.open()
		expect(t, a.mustAsk(addLines("1")), nil, "1")
		a.journal.Inject(journaltest.Fault{})
		a.journal.Inject(journaltest.Fault{Do: journaltest.Conflict})
		highest := a.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall})
		answer := later(func() (string, error) { return a.ask(addLines("2")) })
		<-highest.Struck() // event 2 was not found
		expect(t, b.mustAsk(addLines("x")), nil, "1 x")
		highest.Release()
		_, err := answer()
		expectError(t, err, eventsourcing.ErrConflict)
		if !eventsourcing.NotDone(err) {
			t.Errorf("NotDone(%v) is false", err)
		}
		expect(t, a.mustAsk(recall), nil, "1 x")
		a.close()
		b.close()
	})
}

// TestSharedCheckFails checks that a command is not handled on an outdated state if the journal can't
// be read, and that the entity recovers later.
func TestSharedCheckFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := newReplicas(t, func() *scene { return newScene(t) })
		a.open()
		b.open()
		expect(t, a.mustAsk(addLines("1")), nil, "1")
		expect(t, b.mustAsk(addLines("2")), nil, "1 2")
		a.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Times: 2}) // the check, and the recovery
		_, err := a.ask(recall)
		expectError(t, err, eventsourcing.ErrRecovery, journaltest.ErrInjected)
		if !eventsourcing.NotDone(err) {
			t.Errorf("NotDone(%v) is false", err)
		}
		expect(t, a.mustAsk(recall), nil, "1 2")
		a.close()
		b.close()
	})
}

// TestSharedCheckEnds checks that a runtime closes while a check hangs.
func TestSharedCheckEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.SharedJournal = true
		s.open()
		s.mustAsk(addLines("1"))
		s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall})
		answer := later(func() (string, error) { return s.ask(recall) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.rt.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v, want the end of the context", err)
		}
		_, err := answer()
		expectError(t, err, eventsourcing.ErrStopped)
	})
}

// TestSharedDeadline checks that one runtime handles the time-out of a state, if both have the entity
// in memory.
func TestSharedDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := newReplicas(t, func() *scene { return newTimed(t) })
		for _, s := range []*scene{a, b} {
			s.on(func(ctx *signalCtx, _ *actor, signal eventsourcing.Signal) signalEffect {
				if _, due := signal.(eventsourcing.StateTimeout); due {
					return ctx.Persist(line{"due"})
				}
				return ctx.Effect
			})
			s.open()
		}
		a.mustAsk(waitFor(10 * time.Second))
		expect(t, b.mustAsk(recall), nil, "")
		pass(time.Minute)
		expect(t, a.mustAsk(recall), nil, "due")
		expect(t, b.mustAsk(recall), nil, "due")
		b.mustAsk(waitFor(10 * time.Second))
		pass(time.Minute) // the other runtime has not read the deadline
		expect(t, a.mustAsk(recall), nil, "due due")
		a.close()
		b.close()
	})
}

// TestSharedExclusions checks that SharedJournal is refused where it can't hold.
func TestSharedExclusions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		for name, opts := range map[string]eventsourcing.HostOptions{
			"Disabled": {Recovery: eventsourcing.Recovery{Disabled: true}},
			"UpTo":     {Recovery: eventsourcing.Recovery{UpTo: 1}},
			"AsOf":     {Recovery: eventsourcing.Recovery{AsOf: time.Unix(1, 0)}},
		} {
			opts.SharedJournal = true
			typ := s.typ
			typ.Name = name
			_, err := eventsourcing.HostWith(s.rt, typ, opts)
			expectError(t, err, eventsourcing.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), "HostOptions.SharedJournal") {
				t.Errorf("%s: the error does not name SharedJournal: %v", name, err)
			}
		}
	})
}
