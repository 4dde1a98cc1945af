// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

func TestCommandInfo(t *testing.T) {
	t.Parallel()
	r := newRegister()
	l := openLamps(t, eventsourcing.Config{Observer: r.observer()}, nil)
	before := time.Now()
	l.ask(t, marked("ask"), "1", persisting(3))
	i := r.only(t)
	if i.PersistenceID != "lamp|1" || i.Err != nil || i.Attempt != 0 {
		t.Errorf("CommandInfo is %+v, want lamp|1 without an error", i)
	}
	if _, ok := i.Command.(do); !ok {
		t.Errorf("the command in CommandInfo is %T, want do", i.Command)
	}
	if i.Events != 3 || i.SequenceNr != 3 {
		t.Errorf("CommandInfo has %d events and the last sequence number %d, want 3 and 3", i.Events, i.SequenceNr)
	}
	if i.Began.Before(before) || i.Began.After(time.Now()) || i.Duration <= 0 {
		t.Errorf("CommandInfo has Began %v and Duration %v, want Began between %v and now, and a positive Duration", i.Began, i.Duration, before)
	}
	if got := nameIn(i.Context); got != "ask+" {
		t.Errorf("the context has the name %q, want ask+", got)
	}
	if b := r.begun[0]; b.Duration != 0 || nameIn(b.Context) != "ask" || !b.Began.Equal(i.Began) {
		t.Errorf("Begin received %+v, want Duration 0, the name ask in the context, and Began %v", b, i.Began)
	}
}

func TestEachAskIsObserved(t *testing.T) {
	t.Parallel()
	r := newRegister()
	l := openLamps(t, eventsourcing.Config{Observer: r.observer()}, nil)
	for n := range 10 { // the asks reuse the memory of earlier calls
		l.ask(t, marked("ask"), "1", persisting(1))
		if len(r.begun) != n+1 || len(r.all()) != n+1 {
			t.Fatalf("after ask %d, %d commands began and %d ended", n+1, len(r.begun), len(r.all()))
		}
	}
}

func TestEventCountOfCommand(t *testing.T) {
	t.Parallel()
	r := newRegister()
	l := openLamps(t, eventsourcing.Config{Observer: r.observer()}, nil)
	l.ask(t, marked("ask"), "1", do{f: func(ctx *lampCtx, c do) lampDecision {
		return ctx.Persist(switched{}).And(ctx.Persist(switched{}, switched{})).ThenReply(func(ctx *lampCtx) lampDecision {
			return ctx.Persist(switched{}).Reply(0)
		})
	}})
	if i := r.only(t); i.Events != 4 || i.SequenceNr != 4 {
		t.Errorf("CommandInfo has %d events and the last sequence number %d, want 4 and 4", i.Events, i.SequenceNr)
	}
}

func TestRepeatedDecisionIsObservedOnce(t *testing.T) {
	t.Parallel()
	r := newRegister()
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	l := openLamps(t, eventsourcing.Config{Store: store.Of(faulty, nil), Observer: r.observer()}, nil)
	l.ask(t, marked("first"), "1", persisting(1))
	fault := faulty.Inject(journaltest.Fault{Do: journaltest.Stall})
	l.tell(t, marked("stalled"), "1", persisting(1))
	<-fault.Struck()
	faulty.Inject(journaltest.Fault{Do: journaltest.Reject})
	l.tell(t, marked("rejected"), "1", persisting(1))
	l.tell(t, marked("again"), "1", persisting(2))
	fault.Release()
	r.wait(4)
	for _, i := range r.all() {
		want, nr := 1, uint64(0)
		switch name := nameIn(i.Context); name {
		case "first+":
			nr = 1
		case "stalled+":
			nr = 2
		case "rejected+":
			nr = 3 // this event is not stored
			if !errors.Is(i.Err, eventsourcing.ErrRejected) {
				t.Errorf("%s: %v, want ErrRejected", name, i.Err)
			}
		case "again+":
			want, nr = 2, 4
		}
		if i.Events != want || i.SequenceNr != nr {
			t.Errorf("%s: %d events and the last sequence number %d, want %d and %d", nameIn(i.Context), i.Events, i.SequenceNr, want, nr)
		}
	}
}

