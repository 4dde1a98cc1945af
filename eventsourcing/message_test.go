// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// A traveller answers in all ways there are, wherever its caller is.
type (
	travelCommand interface {
		eventsourcing.Target[travelCommand]
	}
	travelCtx    = eventsourcing.Context[travelCommand, string]
	travelEffect = eventsourcing.Effect[travelCommand, string]

	// travel is answered as How says.
	travel struct {
		eventsourcing.For[travelCommand, stamp]
		How string
	}
	// chat is answered with what can't be encoded.
	chat struct {
		eventsourcing.For[travelCommand, func()]
	}
	arrive struct {
		eventsourcing.For[travelCommand, stamp]
	}
	stamp struct {
		Place string
		Count int
	}
	traveller struct {
		id     string
		token  eventsourcing.Token[travelCommand]
		closed chan struct{} // when the context of "context" has ended
	}
)

var errVisa = eventsourcing.NewRefusal("travel/visa", "no visa")

func (t *traveller) HandleCommand(ctx *travelCtx, cmd travelCommand) travelEffect {
	switch c := cmd.(type) {
	case chat:
		return ctx.Reply(c.With(func() {}))
	case arrive:
		return ctx.None().Resolve(t.token, c.With(stamp{t.id, 2}))
	case travel:
		switch c.How {
		case "answer":
			return ctx.Reply(c.With(stamp{t.id, 1}))
		case "refuse":
			return ctx.Refuse(errVisa)
		case "explain":
			return ctx.Refuse(fmt.Errorf("to %s: %w", t.id, errVisa))
		case "error":
			return ctx.Refuse(errors.New("lost"))
		case "persist":
			return ctx.Persist("event").Reply(c.With(stamp{}))
		case "panic":
			panic("lost")
		case "later":
			t.token = ctx.Token()
			ctx.Go(func(context.Context) travelCommand { return arrive{} })
			return ctx.None().ReplyLater()
		case "context":
			deadline, ok := ctx.Context().Deadline()
			if !ok || deadline.IsZero() {
				return ctx.Refuse(errors.New("no deadline"))
			}
			context.AfterFunc(ctx.Context(), func() { close(t.closed) })
			return ctx.Reply(c.With(stamp{t.id, 3}))
		case "passivate":
			return ctx.Passivate().Reply(c.With(stamp{t.id, 4}))
		case "wait":
			ctx.StartTimer("wait", time.Hour, arrive{})
			return ctx.Reply(c.With(stamp{}))
		case "stop":
			return ctx.Stop().Reply(c.With(stamp{t.id, 5}))
		}
	}
	return ctx.Unhandled()
}

func (t *traveller) ApplyEvent(string) {}

func travellers(closed chan struct{}) eventsourcing.Type[travelCommand, string] {
	return eventsourcing.Type[travelCommand, string]{
		Name: "traveller",
		New: func(id string) eventsourcing.Aggregate[travelCommand, string] {
			return &traveller{id: id, closed: closed}
		},
	}
}

// abroad hosts travellers in a runtime, and returns a route to them over which everything is encoded.
type abroad struct {
	rt       *eventsourcing.Runtime
	entities *eventsourcing.Entities[travelCommand, string]
	route    *eventsourcing.Route[travelCommand]
	deadline time.Duration
	closed   chan struct{}

	mu   sync.Mutex
	gone []string
}

