// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
)

var errNoLine = eventsourcing.NewRefusal("actor/no_line", "there is no such line")

// other is a command that no actor handles.
type other struct {
	eventsourcing.Command[actor, int]
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		for name, c := range map[string]struct {
			f    func(ctx *actorCtx, a *actor, c act) actorDecision
			want error
			code string
		}{
			"no decision": {func(*actorCtx, *actor, act) actorDecision { return actorDecision{} }, eventsourcing.ErrNoReply, "refold/no_reply"},
			"no decision, persists": {
				func(ctx *actorCtx, _ *actor, _ act) actorDecision {
					return ctx.Persist(line{"x"}).ThenReply(func(*actorCtx) actorDecision { return actorDecision{} })
				}, eventsourcing.ErrNoReply, "refold/no_reply",
			},
			"unhandled": {func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Unhandled() }, eventsourcing.ErrUnhandled, "refold/unhandled"},
			"refusal":   {func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Refuse(errNoLine) }, errNoLine, "actor/no_line"},
			"refusal, wrapped": {
				func(ctx *actorCtx, _ *actor, _ act) actorDecision {
					return ctx.Refuse(fmt.Errorf("line 7: %w", errNoLine))
				},
				eventsourcing.NewRefusal("actor/no_line", "another text"), "actor/no_line",
			},
			"another error": {func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Refuse(io.ErrUnexpectedEOF) }, io.ErrUnexpectedEOF, "internal"},
		} {
			_, err := s.ask(c.f)
			if !errors.Is(err, c.want) || eventsourcing.StatusOf(err).Code != c.code {
				t.Errorf("%s: the error is %v with code %q, want %v with %q", name, err, eventsourcing.StatusOf(err).Code, c.want, c.code)
			}
		}
		if _, err := eventsourcing.Ask(t.Context(), s.actors.Ref("1"), other{}); !errors.Is(err, eventsourcing.ErrUnhandled) {
			t.Errorf("Ask with a command of another type: error %v, want ErrUnhandled", err)
		}
		text, err := s.ask(addLines("hello"))
		expect(t, text, err, "x hello")
		if eventsourcing.StatusOf(nil).Code != "" {
			t.Error("StatusOf(nil) has a code, want none")
		}
		if errNoLine.Code() != "actor/no_line" || errNoLine.Error() != "there is no such line" {
			t.Errorf("the refusal is %q: %v", errNoLine.Code(), errNoLine)
		}
	})
}

// byPointer is a command whose handler takes a pointer.
type byPointer struct {
	eventsourcing.Command[actor, string]
}

// TestPointerCommands checks that the error names the mistake if a command is sent as a pointer and
// its handler takes a value, or the reverse.
func TestPointerCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.typ.Commands = append(s.typ.Commands, eventsourcing.On("", func(_ *actor, ctx *actorCtx, _ *byPointer) actorDecision { return ctx.Reply("") }))
		s.open()
		defer s.close()
		for want, command := range map[string]eventsourcing.Request[actor, string]{
			"actor|1, *eventsourcing_test.act: Type.Commands has eventsourcing_test.act, so send the value, not a pointer": &act{f: recall},
			"actor|1, eventsourcing_test.byPointer: Type.Commands has *eventsourcing_test.byPointer, so send a pointer":    byPointer{},
		} {
			_, err := eventsourcing.Ask(t.Context(), s.actors.Ref("1"), command)
			if !errors.Is(err, eventsourcing.ErrUnhandled) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("Ask: error %v, want ErrUnhandled with %q", err, want)
			}
			if err := eventsourcing.Tell(t.Context(), s.actors.Ref("1"), command); err != nil {
				t.Error(err)
			}
			s.mustAsk(recall)
			if n := len(s.dropped); n == 0 || !strings.HasSuffix(s.dropped[n-1].Err.Error(), want) {
				t.Errorf("reported as dropped: %v, want %q", s.dropped, want)
			}
		}
	})
}