// TestEveryCommandEnds checks that the observer receives exactly one Command call after each Begin
// call, whether the command succeeds, fails or is refused.
func TestEveryCommandEnds(t *testing.T) {
	t.Parallel()
	refusal := eventsourcing.NewRefusal("test/no", "no")
	for name, test := range map[string]struct {
		f     func(*lampCtx, do) lampDecision
		tells int // further commands that the command causes
		code  string
	}{
		"reply":     {f: func(ctx *lampCtx, c do) lampDecision { return ctx.Reply(1) }},
		"nothing":   {f: func(ctx *lampCtx, _ do) lampDecision { return ctx.Reply(0) }},
		"zero":      {f: func(*lampCtx, do) lampDecision { return lampDecision{} }},
		"later":     {f: func(ctx *lampCtx, _ do) lampDecision { return ctx.ReplyLater() }},
		"refuse":    {f: func(ctx *lampCtx, _ do) lampDecision { return ctx.Refuse(refusal) }, code: "test/no"},
		"unhandled": {code: "refold/unhandled"},
		"panic":     {f: func(*lampCtx, do) lampDecision { panic("test") }, code: "refold/panic"},
		"stash":     {f: func(ctx *lampCtx, _ do) lampDecision { return ctx.Stash() }, code: "refold/stopped"},
		"twice": {f: func(ctx *lampCtx, c do) lampDecision {
			return ctx.Persist(switched{}).ThenReply(func(ctx *lampCtx) lampDecision { return ctx.Reply(1) })
		}},
		"go": {tells: 1, f: func(ctx *lampCtx, _ do) lampDecision {
			return ctx.Go(func(context.Context) eventsourcing.Message[lamp] { return persisting(1) }).Reply(0)
		}},
		"timer": {tells: 1, f: func(ctx *lampCtx, _ do) lampDecision {
			return ctx.StartTimer("t", time.Microsecond, persisting(1)).Reply(0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegister()
			l := openLamps(t, eventsourcing.Config{Observer: r.observer()}, nil)
			l.tell(t, marked("tell"), "1", do{f: test.f})
			if name != "stash" {
				r.wait(1 + test.tells)
			}
			l.close(t)
			all := r.all()
			if len(all) != len(r.begun) || len(all) != 1+test.tells {
				t.Fatalf("%d commands began, %d ended, want %d", len(r.begun), len(all), 1+test.tells)
			}
			if got := eventsourcing.StatusOf(all[0].Err).Code; got != test.code {
				t.Errorf("the error of the command has the code %q, want %q", got, test.code)
			}
		})
	}
}

func TestCommandEndsWhenInvalid(t *testing.T) {
	t.Parallel()
	r := newRegister()
	l := openLamps(t, eventsourcing.Config{Observer: r.observer()}, nil)
	if _, err := eventsourcing.Ask(marked("bad"), l.Ref("\xff"), persisting(1)); !errors.Is(err, eventsourcing.ErrInvalid) {
		t.Fatalf("Ask: %v, want ErrInvalid", err)
	}
	if i := r.only(t); !errors.Is(i.Err, eventsourcing.ErrInvalid) || nameIn(i.Context) != "bad+" {
		t.Errorf("CommandInfo is %+v, want ErrInvalid and the name bad+", i)
	}
}

func TestCommandEndsWhenCallerLeaves(t *testing.T) {
	t.Parallel()
	r := newRegister()
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	l := openLamps(t, eventsourcing.Config{Store: store.Of(faulty, nil), Observer: r.observer()}, nil)
	fault := faulty.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall}) // the recovery hangs
	ctx, cancel := context.WithCancel(marked("ask"))
	done := make(chan error)
	go func() {
		_, err := eventsourcing.Ask(ctx, l.Ref("1"), persisting(1))
		done <- err
	}()
	<-fault.Struck()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, eventsourcing.ErrOutcomeUnknown) {
		t.Fatalf("Ask: %v, want context.Canceled and a known outcome", err)
	}
	if i := r.only(t); eventsourcing.StatusOf(i.Err).Code != "refold/canceled" || i.Events != 0 {
		t.Errorf("CommandInfo is %+v, want the code refold/canceled and no events", i)
	}
	fault.Release()
	l.ask(t, marked("next"), "1", persisting(1))
	if n := len(r.all()); n != 2 {
		t.Errorf("%d commands ended, want 2", n)
	}
}