func goAbroad(t *testing.T) *abroad {
	t.Helper()
	a := &abroad{closed: make(chan struct{})}
	var err error
	if a.rt, err = eventsourcing.Open(eventsourcing.Config{}); err != nil {
		t.Fatal(err)
	}
	a.entities, err = eventsourcing.Host(a.rt, travellers(a.closed), eventsourcing.HostOptions{
		Route: func(m eventsourcing.Message) error { return a.entities.Deliver(m) },
		Gone: func(id string, passivated bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.gone = append(a.gone, fmt.Sprint(id, " ", passivated))
		},
		Busy: func(id string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.gone = append(a.gone, id+" is busy")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var answers eventsourcing.AnswerCodec
	a.route = eventsourcing.NewRoute[travelCommand]("traveller", func(m eventsourcing.Message) error {
		if !m.Take() {
			return nil
		}
		var deadline time.Time
		if a.deadline != 0 {
			deadline = time.Now().Add(a.deadline)
		}
		answered := func(value any, err error) { m.AnswerEncoded(answers.Append(nil, value, err)) }
		there := eventsourcing.NewMessage(context.Background(), m.ID(), m.Command(), deadline, answered)
		if !m.Asked() {
			there = eventsourcing.NewMessage(context.Background(), m.ID(), m.Command(), deadline, nil)
		}
		return a.entities.Deliver(there)
	})
	t.Cleanup(func() {
		if err := a.rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// TestAnswersTravel: a caller on another node gets what one on the same node gets.
func TestAnswersTravel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := goAbroad(t)
		for _, how := range []string{"answer", "refuse", "explain", "error", "persist", "panic", "later", "unknown"} {
			here, errHere := eventsourcing.Ask(t.Context(), a.entities.Ref("rome"), travel{How: how})
			there, errThere := eventsourcing.Ask(t.Context(), a.route.Ref("rome"), travel{How: how})
			if here != there || eventsourcing.Code(errHere) != eventsourcing.Code(errThere) || errors.Is(errHere, errVisa) != errors.Is(errThere, errVisa) ||
				eventsourcing.NotDone(errHere) != eventsourcing.NotDone(errThere) {
				t.Errorf("%s: here %v and %v, there %v and %v", how, here, errHere, there, errThere)
			}
			if errHere != nil && how != "panic" && errHere.Error() != errThere.Error() {
				t.Errorf("%s: the text %q became %q", how, errHere, errThere)
			}
		}
		if _, err := eventsourcing.Ask(t.Context(), a.route.Ref("rome"), chat{}); !errors.Is(err, eventsourcing.ErrNoReply) {
			t.Errorf("an answer that can't be encoded: %v, want ErrNoReply", err)
		}
		if err := eventsourcing.Tell(t.Context(), a.route.Ref("rome"), travel{How: "stop"}); err != nil {
			t.Error(err)
		}
		if _, err := eventsourcing.Ask(t.Context(), a.route.Ref(""), travel{}); !errors.Is(err, eventsourcing.ErrInvalid) {
			t.Errorf("an empty ID: %v", err)
		}
	})
}

// TestCodesTravel: each error of Refold, alone and wrapped together, stays what it is.
func TestCodesTravel(t *testing.T) {
	t.Parallel()
	all := []error{
		eventsourcing.ErrPartlyStored, eventsourcing.ErrNoReply, eventsourcing.ErrUnhandled, eventsourcing.ErrStashFull, eventsourcing.ErrStopped,
		eventsourcing.ErrConflict, eventsourcing.ErrRejected, eventsourcing.ErrNotStored, eventsourcing.ErrOutcomeUnknown, eventsourcing.ErrReadOnly,
		eventsourcing.ErrNoJournal, eventsourcing.ErrWrongReply, eventsourcing.ErrUnknownType, eventsourcing.ErrRecoveryTimeout, eventsourcing.ErrInvalid,
		eventsourcing.ErrClosed, context.DeadlineExceeded, context.Canceled, codec.ErrNotRegistered, &eventsourcing.PanicError{Value: 1}, errVisa, errors.New("x"),
	}
	for _, one := range all {
		for _, other := range append(all, nil) {
			err := one
			if other != nil {
				err = fmt.Errorf("%w, and %w", one, other)
			}
			back := carry(t, err)
			if eventsourcing.Code(back) != eventsourcing.Code(err) || eventsourcing.NotDone(back) != eventsourcing.NotDone(err) {
				t.Errorf("%q has the code %q, not done %v; became %q, %v", err, eventsourcing.Code(err), eventsourcing.NotDone(err), eventsourcing.Code(back), eventsourcing.NotDone(back))
			}
		}
	}
}

// carry returns an error as it is on another node.
func carry(t *testing.T, err error) error {
	t.Helper()
	var answers eventsourcing.AnswerCodec
	_, back := answerWith(t.Context(), answers.Append(nil, nil, err))
	return back
}

// answerWith returns what Ask makes of an encoded answer.
func answerWith(ctx context.Context, data []byte) (stamp, error) {
	route := eventsourcing.NewRoute[travelCommand]("traveller", func(m eventsourcing.Message) error {
		m.AnswerEncoded(data)
		return nil
	})
	return eventsourcing.Ask(ctx, route.Ref("rome"), travel{})
}

func FuzzAnswer(f *testing.F) {
	var answers eventsourcing.AnswerCodec
	f.Add(answers.Append(nil, stamp{"rome", 1}, nil))
	f.Add(answers.Append(nil, nil, nil))
	f.Add(answers.Append(nil, nil, fmt.Errorf("%w: %w", eventsourcing.ErrPartlyStored, errVisa)))
	f.Add(answers.Append(nil, nil, errVisa))
	f.Add([]byte{3, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := answerWith(t.Context(), data)
		if err == nil || errors.Is(err, eventsourcing.ErrWrongReply) {
			return
		}
		again := carry(t, err)
		if eventsourcing.Code(again) != eventsourcing.Code(err) {
			t.Errorf("%q of code %q became %q of code %q", err, eventsourcing.Code(err), again, eventsourcing.Code(again))
		}
	})
}

// TestDeadlineTravels: an entity knows how long its caller waits, and does nothing for one that has left.
func TestDeadlineTravels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := goAbroad(t)
		a.deadline = time.Minute
		if _, err := eventsourcing.Ask(t.Context(), a.route.Ref("rome"), travel{How: "context"}); err != nil {
			t.Fatal(err)
		}
		<-a.closed // at once, as the call was answered
		a.deadline = -time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := eventsourcing.Ask(ctx, a.route.Ref("rome"), travel{How: "answer"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a command that came too late: %v", err)
		}
	})
}

// TestLeavingMemory: the host is told of each entity that has left, whether it has passivated, and of one that has not since it is busy.
func TestLeavingMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := goAbroad(t)
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() { a.mustAsk(t, "passivate") }, "rome true"},
			{func() { a.mustAsk(t, "stop") }, "rome false"},
			{func() { a.mustAsk(t, "answer"); a.entities.Passivate("rome") }, "rome true"},
			{func() { a.mustAsk(t, "wait"); a.entities.Passivate("rome") }, "rome is busy"},
			{func() { a.mustAsk(t, "answer"); a.entities.Drain("rome") }, "rome false"},
			{func() { a.mustAsk(t, "answer"); a.entities.Kill("rome") }, "rome false"},
		} {
			a.gone = nil
			step.do()
			synctest.Wait()
			if len(a.gone) != 1 || a.gone[0] != step.want {
				t.Errorf("gone are %q, want %q", a.gone, step.want)
			}
		}
		if a.entities.Passivate("rome") || a.entities.Drain("rome") || a.entities.Kill("rome") {
			t.Error("one that is not in memory is said to be")
		}
	})
}

