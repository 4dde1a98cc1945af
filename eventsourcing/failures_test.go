// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/store"
)

// TestPipelinedAnswers checks that three writes in flight are answered with three different states,
// in order.
func TestPipelinedAnswers(t *testing.T) {
	t.Parallel()
	for _, sequential := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.typ.DisablePipelining = sequential
			s.open()
			defer s.close()
			s.mustAsk(recall)
			first := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
			var waits []func() (string, error)
			for _, f := range []func(*actorCtx, *actor, act) actorDecision{addLines("1"), addLines("2"), recall, addLines("3")} {
				waits = append(waits, later(func() (string, error) { return s.ask(f) }))
				synctest.Wait()
			}
			if n := s.journal.Writes(); n != 1 {
				t.Errorf("%d writes are in flight, want 1", n)
			}
			first.Release()
			for i, want := range []string{"1", "1 2", "1 2", "1 2 3"} {
				got, err := waits[i]()
				expect(t, got, err, want)
			}
			if appends := s.journal.Calls(journaltest.OpAppend); !sequential && appends != 2 || sequential && appends != 3 {
				t.Errorf("sequential %t: %d appends, want 3 if sequential, otherwise 2", sequential, appends)
			}
		})
	}
}

// TestFailedWrites checks that the command whose write failed gets the error, and that the others
// are handled as if that command had not been sent.
func TestFailedWrites(t *testing.T) {
	t.Parallel()
	cause := errors.New("no space")
	for name, c := range map[string]struct {
		fault  journaltest.Fault
		want   []error
		not    error
		signal string
		wait   time.Duration
	}{
		"rejected":      {journaltest.Fault{Do: journaltest.Reject, Err: cause}, []error{eventsourcing.ErrRejected, cause}, eventsourcing.ErrNotStored, "PersistRejected", 0},
		"conflict":      {journaltest.Fault{Do: journaltest.Conflict}, []error{eventsourcing.ErrConflict}, eventsourcing.ErrNotStored, "", 0},
		"not sent":      {journaltest.Fault{Do: journaltest.NotSent, Err: cause}, []error{eventsourcing.ErrNotStored, cause}, nil, "PersistFailed", 3 * time.Second},
		"lost":          {journaltest.Fault{Err: cause}, []error{eventsourcing.ErrNotStored, cause}, nil, "PersistFailed", 3 * time.Second},
		"lost, no wait": {journaltest.Fault{Err: fmt.Errorf("%w: %w", journal.ErrUnavailable, cause)}, []error{eventsourcing.ErrNotStored, cause}, nil, "PersistFailed", 0},
		"late":          {journaltest.Fault{Do: journaltest.Late, Err: cause}, []error{eventsourcing.ErrNotStored, cause}, nil, "PersistFailed", 3 * time.Second},
		"whole call":    {journaltest.Fault{WholeCall: true, Err: cause}, []error{eventsourcing.ErrNotStored, cause}, nil, "PersistFailed", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t).withSignals()
				s.opts.BackoffJitter = -1
				s.open()
				defer s.close()
				s.mustAsk(addLines("before"))
				s.take()
				began := time.Now()
				gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall, ID: "actor|other"})
				go func() { _, _ = s.askOf(context.Background(), "other", addLines("x")) }() // the next writes are sent to the journal in one call
				<-gate.Struck()
				s.journal.Inject(c.fault)
				bad := later(func() (string, error) { return s.ask(addLines("bad")) })
				synctest.Wait()
				good := later(func() (string, error) { return s.ask(addLines("good")) })
				synctest.Wait()
				read := later(func() (string, error) { return s.ask(recall) })
				synctest.Wait()
				gate.Release()
				_, err := bad()
				expectError(t, err, c.want...)
				if c.not != nil && errors.Is(err, c.not) {
					t.Errorf("the error %v matches %v, want no match", err, c.not)
				}
				text, err := good()
				expect(t, text, err, "before good")
				text, err = read()
				expect(t, text, err, "before good")
				if d := time.Since(began); d != c.wait {
					t.Errorf("the commands took %v, want %v", d, c.wait)
				}
				if got := strings.Join(s.signals(), ","); got != c.signal {
					t.Errorf("the signals are %q, want %q", got, c.signal)
				}
				s.journal.Release()
				want := []string{"before", "good"}
				if strings.HasPrefix(name, "lost") || name == "late" || name == "whole call" {
					want = []string{"before", "-", "good"}
				}
				s.expectStored(want...)
			})
		})
	}
}

