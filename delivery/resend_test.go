// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// sink is an entity that records the arrival times of deliveries and answers none.
type sink struct{ log *log }

// log records the messages that sinks receive.
type log struct {
	began time.Time
	mu    sync.Mutex
	got   []arrival
}

type arrival struct {
	delivery.Header
	at     time.Duration
	amount int
}

// Drip is a delivery to a sink.
type Drip struct {
	eventsourcing.Command[sink, int]
	delivery.Header
	Amount int
}

func (s *sink) drip(ctx *eventsourcing.Context[sink, Event, int], c Drip) eventsourcing.Decision[sink, Event, int] {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.got = append(s.log.got, arrival{Header: c.Header, at: time.Since(s.log.began), amount: c.Amount})
	return ctx.ReplyLater()
}

// hostSink hosts sinks and returns the log of their messages.
func hostSink(t *testing.T, rt *eventsourcing.Runtime) *log {
	t.Helper()
	l := &log{began: time.Now()}
	_, err := eventsourcing.Host(rt, eventsourcing.Type[sink, Event]{
		Name:     "sink",
		New:      func(string) *sink { return &sink{log: l} },
		Commands: eventsourcing.Commands(eventsourcing.On("", (*sink).drip)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// take waits until the runtime is idle and returns the messages since the last call.
func (l *log) take() []arrival {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.got
	l.got = nil
	return got
}

// want compares the messages since the last call, as "number@seconds".
func (l *log) want(t *testing.T, subject string, want ...string) {
	t.Helper()
	var got []string
	for _, a := range l.take() {
		got = append(got, fmt.Sprintf("%d@%g", a.Nr, a.at.Seconds()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v arrived, want %v", subject, got, want)
	}
}

// sender is an entity that delivers messages to a sink on command.
type sender struct {
	Out   delivery.Outbox[Drip]
	probe *probe `refold:"-"`
}

type (
	Post struct { // is answered with the number of the last delivery
		eventsourcing.Command[sender, uint64]
		N int
	}
	Drop struct { // the reply reports whether the delivery was unconfirmed
		eventsourcing.Command[sender, bool]
		Nr uint64
	}
	Posted  struct{ N int }
	Dropped struct{ Nr uint64 }
)

func (Posted) isEvent()  {}
func (Dropped) isEvent() {}

func (s *sender) post(ctx *eventsourcing.Context[sender, Event, uint64], c Post) eventsourcing.Decision[sender, Event, uint64] {
	if err := s.Out.Room(c.N); err != nil {
		return ctx.Refuse(err)
	}
	return ctx.Persist(Posted{c.N}).ReplyFunc(func() (nr uint64) {
		for d := range s.Out.All() {
			nr = d.Nr
		}
		return nr
	})
}

func (s *sender) drop(ctx *eventsourcing.Context[sender, Event, bool], c Drop) eventsourcing.Decision[sender, Event, bool] {
	_, pending := s.Out.Pending(c.Nr)
	return ctx.Persist(Dropped{c.Nr}).Reply(pending)
}

type (
	senderCtx    = eventsourcing.Context[sender, Event, eventsourcing.None]
	senderEffect = eventsourcing.Effect[sender, Event, eventsourcing.None]
)

func (s *sender) answered(ctx *senderCtx, a delivery.Answered[Drip, int]) senderEffect {
	s.probe.record(ctx.ID(), a)
	return ctx.Effect
}

func (s *sender) unconfirmed(ctx *senderCtx, u delivery.Unconfirmed[Drip]) senderEffect {
	s.probe.record(ctx.ID(), u)
	return ctx.Effect
}

func (s *sender) out() *delivery.Outbox[Drip] { return &s.Out }

func (s *sender) apply(event Event) {
	switch e := event.(type) {
	case Posted:
		for range e.N {
			s.Out.Deliver(eventsourcing.Address{Type: "sink", ID: "1"}, Drip{Amount: e.N})
		}
	case Dropped:
		s.Out.Confirm(e.Nr)
	}
}

func senderType(p *probe) eventsourcing.Type[sender, Event] {
	return eventsourcing.Type[sender, Event]{
		Name:     "sender",
		New:      func(string) *sender { return &sender{probe: p} },
		Commands: eventsourcing.Commands(eventsourcing.On("", (*sender).post), eventsourcing.On("", (*sender).drop)),
		Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*sender).unconfirmed)),
		Parts:    eventsourcing.Parts(delivery.SendsWith("Out", (*sender).out, p.options, (*sender).answered)),
		Apply:    (*sender).apply,
		Events:   codec.Types(codec.Name[Posted]("posted"), codec.Name[Dropped]("dropped")),
	}
}

// TestIntervalsIgnoreTheWallClock checks that steps of the wall clock do not change the times of
// transmissions.
func TestIntervalsIgnoreTheWallClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Int64
		cfg := eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Now: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }}
		b := openBank(t, cfg, senderType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime)
		ask(t, b, "a", Post{N: 1})
		got.want(t, "at once", "1@0")
		off.Store(int64(-time.Hour))
		time.Sleep(6 * time.Second)
		got.want(t, "set back", "1@5")
		off.Store(int64(time.Hour))
		time.Sleep(5 * time.Second)
		got.want(t, "set forward", "1@10")
		ask(t, b, "a", Drop{Nr: 1})
	})
}