func TestCommandEndsWhenMailboxIsFull(t *testing.T) {
	t.Parallel()
	r := newRegister()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: r.observer()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := eventsourcing.HostWith(rt, lampType(nil), eventsourcing.HostOptions{
		StashCapacity: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	busy, free := make(chan struct{}), make(chan struct{})
	hold := do{f: func(ctx *lampCtx, _ do) lampDecision {
		close(busy)
		<-free
		return ctx.Reply(0)
	}}
	if err := eventsourcing.Tell(t.Context(), l.Ref("1"), hold); err != nil {
		t.Fatal(err)
	}
	<-busy
	if err := eventsourcing.Tell(t.Context(), l.Ref("1"), persisting(1)); err != nil {
		t.Fatal(err)
	}
	if n, err := eventsourcing.Ask(t.Context(), l.Ref("1"), persisting(1)); !errors.Is(err, eventsourcing.ErrStashFull) {
		t.Errorf("Ask: %d, %v, want ErrStashFull", n, err)
	}
	if i := r.only(t); !errors.Is(i.Err, eventsourcing.ErrStashFull) || i.Events != 0 {
		t.Errorf("CommandInfo is %+v, want ErrStashFull and no events", i)
	}
	close(free)
	r.wait(3)
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestInspectIsNotObserved(t *testing.T) {
	t.Parallel()
	r := newRegister()
	o := r.observer()
	o.Stashed = func(i eventsourcing.StashInfo) { t.Errorf("%T was reported as stashed", i.Command) }
	l := openLamps(t, eventsourcing.Config{Observer: o}, nil)
	if err := l.Inspect(t.Context(), "1", func(*lamp, uint64) {}); err != nil {
		t.Fatal(err)
	}
	l.close(t)
	if len(r.begun) > 0 || len(r.all()) > 0 {
		t.Errorf("the observer received %+v for Inspect, want no command", r.begun)
	}
}

func TestCommandContext(t *testing.T) {
	t.Parallel()
	l := openLamps(t, eventsourcing.Config{}, nil)
	got := make(chan context.Context, 1)
	read := do{f: func(ctx *lampCtx, c do) lampDecision {
		got <- ctx.Context()
		return ctx.Reply(0)
	}}
	ctx, cancel := context.WithCancelCause(marked("name"))
	l.ask(t, ctx, "1", read)
	if c := <-got; c != ctx {
		t.Errorf("Ask: the handler received the context %v, want that of the caller", c)
	}
	l.tell(t, ctx, "1", read)
	received := <-got
	cancel(errors.New("the caller stopped waiting"))
	if nameIn(received) != "name" || received.Err() != nil || context.Cause(received) != nil {
		t.Errorf("Tell: the handler received the context %v with the cause %v, want the name of the caller and a context that has not ended", received, context.Cause(received))
	}
	derived, stop := context.WithCancel(received)
	defer stop()
	l.close(t)
	<-received.Done()
	<-derived.Done()
	if !errors.Is(context.Cause(received), context.Canceled) {
		t.Errorf("the context of the handler ended with %v, want context.Canceled", context.Cause(received))
	}
}

func TestGoContext(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprint(watched), func(t *testing.T) {
			t.Parallel()
			cfg, during, after := eventsourcing.Config{}, "name", "name"
			if watched {
				cfg.Observer = newRegister().observer()
				during, after = "name+", "name+" // the context of each command has passed through Begin once
			}
			l := openLamps(t, cfg, nil)
			got := make(chan string, 2)
			read := do{f: func(ctx *lampCtx, _ do) lampDecision {
				got <- nameIn(ctx.Context())
				return ctx.Reply(0)
			}}
			l.tell(t, marked("name"), "1", do{f: func(ctx *lampCtx, _ do) lampDecision {
				return ctx.Go(func(ctx context.Context) eventsourcing.Message[lamp] {
					got <- nameIn(ctx)
					return read
				}).Reply(0)
			}})
			if a, b := <-got, <-got; a != during || b != after {
				t.Errorf("the contexts of the Go function and of its command have the names %q and %q, want %q and %q", a, b, during, after)
			}
		})
	}
}

// TestContextsDoNotGrow checks that contexts do not grow in an endless chain of commands.
func TestContextsDoNotGrow(t *testing.T) {
	t.Parallel()
	const rounds = 50
	for name, next := range map[string]func(*lampCtx, eventsourcing.Ref[lamp], do) lampDecision{
		"tell": func(ctx *lampCtx, to eventsourcing.Ref[lamp], c do) lampDecision {
			if err := eventsourcing.Tell(ctx.Context(), to, c); err != nil {
				t.Error(err)
			}
			return ctx.Reply(0)
		},
		"go": func(ctx *lampCtx, _ eventsourcing.Ref[lamp], c do) lampDecision {
			return ctx.Go(func(context.Context) eventsourcing.Message[lamp] { return c }).Reply(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openLamps(t, eventsourcing.Config{}, nil)
			sizes := make(chan int, rounds+1)
			var f func(*lampCtx, do) lampDecision
			n := 0
			f = func(ctx *lampCtx, c do) lampDecision {
				sizes <- len(fmt.Sprint(ctx.Context()))
				if n++; n <= rounds {
					return next(ctx, l.Ref("1"), c)
				}
				return ctx.Reply(0)
			}
			l.tell(t, marked("name"), "1", do{f: f})
			<-sizes
			second := <-sizes
			for range rounds - 1 {
				if size := <-sizes; size != second {
					t.Fatalf("the printed context grew from %d to %d bytes", second, size)
				}
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	signalled := make(chan string, 10)
	wires := map[string]wire{"1": {to: "2", signal: func(ctx *wireCtx) wireEffect {
		signalled <- nameIn(ctx.Context())
		return ctx.Effect
	}}}
	j := inmem.NewJournal()
	r := newRegister()
	l := openLamps(t, eventsourcing.Config{Store: store.Of(j, nil), Observer: r.observer()}, wires)
	l.ask(t, marked("a"), "1", persisting(2))
	l.tell(t, context.Background(), "1", persisting(1))
	r.wait(5) // two commands and three sends
	l.close(t)
	if got, want := metadata(t, j, "lamp|1"), []string{"a+", "a+", "+"}; !slices.Equal(got, want) {
		t.Errorf("the events have the metadata %q, want %q", got, want)
	}
	if got, want := metadata(t, j, "lamp|2"), []string{"a++", "a++", "++"}; !slices.Equal(got, want) {
		t.Errorf("the events of the destination have the metadata %q, want %q", got, want)
	}
	if got := <-signalled; got != "a++" {
		t.Errorf("the context of the signal has the name %q, want a++", got)
	}
	attempts := 0
	for _, i := range r.all() {
		attempts += i.Attempt
	}
	if attempts != 1+2+3 {
		t.Errorf("the sum of the attempts is %d, want 6", attempts)
	}

	// The next incarnation sends the same commands again.
	r = newRegister()
	l = openLamps(t, eventsourcing.Config{Store: store.Of(j, nil), Observer: r.observer()}, wires)
	l.tell(t, context.Background(), "1", do{f: func(ctx *lampCtx, _ do) lampDecision { return ctx.Reply(0) }})
	r.wait(4)
	l.close(t)
	if got, want := metadata(t, j, "lamp|2"), []string{"a++", "a++", "++", "a++", "a++", "++"}; !slices.Equal(got, want) {
		t.Errorf("after a restart the events of the destination have the metadata %q, want %q", got, want)
	}
}

func metadata(t *testing.T, j journal.Journal, id string) (all []string) {
	t.Helper()
	for e, err := range j.Replay(t.Context(), id, 1, journal.MaxSequenceNr) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(e.Metadata))
	}
	return all
}

func TestContextOfRecovery(t *testing.T) {
	t.Parallel()
	got := make(chan eventsourcing.RecoveryInfo, 1)
	o := eventsourcing.Observer{Recovery: func(i eventsourcing.RecoveryInfo) { got <- i }}
	l := openLamps(t, eventsourcing.Config{Observer: o}, nil)
	l.ask(t, marked("asker"), "1", persisting(1))
	if i := <-got; nameIn(i.Context) != "asker" {
		t.Errorf("the recovery caused by Ask has a context with the name %q, want asker", nameIn(i.Context))
	}
	l.tell(t, context.Background(), "2", persisting(1))
	if i := <-got; i.Context == nil || nameIn(i.Context) != "" {
		t.Errorf("the recovery caused by Tell has the context %v, want one without a name", i.Context)
	}
}

func TestCommandsThatWait(t *testing.T) {
	t.Parallel()
	stashed := make(chan eventsourcing.StashInfo, 10)
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	l := openLamps(t, eventsourcing.Config{Store: store.Of(faulty, nil), Observer: eventsourcing.Observer{
		Stashed: func(i eventsourcing.StashInfo) { stashed <- i },
	}}, nil)
	want := func(aside bool) {
		t.Helper()
		if i := <-stashed; i.PersistenceID != "lamp|1" || i.Aside != aside || i.Command == nil {
			t.Errorf("StashInfo is %+v, want a command of lamp|1 with Aside %t", i, aside)
		}
	}
	l.ask(t, context.Background(), "1", persisting(1)) // this command waits for the recovery
	want(false)
	l.ask(t, context.Background(), "1", persisting(1)) // this command does not wait
	put := false
	l.tell(t, context.Background(), "1", do{f: func(ctx *lampCtx, _ do) lampDecision {
		if !put {
			put = true
			return ctx.Stash()
		}
		return ctx.Reply(0)
	}})
	want(true)
	fault := faulty.Inject(journaltest.Fault{Do: journaltest.Stall})
	l.tell(t, context.Background(), "1", do{f: func(ctx *lampCtx, _ do) lampDecision {
		return ctx.UnstashAll().And(ctx.Persist(switched{})).Reply(0)
	}})
	<-fault.Struck()
	l.tell(t, context.Background(), "1", persisting(1)) // UnstashAll makes the previous command a barrier, so this command waits
	want(false)
	fault.Release()
	l.close(t)
	if n := len(stashed); n != 0 {
		t.Errorf("%d more commands were reported as stashed, want 0", n)
	}
}

func TestDroppedCommandIsNotStashed(t *testing.T) {
	t.Parallel()
	stashed := make(chan struct{}, 2*lampStash)
	r := newRegister()
	o := r.observer()
	o.Stashed = func(eventsourcing.StashInfo) { stashed <- struct{}{} }
	faulty := journaltest.NewFaulty(inmem.NewJournal())
	l := openLamps(t, eventsourcing.Config{Store: store.Of(faulty, nil), Observer: o}, nil)
	fault := faulty.Inject(journaltest.Fault{Op: journaltest.OpHighest, Do: journaltest.Stall})
	for range lampStash {
		l.tell(t, t.Context(), "1", persisting(1))
		<-stashed
	}
	<-fault.Struck()
	l.tell(t, t.Context(), "1", persisting(1))
	r.wait(1)
	if i := r.only(t); !errors.Is(i.Err, eventsourcing.ErrStashFull) {
		t.Errorf("got %v, want ErrStashFull", i.Err)
	}
	fault.Release()
	l.close(t)
	if len(stashed) > 0 {
		t.Error("the dropped command was reported as stashed")
	}
}

func TestResident(t *testing.T) {
	t.Parallel()
	l := openLamps(t, eventsourcing.Config{}, nil)
	l.ask(t, t.Context(), "1", persisting(1))
	l.ask(t, t.Context(), "2", persisting(1))
	if got := l.rt.Resident(); len(got) != 1 || got["lamp"] != 2 {
		t.Errorf("Resident returned %v, want 2 lamps", got)
	}
	l.close(t)
	if got := l.rt.Resident(); got["lamp"] != 0 {
		t.Errorf("Resident after Close returned %v, want no lamps", got)
	}
}
