// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

var bob = eventsourcing.Address{Type: "account", ID: "bob"}

// attached returns an outbox as the runtime prepares it.
func attached(t *testing.T, s delivery.Options) *delivery.Outbox[Credit] {
	t.Helper()
	o := &delivery.Outbox[Credit]{}
	delivery.Configure[int](o, s)
	if err := o.Attach("account|alice", "Transfers"); err != nil {
		t.Fatal(err)
	}
	return o
}

// as returns v as a T. It fails the test if v has another type.
func as[T any](t *testing.T, v any) T {
	t.Helper()
	x, ok := v.(T)
	if !ok {
		t.Fatalf("%+v is a %T, want a %T", v, v, x)
	}
	return x
}

func TestNumbersAndHeaders(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	o := attached(t, delivery.Options{})
	o.Recovered(now)
	for i := range uint64(3) {
		o.Applying(i+1, nil)
		by := Credit{Amount: int(i) + 10, Header: delivery.Header{Sender: "another", Nr: 99}}
		if nr := o.Deliver(bob, by); nr != i+1 {
			t.Errorf("Deliver returned the number %d, want %d", nr, i+1)
		}
	}
	o.Durable(1, now)
	o.Applying(4, nil)
	if !o.Confirm(1) || o.Confirm(1) || o.Confirm(4) || o.Confirm(0) {
		t.Error("Confirm returned false for delivery 1, or true for a confirmed or unknown delivery")
	}
	if n := o.Unconfirmed(); n != 2 {
		t.Errorf("%d are unconfirmed, want 2", n)
	}
	var got []string
	for _, s := range o.Durable(4, now).Sends {
		c := as[Credit](t, s.Command)
		got = append(got, fmt.Sprintf("%v %+v %d", eventsourcing.Address{Type: s.Type, ID: s.ID}, c.Header, c.Amount))
	}
	want := []string{
		"account|bob {Sender:account|alice#Transfers Nr:2 Floor:2} 11",
		"account|bob {Sender:account|alice#Transfers Nr:3 Floor:2} 12",
	}
	if !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	d, ok := o.Pending(3)
	if _, gone := o.Pending(1); !ok || gone || d.Nr != 3 || d.To != bob || d.Message.Amount != 12 || d.Attempts != 1 || d.Message.Header != (delivery.Header{}) {
		t.Errorf("Pending(3) is %+v, %v, want delivery 3 to bob", d, ok)
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	o := attached(t, delivery.Options{MaxUnconfirmed: 3})
	for n, fits := range map[int]bool{0: true, 3: true, 4: false} {
		if err := o.Room(n); (err == nil) != fits || err != nil && !errors.Is(err, delivery.ErrFull) {
			t.Errorf("Room(%d) with a maximum of 3 is %v, want ErrFull: %t", n, err, !fits)
		}
	}
	for range 4 { // an event can't be refused
		o.Deliver(bob, Credit{})
	}
	if n := o.Unconfirmed(); n != 4 {
		t.Errorf("%d deliveries are kept, want 4", n)
	}
	if err := o.Room(1); !errors.Is(err, delivery.ErrFull) || !strings.Contains(err.Error(), "account|alice#Transfers: no room for 1 deliveries, 4 of at most 3 are unconfirmed") {
		t.Errorf("Room(1) beyond the maximum is %v, want ErrFull", err)
	}
	o.Confirm(1)
	o.Confirm(2)
	if err := o.Room(1); err != nil {
		t.Errorf("Room(1) with 2 of 3 unconfirmed is %v, want nil", err)
	}
	if _, refused := errors.AsType[*eventsourcing.Refusal](delivery.ErrFull); refused {
		t.Error("ErrFull is a refusal, so a sender would take it for a decision")
	}
	var zero delivery.Outbox[Credit]
	if err := zero.Room(100_000); err != nil {
		t.Errorf("Room(100000) of the zero outbox is %v, want nil", err)
	}
	if err := zero.Room(100_001); err == nil {
		t.Error("Room(100001) of the zero outbox is nil, want ErrFull")
	}
}

// TestAnswers checks that only a decision of the destination is an answer.
func TestAnswers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	o := attached(t, delivery.Options{})
	o.Recovered(now)
	o.Applying(1, nil)
	nr := o.Deliver(bob, Credit{Amount: 5})
	first := o.Durable(1, now).Sends[0]
	second := o.Tick(o.Next().Add(time.Hour)).Sends[0]

	s, ok := second.Answered(42, nil).(delivery.Answered[Credit, int])
	if !ok || s.Nr != nr || s.To != bob || s.Message.Amount != 5 || s.Message.Nr != nr || s.Attempt != 2 || s.Value != 42 || s.Err != nil {
		t.Errorf("the signal of the answer is %+v, want delivery %d to bob", s, nr)
	}
	refusal := fmt.Errorf("no: %w", errLocked)
	r, ok := first.Answered(1, refusal).(delivery.Answered[Credit, int])
	if !ok || !errors.Is(r.Err, errLocked) || r.Value != 0 || r.Attempt != 1 {
		t.Errorf("the signal of the refusal is %+v, want errLocked and attempt 1", r)
	}
	if !o.Admit(s) || !o.Admit(r) {
		t.Error("Admit dropped an answer to an unconfirmed delivery")
	}
	if !o.Admit(eventsourcing.RecoveryCompleted{}) {
		t.Error("Admit dropped a signal of the runtime")
	}
	other := s
	other.Message.Sender = "account|alice#Others"
	o.Applying(2, nil)
	o.Confirm(nr)
	if o.Admit(s) || o.Admit(r) {
		t.Error("Admit accepted an answer to a confirmed delivery")
	}
	if !o.Admit(other) {
		t.Error("Admit dropped an answer to another outbox")
	}
}