// TestBadArguments checks that a message that can't be delivered fails at once.
func TestBadArguments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		for _, id := range []string{"", " \t", "a\x00b", "\xff", strings.Repeat("x", journal.MaxIDLength-len("actor|")+1)} {
			if _, err := s.askOf(t.Context(), id, recall); !errors.Is(err, eventsourcing.ErrInvalid) {
				t.Errorf("ID %.20q: the error of Ask is %v, want ErrInvalid", id, err)
			}
			if err := eventsourcing.Tell(t.Context(), s.actors.Ref(id), act{f: recall}); !errors.Is(err, eventsourcing.ErrInvalid) {
				t.Errorf("ID %.20q: the error of Tell is %v, want ErrInvalid", id, err)
			}
		}
		if n := s.actors.Resident(); n != 0 {
			t.Errorf("%d entities are in memory, want 0", n)
		}
		if n := s.journal.Calls(journaltest.OpHighest); n != 0 {
			t.Errorf("the journal was called %d times, want 0", n)
		}
		for _, id := range []string{"1", "a|b", "日本", strings.Repeat("x", journal.MaxIDLength-len("actor|"))} {
			got, err := s.askOf(t.Context(), id, func(ctx *actorCtx, _ *actor, c act) actorDecision {
				return ctx.Reply(ctx.ID() + " " + ctx.PersistenceID())
			})
			expect(t, got, err, id+" actor|"+id)
		}
		var zero eventsourcing.Ref[actor]
		_, err := eventsourcing.Ask(t.Context(), zero, act{f: recall})
		expectError(t, err, eventsourcing.ErrInvalid)
		expectError(t, eventsourcing.Tell(t.Context(), zero, act{f: recall}), eventsourcing.ErrInvalid)
		expectError(t, eventsourcing.Tell[actor](t.Context(), s.actors.Ref("1"), nil), eventsourcing.ErrInvalid)
		if zero.String() != "nobody" || s.actors.Ref("7").String() != "actor|7" || s.actors.Ref("7").ID() != "7" {
			t.Errorf("references print as %v and %v", zero, s.actors.Ref("7"))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = eventsourcing.Ask(ended, s.actors.Ref("new"), act{f: recall})
		expectError(t, err, context.Canceled)
		expectError(t, eventsourcing.Tell(ended, s.actors.Ref("new"), act{f: recall}), context.Canceled)
	})
}

// TestContextEndsBeforeHandled checks a command whose context ends before the command is handled:
// the command is skipped, and its error does not match ErrOutcomeUnknown.
func TestContextEndsBeforeHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		recovery := s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.askOf(ctx, "1", addLines("late"))
		expectError(t, err, context.DeadlineExceeded)
		if errors.Is(err, eventsourcing.ErrOutcomeUnknown) {
			t.Errorf("the error %v matches ErrOutcomeUnknown, but the command was not handled", err)
		}
		recovery.Release()
		expect(t, s.mustAsk(recall), nil, "")
		s.expectStored()

		// The error also matches the cause of the cancellation.
		recovery = s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest, ID: "actor|2", Do: journaltest.Stall})
		why := errors.New("the user closed the page")
		caused, cancelCause := context.WithCancelCause(t.Context())
		wait := later(func() (string, error) { return s.askOf(caused, "2", addLines("late")) })
		synctest.Wait()
		cancelCause(why)
		_, err = wait()
		expectError(t, err, why, context.Canceled)
		recovery.Release()
	})
}

// TestContextEndsWhileHandled checks a command whose context ends during its write: the error
// matches ErrOutcomeUnknown.
func TestContextEndsWhileHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(recall)
		write := s.journal.Inject(journaltest.Fault{Do: journaltest.Stall})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.askOf(ctx, "1", addLines("slow"))
		expectError(t, err, context.DeadlineExceeded, eventsourcing.ErrOutcomeUnknown)
		if eventsourcing.StatusOf(err).Code != "refold/outcome_unknown" {
			t.Errorf("the code of the error is %q, want refold/outcome_unknown", eventsourcing.StatusOf(err).Code)
		}
		write.Release()
		expect(t, s.mustAsk(recall), nil, "slow")
		s.expectStored("slow")
	})
}

// TestUnknownOutcomeWaits checks that callers wait while the journal can't be reached, and that a
// caller without a deadline receives the outcome.
func TestUnknownOutcomeWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		defer s.close()
		s.mustAsk(recall)
		lost := s.journal.Inject(journaltest.Fault{Do: journaltest.Store, Err: fmt.Errorf("cut: %w", journal.ErrUnavailable)})
		s.journal.Inject(journaltest.Fault{Times: 3}) // the next three appends, which are fences, fail
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		patient := later(func() (string, error) { return s.ask(addLines("done")) })
		<-lost.Struck()
		reader := later(func() (string, error) { return s.askOf(impatient, "1", recall) })
		_, err := reader()
		expectError(t, err, context.DeadlineExceeded)
		text, err := patient()
		expect(t, text, err, "done")
		expect(t, s.mustAsk(recall), nil, "done")
		s.expectStored("done")
	})
}