// TestIntervals checks that a delivery is sent at once, and again when the last transmission is an
// interval old, with a precision of half an interval.
func TestIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)}, senderType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime)
		ask(t, b, "a", Post{N: 1})
		got.want(t, "at once", "1@0")
		time.Sleep(time.Second)
		ask(t, b, "a", Post{N: 1}) // between two ticks
		got.want(t, "at once", "2@1")
		time.Sleep(14 * time.Second)
		got.want(t, "resent", "1@5", "2@7.5", "1@10", "2@12.5", "1@15")
		if was := ask(t, b, "a", Drop{Nr: 1}); !was {
			t.Error("delivery 1 was not unconfirmed before Drop")
		}
		ask(t, b, "a", Drop{Nr: 2})
		time.Sleep(time.Hour)
		got.want(t, "confirmed")
		time.Sleep(time.Second)
		ask(t, b, "a", Post{N: 1})
		time.Sleep(6 * time.Second)
		got.want(t, "the next one", "3@3616", "3@3621")
	})
}

// TestSendsWaitForDurableEvents checks that a message is sent only after its event is durable, and
// never if the write fails.
func TestSendsWaitForDurableEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := journaltest.NewFaulty(inmem.NewJournal())
		b := openBank(t, eventsourcing.Config{Store: store.Of(j, nil)}, senderType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime)
		stall := j.Inject(journaltest.Fault{Do: journaltest.Stall})
		go func() { _, _ = eventsourcing.Ask(context.Background(), b.Ref("a"), Post{N: 1}) }()
		time.Sleep(2 * time.Second)
		got.want(t, "while the write hangs")
		stall.Release()
		got.want(t, "stored", "1@2")

		j.Inject(journaltest.Fault{Do: journaltest.Reject})
		if _, err := eventsourcing.Ask(context.Background(), b.Ref("a"), Post{N: 1}); err == nil {
			t.Error("Post returned nil, want the rejection of its write")
		}
		ask(t, b, "a", Post{N: 2}) // another delivery, with the number of the rejected one
		var after []string
		for _, a := range got.take() {
			after = append(after, fmt.Sprintf("%d of %d", a.Nr, a.amount))
		}
		// The instance was recovered, so the first delivery is sent again.
		if want := []string{"1 of 1", "2 of 2", "3 of 2"}; !slices.Equal(after, want) {
			t.Errorf("after a rejection: %v arrived, want %v", after, want)
		}
	})
}

// TestNoResendsWithoutJournal checks that deliveries are not sent again while their sender can't store the
// outcome of a write: the answers would wait in the sender without a limit.
func TestNoResendsWithoutJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := journaltest.NewFaulty(inmem.NewJournal())
		b := openBank(t, eventsourcing.Config{Store: store.Of(j, nil)}, senderType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime)
		ask(t, b, "a", Post{N: 1})
		got.want(t, "at once", "1@0")
		j.Inject(journaltest.Fault{Times: -1}) // each write, also those of fences
		answered := make(chan error, 1)
		go func() {
			_, err := eventsourcing.Ask(context.Background(), b.Ref("a"), Post{N: 1})
			answered <- err
		}()
		time.Sleep(10 * time.Minute)
		got.want(t, "while the journal is down")
		j.Reset()
		if err := <-answered; err == nil {
			t.Error("Post returned nil, want the error of its write")
		}
		time.Sleep(time.Minute) // longer than the pause before the recovery
		if again := got.take(); len(again) == 0 || again[0].Nr != 1 {
			t.Errorf("after the recovery: %v arrived, want delivery 1", again)
		}
		ask(t, b, "a", Drop{Nr: 1})
	})
}