func TestRepliesWithoutDecision(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for _, err := range []error{
		eventsourcing.ErrStopped, eventsourcing.ErrNotStored, eventsourcing.ErrOutcomeUnknown,
		eventsourcing.ErrStashFull, eventsourcing.ErrUnknownType, eventsourcing.ErrConflict,
		eventsourcing.ErrRejected, eventsourcing.ErrUnhandled, eventsourcing.ErrNoReply,
		eventsourcing.ErrReadOnly, &eventsourcing.PanicError{}, context.DeadlineExceeded, context.Canceled,
		errors.New("anything"), delivery.ErrFull,
		// Refusals that no handler has returned.
		&eventsourcing.RecoveryFailed{Err: fmt.Errorf("upcast: %w", errCodec)}, fmt.Errorf("%w: decode the command: %w", eventsourcing.ErrInvalid, errCodec),
		&journal.RejectedError{ID: "a", Reason: errCodec}, &eventsourcing.PanicError{Value: errCodec}, fmt.Errorf("%w: %w", eventsourcing.ErrStopped, errCodec),
		// Forms of errors that another node returned.
		eventsourcing.NewRefusal("internal", "anything"), eventsourcing.NewRefusal("refold/not_stored", "not stored"),
	} {
		o := attached(t, delivery.Options{WarnAfter: 1})
		o.Recovered(now)
		o.Applying(1, nil)
		o.Deliver(bob, Credit{})
		o.Deliver(bob, Credit{})
		s := o.Durable(1, now).Sends[0].Answered(nil, err)
		if _, ok := s.(delivery.Answered[Credit, int]); ok || o.Admit(s) {
			t.Errorf("the reply %v was treated as an answer", err)
		}
		if d, _ := o.Pending(1); !errors.Is(d.Err, err) {
			t.Errorf("the error of delivery 1 is %v, want %v", d.Err, err)
		}
		warned := as[delivery.Unconfirmed[Credit]](t, o.Tick(now.Add(time.Minute)).Signals[0])
		if len(warned.Deliveries) != 2 || !errors.Is(warned.Deliveries[0].Err, err) || warned.Deliveries[1].Err != nil {
			t.Errorf("the warning is %+v, want delivery 1 with %v and delivery 2 without an error", warned, err)
		}
		o.Confirm(1)
		if o.Admit(s) {
			t.Errorf("Admit accepted %v after the confirmation", err)
		}
	}
}

type unstorable struct {
	eventsourcing.Command[functions, int]
	delivery.Header
	F func()
}

var errCodec = eventsourcing.NewRefusal("money/currency", "unknown currency")

// The states below have a mistake each.
type (
	functions struct{ Out delivery.Outbox[unstorable] }
	hidden    struct {
		out delivery.Outbox[Credit] //nolint:unused // the mistake
	}
	pointed struct{ Out *delivery.Outbox[Credit] }
	nested  struct {
		Parts struct{ Out [2]delivery.Outbox[Credit] }
	}
	forgotten struct{ Out delivery.Outbox[Credit] }
)

func host[S any](parts ...eventsourcing.Part[S, Event]) func(*eventsourcing.Runtime) error {
	return func(rt *eventsourcing.Runtime) error {
		_, err := eventsourcing.Host(rt, eventsourcing.Type[S, Event]{Name: "x", Parts: parts})
		return err
	}
}

// ignore is a handler of answers.
func ignore[S any, M delivery.Message, R any](
	_ *S, ctx *eventsourcing.Context[S, Event, eventsourcing.None], _ delivery.Answered[M, R],
) eventsourcing.Effect[S, Event, eventsourcing.None] {
	return ctx.Effect
}