// TestPartlyStored checks that each of two joined units is stored by itself, and that the caller
// gets ErrPartlyStored if only one is stored.
func TestPartlyStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(recall)
		s.journal.Inject(journaltest.Fault{Do: journaltest.Reject, When: func(c journaltest.Call) bool { return c.Write.Expect == 1 }})
		_, err := s.ask(func(ctx *actorCtx, a *actor, c act) actorDecision {
			return ctx.Persist(line{"one"}).And(ctx.Persist(line{"two"})).ReplyFunc(a.text)
		})
		expectError(t, err, eventsourcing.ErrPartlyStored, eventsourcing.ErrRejected)
		expect(t, s.mustAsk(recall), nil, "one")
	})
}

// TestPartlyStoredByCallback distinguishes a callback whose events can't be stored from a command
// without any stored event.
func TestPartlyStoredByCallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		bad := func(ctx *actorCtx) actorStep { return ctx.Persist(unlisted{}) }
		_, err := s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Then(bad).Reply("") })
		expectError(t, err, eventsourcing.ErrRejected)
		if errors.Is(err, eventsourcing.ErrPartlyStored) || !eventsourcing.NotDone(err) {
			t.Errorf("the error %v reports stored events, but no event is stored", err)
		}
		_, err = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"one"}).Then(bad).Reply("")
		})
		expectError(t, err, eventsourcing.ErrPartlyStored, eventsourcing.ErrRejected)
		_, err = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"two"}).ThenReply(func(ctx *actorCtx) actorDecision { return ctx.Refuse(nil) })
		})
		expectError(t, err, eventsourcing.ErrPartlyStored, eventsourcing.ErrInvalid)
		// An error that the callback itself returns is not changed.
		_, err = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"three"}).ThenReply(func(ctx *actorCtx) actorDecision { return ctx.Refuse(errNoLine) })
		})
		if err != errNoLine { //nolint:errorlint // the same value
			t.Errorf("the error is %v, want the unchanged refusal", err)
		}
		_, err = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"four"}).ThenReply(func(ctx *actorCtx) actorDecision { return ctx.Unhandled() })
		})
		expectError(t, err, eventsourcing.ErrNoReply)
		s.expectStored("one", "two", "three", "four")
	})
}

// TestUnstorableEvents checks that a unit with an event that can't be encoded, or that is
// too large, is rejected. The journal is not called and the state does not change.
func TestUnstorableEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.cfg.MaxEventSize = 100
		s.open()
		defer s.close()
		s.mustAsk(addLines("fine"))
		writes := s.journal.Writes()
		_, err := s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
			return ctx.Persist(line{"x"}, unlisted{}).Reply("")
		})
		expectError(t, err, eventsourcing.ErrRejected, codec.ErrNotRegistered)
		_, err = s.ask(addLines("x", strings.Repeat("long", 50)))
		expectError(t, err, eventsourcing.ErrRejected)
		if rejected, ok := errors.AsType[*journal.RejectedError](err); !ok || rejected.SequenceNr != 3 || !strings.Contains(err.Error(), "100") {
			t.Errorf("the error is %v, want a rejection of event 3 that names the limit 100", err)
		}
		expect(t, s.mustAsk(recall), nil, "fine")
		if s.journal.Writes() != writes {
			t.Error("the rejected unit was sent to the journal")
		}
		text, err := s.ask(func(ctx *actorCtx, _ *actor, c act) actorDecision { return ctx.Persist().Reply("nothing") })
		expect(t, text, err, "nothing")

		s.typ.Name, s.typ.Events = "mute", nil
		mute, err := eventsourcing.HostWith(s.rt, s.typ, s.opts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = eventsourcing.Ask(t.Context(), mute.Ref("1"), act{f: addLines("x")})
		expectError(t, err, eventsourcing.ErrRejected, codec.ErrNotRegistered)
	})
}