// TestRecoveryAndBursts checks that a recovery sends unconfirmed deliveries in order, in bursts,
// and before new ones.
func TestRecoveryAndBursts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		p := &probe{options: delivery.Options{Burst: 2}}
		b := openBank(t, eventsourcing.Config{Store: store.Of(j, nil)}, senderType(p), eventsourcing.HostOptions{})
		got := hostSink(t, b.runtime)
		ask(t, b, "a", Post{N: 5})
		ask(t, b, "a", Drop{Nr: 2})
		got.want(t, "at once, no burst", "1@0", "2@0", "3@0", "4@0", "5@0")
		b.close(t)

		b = openBank(t, eventsourcing.Config{Store: store.Of(j, nil)}, senderType(p), eventsourcing.HostOptions{})
		defer b.close(t)
		got = hostSink(t, b.runtime)
		if nr := ask(t, b, "a", Post{N: 1}); nr != 6 {
			t.Errorf("the delivery after the recovery has number %d, want 6", nr)
		}
		got.want(t, "recovered", "1@0", "3@0", "6@0")
		time.Sleep(13 * time.Second)
		got.want(t, "bursts", "4@2.5", "5@2.5", "1@5", "3@5", "4@7.5", "6@7.5", "1@10", "5@10", "3@12.5", "4@12.5")
	})
}

// TestBurstsReachAllDeliveries checks that each burst continues after the last delivery of the
// previous one.
func TestBurstsReachAllDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &probe{options: delivery.Options{Burst: 2}}
		b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)}, senderType(p), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime)
		ask(t, b, "a", Post{N: 7})
		time.Sleep(13 * time.Second)
		got.want(t, "bursts", "1@0", "2@0", "3@0", "4@0", "5@0", "6@0", "7@0",
			"1@5", "2@5", "3@7.5", "4@7.5", "5@10", "6@10", "1@12.5", "7@12.5")
	})
}

// TestWarnings checks that the sixth transmission of a delivery causes a warning, once per start of
// the entity.
func TestWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var warned []string
		p := &probe{signal: func(_ string, s eventsourcing.Signal) {
			if u, ok := s.(delivery.Unconfirmed[Drip]); ok {
				for _, d := range u.Deliveries {
					warned = append(warned, fmt.Sprintf("%d to %v (%d) after %d @%g", d.Nr, d.To, d.Message.Amount, d.Attempts, time.Since(began).Seconds()))
				}
			}
		}}
		b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)}, senderType(p), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime)
		ask(t, b, "a", Post{N: 2})
		time.Sleep(61 * time.Second)
		if n := len(got.take()); n != 2*13 {
			t.Errorf("%d deliveries arrived, want 26", n)
		}
		want := []string{"1 to sink|1 (2) after 6 @25", "2 to sink|1 (2) after 6 @25"}
		if !slices.Equal(warned, want) {
			t.Errorf("the warnings name %v, want %v", warned, want)
		}
	})
}

// TestDestinationAppearsLater checks that the destination is looked up at each transmission.
func TestDestinationAppearsLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)}, senderType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		ask(t, b, "a", Post{N: 1})
		time.Sleep(7 * time.Second)
		got := hostSink(t, b.runtime)
		time.Sleep(4 * time.Second)
		got.want(t, "later", "1@3")
	})
}

// TestIdleWithUnconfirmed checks that an entity with an unconfirmed delivery is not idle.
func TestIdleWithUnconfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBank(t, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)}, senderType(&probe{}), eventsourcing.HostOptions{PassivateAfter: 3 * time.Second})
		defer b.close(t)
		got := hostSink(t, b.runtime)
		ask(t, b, "a", Post{N: 1})
		time.Sleep(12 * time.Second)
		got.want(t, "resent", "1@0", "1@5", "1@10")
		ask(t, b, "a", Drop{Nr: 1})
		time.Sleep(12 * time.Second)
		if n := b.Resident(); n != 0 {
			t.Errorf("%d entities are in memory, want none", n)
		}
	})
}

// TestEarlierStateSendsNothing checks that the recovery of an earlier state sends nothing.
func TestEarlierStateSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		b := openBank(t, eventsourcing.Config{Store: store.Of(j, nil)}, senderType(&probe{}), eventsourcing.HostOptions{})
		hostSink(t, b.runtime)
		ask(t, b, "a", Post{N: 1})
		ask(t, b, "a", Drop{Nr: 1})
		b.close(t)

		b = openBank(t, eventsourcing.Config{Store: store.Of(j, nil)}, senderType(&probe{}), eventsourcing.HostOptions{Recovery: eventsourcing.Recovery{UpTo: 1}})
		defer b.close(t)
		got := hostSink(t, b.runtime)
		if _, err := eventsourcing.Ask(context.Background(), b.Ref("a"), Post{N: 1}); err == nil {
			t.Error("Post to an entity in an earlier state returned nil, want an error")
		}
		time.Sleep(time.Minute)
		got.want(t, "earlier state")
	})
}