func (a *abroad) mustAsk(t *testing.T, how string) {
	t.Helper()
	if _, err := eventsourcing.Ask(t.Context(), a.entities.Ref("rome"), travel{How: how}); err != nil {
		t.Error(how, err)
	}
}

// TestRouteGetsAll: whoever sends a command, it goes through the route, and can be turned away there.
func TestRouteGetsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(t.Context()) //nolint:errcheck // nothing is in flight
		errAway := errors.New("not here")
		var seen []string
		refuse := false
		var entities *eventsourcing.Entities[travelCommand, string]
		entities, err = eventsourcing.Host(rt, travellers(nil), eventsourcing.HostOptions{Route: func(m eventsourcing.Message) error {
			seen = append(seen, fmt.Sprintf("%s %T %v", m.ID(), m.Command(), m.Asked()))
			if refuse {
				return errAway
			}
			return entities.Deliver(m)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := eventsourcing.Ask(t.Context(), entities.Ref("rome"), travel{How: "later"}); err != nil {
			t.Error(err)
		}
		if want := "[rome eventsourcing_test.travel true rome eventsourcing_test.arrive false]"; fmt.Sprint(seen) != want {
			t.Errorf("through the route went %v, want %v", seen, want)
		}
		refuse = true
		if _, err := eventsourcing.Ask(t.Context(), entities.Ref("rome"), travel{How: "later"}); !errors.Is(err, errAway) {
			t.Errorf("the route's error became %v", err)
		}
		wrong := eventsourcing.NewMessage(t.Context(), "rome", 1, time.Time{}, nil)
		if err := entities.Deliver(wrong); !errors.Is(err, eventsourcing.ErrInvalid) {
			t.Errorf("a command of another type: %v", err)
		}
	})
}