// TestNoJournal checks that entities of a runtime without a journal persist nothing.
func TestNoJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).withSignals()
		s.cfg.Store = nil
		s.typ.Events = nil
		s.open()
		defer s.close()
		expect(t, s.mustAsk(recall), nil, "")
		_, err := s.ask(addLines("x"))
		expectError(t, err, eventsourcing.ErrNoJournal)
		s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision { return ctx.SaveSnapshot().Reply("") })
		s.mustAsk(func(ctx *actorCtx, _ *actor, c act) actorDecision {
			return ctx.DeleteEvents(eventsourcing.DeleteEvents{}).Reply("")
		})
		synctest.Wait()
		for _, h := range s.take() {
			switch h := h.(type) {
			case eventsourcing.SnapshotFailed:
				expectError(t, h.Err, eventsourcing.ErrNoSnapshots)
			case eventsourcing.EventsNotDeleted:
				expectError(t, h.Err, eventsourcing.ErrNoJournal)
			case eventsourcing.RecoveryCompleted:
			default:
				t.Errorf("unexpected signal %T", h)
			}
		}
		_, err = eventsourcing.Fold(t.Context(), s.rt, s.typ, "1", eventsourcing.FoldOptions[actorEvent]{})
		expectError(t, err, eventsourcing.ErrNoJournal)
		s.typ.Name, s.typ.Events = "another", codec.Types(codec.Name[line]("line"))
		_, err = eventsourcing.HostWith(s.rt, s.typ, s.opts)
		expectError(t, err, eventsourcing.ErrNoJournal)
	})
}

// TestFullWriter checks that an entity waits while the writer is full, and then continues.
func TestFullWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.cfg.Writer = journal.WriterConfig{MaxQueuedWrites: 2, MaxBatchWrites: 2}
		s.open()
		defer s.close()
		gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		var waits []func() (string, error)
		const entities, each = 5, 20
		for i := range entities {
			for n := range each {
				waits = append(waits, later(func() (string, error) { return s.askOf(context.Background(), fmt.Sprint(i), addLines(fmt.Sprint(n))) }))
				synctest.Wait()
			}
		}
		gate.Release()
		for i, wait := range waits {
			text, err := wait()
			if n := i%each + 1; err != nil || len(strings.Fields(text)) != n {
				t.Fatalf("answer %d is %q, %v, want %d lines", i, text, err, n)
			}
		}
	})
}

// TestFullWriterFails checks that a failure while units wait for room loses no unit.
func TestFullWriterFails(t *testing.T) {
	t.Parallel()
	for _, do := range []journaltest.Effect{journaltest.Reject, journaltest.Lose, journaltest.Store} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.cfg.Writer = journal.WriterConfig{MaxQueuedWrites: 1, MaxBatchWrites: 1}
			s.open()
			defer s.close()
			s.mustAsk(recall)
			gate := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
			s.journal.Inject(journaltest.Fault{Do: do})
			var waits []func() (string, error)
			for n := range 10 {
				waits = append(waits, later(func() (string, error) { return s.ask(addLines(fmt.Sprint(n))) }))
				synctest.Wait()
			}
			gate.Release()
			for i, wait := range waits {
				_, err := wait()
				if wrong := i == 1 && do != journaltest.Store; (err != nil) != wrong {
					t.Errorf("answer %d: %v", i, err)
				}
			}
			want := strings.Fields("0 1 2 3 4 5 6 7 8 9")
			switch do {
			case journaltest.Reject:
				want = strings.Fields("0 2 3 4 5 6 7 8 9")
			case journaltest.Lose:
				want = strings.Fields("0 - 2 3 4 5 6 7 8 9")
			default:
			}
			s.expectStored(want...)
		})
	}
}

// TestTwoRuntimes checks that only one of two instances can write at a time, and that each command
// gets its correct outcome.
func TestTwoRuntimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newScene(t), newScene(t)
		b.journal = a.journal
		b.cfg.Store = store.Of(a.journal, b.snapshots)
		a.open()
		defer a.close()
		b.open()
		defer b.close()
		a.mustAsk(addLines("a1"))
		b.mustAsk(addLines("b1"))
		_, err := a.ask(addLines("a2"))
		expectError(t, err, eventsourcing.ErrConflict)
		synctest.Wait()
		if n := a.actors.Resident(); n != 0 {
			t.Errorf("%d instances stay in memory after a conflict, although they are idle", n)
		}
		expect(t, a.mustAsk(addLines("a3")), nil, "a1 b1 a3")
		a.expectStored("a1", "b1", "a3")
	})
}