// TestHostReportsMistakes checks that mistakes are reported when the type is hosted.
func TestHostReportsMistakes(t *testing.T) {
	t.Parallel()
	other := &delivery.Outbox[Credit]{}
	for want, hostType := range map[string]func(rt *eventsourcing.Runtime) error{
		"the field out of":             host[hidden](),
		"the field Out of":             host[pointed](),
		"the field Parts of":           host[nested](),
		"needs an entry in Type.Parts": host[forgotten](),
		"is not a field of":            host(delivery.Sends("Out", func(*sink) *delivery.Outbox[Credit] { return other }, ignore[sink, Credit, int])),
		"has two handlers": host(
			delivery.Sends("Out", func(f *forgotten) *delivery.Outbox[Credit] { return &f.Out }, ignore[forgotten, Credit, int]),
			delivery.Sends("Again", func(f *forgotten) *delivery.Outbox[Credit] { return &f.Out }, func(
				_ *forgotten, ctx *eventsourcing.Context[forgotten, Event, eventsourcing.None], _ delivery.Answered[Credit, int],
			) eventsourcing.Effect[forgotten, Event, eventsourcing.None] {
				return ctx.Effect
			})),
		"can't be stored": host(delivery.Sends("Out", func(f *functions) *delivery.Outbox[unstorable] { return &f.Out }, ignore[functions, unstorable, int])),
		"Options.Interval is 1ns": host(delivery.SendsWith("Transfers", (*Account).transfers,
			delivery.Options{Interval: 1, Burst: -1, WarnAfter: -1, MaxUnconfirmed: -1}, ignore[Account, Credit, int])),
	} {
		rt, err := eventsourcing.Open(eventsourcing.Config{})
		if err != nil {
			t.Fatal(err)
		}
		err = hostType(rt)
		if !errors.Is(err, eventsourcing.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("hosting the type returned %v, want ErrInvalid with %q", err, want)
		}
		if strings.HasPrefix(want, "Options") {
			for _, field := range []string{"Transfers", "Options.Burst is -1", "Options.WarnAfter is -1", "Options.MaxUnconfirmed is -1"} {
				if !strings.Contains(err.Error(), field) {
					t.Errorf("the error is %v, want one that contains %q", err, field)
				}
			}
		}
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRecordedRefusal checks that a recorded refusal is also the answer to a later transmission of
// the same delivery, even if the destination would accept the delivery now.
func TestRecordedRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)}, accountType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		ask(t, b, "bob", Lock{Locked: true})
		h := delivery.Header{Sender: "account|alice#Transfers", Nr: 1, Floor: 1}
		for range 2 {
			if _, err := eventsourcing.Ask(t.Context(), b.Ref("bob"), Credit{Header: h, Amount: 5}); !errors.Is(err, errLocked) {
				t.Errorf("the locked account answers %v, want errLocked", err)
			}
			ask(t, b, "bob", Lock{Locked: false})
		}
		if got := ask(t, b, "bob", Credit{Header: delivery.Header{Sender: h.Sender, Nr: 2, Floor: 2}, Amount: 7}); got != 7 {
			t.Errorf("the balance is %d, want 7", got)
		}
	})
}

// TestLateAnswers checks that a delivery whose sender ignores the answers is sent again at each
// interval, and carried out only once.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var answers atomic.Int64
		p := &probe{signal: func(_ string, s eventsourcing.Signal) {
			if _, ok := s.(delivery.Answered[Credit, int]); ok {
				answers.Add(1)
			}
		}}
		b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)}, accountType(p), eventsourcing.HostOptions{})
		defer b.close(t)
		ask(t, b, "alice", Deposit{Amount: 100})
		p.ignores.Store(true)
		nr := ask(t, b, "alice", Transfer{To: "bob", Amount: 30})
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if got := ask(t, b, "alice", Lookup{}); nr != 1 || answers.Load() != 3 || got.Unconfirmed != 1 || got.InFlight != 30 {
			t.Errorf("delivery %d, %d answers, state %+v: want delivery 1 unconfirmed after 3 answers", nr, answers.Load(), got)
		}
		p.ignores.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := ask(t, b, "alice", Lookup{}); answers.Load() != 4 || got.Unconfirmed != 0 || got.Balance != 70 || got.InFlight != 0 {
			t.Errorf("%d answers, state %+v: want 4 answers and nothing in flight", answers.Load(), got)
		}
		if got := ask(t, b, "bob", Lookup{}); got.Balance != 30 || got.Senders != 1 {
			t.Errorf("bob has %+v, want 30 once", got)
		}
	})
}