// TestTell checks that Tell does not wait, keeps the order, and that failures are reported to the
// observer.
func TestTell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t).open()
		for i := range 50 {
			s.tell(addLines(fmt.Sprint(i)))
		}
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Refuse(errNoLine) })
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Reply("") })
		s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Unhandled() })
		s.mustAsk(recall)
		s.close()
		for i, text := range s.stored() {
			if text != fmt.Sprint(i) {
				t.Fatalf("line %d is %q, want %d", i, text, i)
			}
		}
		if len(s.dropped) != 2 || !errors.Is(s.dropped[0].Err, errNoLine) || !errors.Is(s.dropped[1].Err, eventsourcing.ErrUnhandled) {
			t.Errorf("reported as dropped: %v", s.dropped)
		}
		expectError(t, eventsourcing.Tell(t.Context(), s.actors.Ref("1"), act{f: recall}), eventsourcing.ErrStopped)
		_, err := s.ask(recall)
		expectError(t, err, eventsourcing.ErrStopped)
	})
}

// TestCodes checks that every error of Refold keeps its code.
func TestCodes(t *testing.T) {
	t.Parallel()
	for code, err := range map[string]error{
		"refold/unhandled":         eventsourcing.ErrUnhandled,
		"refold/no_reply":          eventsourcing.ErrNoReply,
		"refold/stash_full":        eventsourcing.ErrStashFull,
		"refold/stopped":           eventsourcing.ErrStopped,
		"refold/conflict":          &journal.ConflictError{},
		"refold/rejected":          &journal.RejectedError{Reason: io.EOF},
		"refold/not_stored":        fmt.Errorf("%w: %w", eventsourcing.ErrNotStored, io.EOF),
		"refold/partly_stored":     fmt.Errorf("%w: %w", eventsourcing.ErrPartlyStored, journal.ErrRejected),
		"refold/outcome_unknown":   fmt.Errorf("%w: %w", eventsourcing.ErrOutcomeUnknown, context.DeadlineExceeded),
		"refold/read_only":         eventsourcing.ErrReadOnly,
		"refold/history_gap":       &journal.GapError{},
		"refold/not_registered":    codec.ErrNotRegistered,
		"refold/panic":             &eventsourcing.PanicError{},
		"refold/deadline_exceeded": context.DeadlineExceeded,
		"refold/canceled":          context.Canceled,
		"internal":                 io.EOF,
	} {
		if got := eventsourcing.StatusOf(fmt.Errorf("while asking: %w", err)).Code; got != code {
			t.Errorf("the code of %v is %q, want %q", err, got, code)
		}
	}
}

// TestNotDone checks the table of the package documentation.
func TestNotDone(t *testing.T) {
	t.Parallel()
	ended := errors.New("eventsourcing: not handled")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errNoLine, false},
		{eventsourcing.NewRefusal("a/b", "no"), false},
		{fmt.Errorf("%w: %w", eventsourcing.ErrNotStored, eventsourcing.NewRefusal("a/b", "no")), true}, // no handler has returned it
		{fmt.Errorf("%w: %w", eventsourcing.ErrPartlyStored, &journal.RejectedError{}), false},
		{fmt.Errorf("%w: %w", eventsourcing.ErrPartlyStored, &eventsourcing.PanicError{}), false},
		{&eventsourcing.PanicError{}, true},
		{eventsourcing.ErrNoReply, false},
		{fmt.Errorf("%w: %w", eventsourcing.ErrNoReply, eventsourcing.ErrStopped), false},
		{eventsourcing.ErrWrongReply, false},
		{eventsourcing.ErrUnhandled, true},
		{eventsourcing.ErrStashFull, true},
		{eventsourcing.ErrClosed, true},
		{eventsourcing.ErrStopped, true},
		{&journal.ConflictError{}, true},
		{&journal.RejectedError{}, true},
		{fmt.Errorf("%w: %w", eventsourcing.ErrNotStored, io.EOF), true},
		{fmt.Errorf("%w: %w", eventsourcing.ErrOutcomeUnknown, context.DeadlineExceeded), false},
		{fmt.Errorf("%w: %w", ended, context.DeadlineExceeded), true},
		{fmt.Errorf("%w: %w", ended, context.Canceled), true},
		{eventsourcing.ErrReadOnly, true},
		{eventsourcing.ErrNoJournal, true},
		{eventsourcing.ErrUnknownType, true},
		{eventsourcing.ErrInvalid, true},
		{eventsourcing.ErrRecoveryTimeout, true},
		{&journal.GapError{}, true},
		{io.EOF, false},
	} {
		if got := eventsourcing.NotDone(c.err); got != c.want {
			t.Errorf("NotDone(%v) is %t", c.err, got)
		}
	}
}
