// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
)

// sink is an entity that notes when deliveries come and answers none of them.
type sink struct {
	began time.Time
	got   *[]arrival
}

type arrival struct {
	at time.Duration
	delivery.Header
	amount int
}

func (s *sink) HandleCommand(ctx *Ctx, cmd Command) Effect {
	if c, ok := cmd.(Credit); ok {
		*s.got = append(*s.got, arrival{at: time.Since(s.began), Header: c.Header, amount: c.Amount})
	}
	return ctx.None().NoReply()
}

func (s *sink) ApplyEvent(Event) {}

// hostSink hosts a type of sinks, and returns what they get. It is read when
// everything is quiet.
func hostSink(t *testing.T, rt *eventsourcing.Runtime, name string) *[]arrival {
	t.Helper()
	got, began := new([]arrival), time.Now()
	_, err := eventsourcing.Host(rt, eventsourcing.Type[Command, Event]{
		Name: name,
		New:  func(string) eventsourcing.Aggregate[Command, Event] { return &sink{began: began, got: got} },
	}, eventsourcing.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// sender is an aggregate that delivers what it is told to, to a sink.
type sender struct {
	Out   delivery.Outbox[Credit]
	probe *probe `refold:"-"`
}

type (
	Post struct { // is answered with the number of the last delivery
		eventsourcing.For[Command, uint64]
		N int
	}
	Drop struct { // is answered with whether it was unconfirmed
		eventsourcing.For[Command, bool]
		Nr uint64
	}
	Posted  struct{ N int }
	Dropped struct{ Nr uint64 }
)

func (Posted) isEvent()  {}
func (Dropped) isEvent() {}

func (s *sender) HandleCommand(ctx *Ctx, cmd Command) Effect {
	switch c := cmd.(type) {
	case Post:
		if err := s.Out.Room(c.N); err != nil {
			return ctx.Refuse(err)
		}
		return ctx.Persist(Posted{c.N}).Reply(c.Answer(func() (nr uint64) {
			for d := range s.Out.All() {
				nr = d.Nr
			}
			return nr
		}))
	case Drop:
		_, pending := s.Out.Pending(c.Nr)
		return ctx.Persist(Dropped{c.Nr}).Reply(c.With(pending))
	}
	return ctx.Unhandled()
}

func (s *sender) HandleSignal(ctx *Ctx, signal eventsourcing.Signal) Effect {
	if s.probe.signal != nil {
		s.probe.signal(ctx.ID(), signal)
	}
	return ctx.None()
}

func (s *sender) ApplyEvent(event Event) {
	switch e := event.(type) {
	case Posted:
		for range e.N {
			s.Out.Deliver(eventsourcing.Address{Type: "sink", ID: "1"}, Credit{Amount: e.N})
		}
	case Dropped:
		s.Out.Confirm(e.Nr)
	}
}

func senderType(p *probe) eventsourcing.Type[Command, Event] {
	return eventsourcing.Type[Command, Event]{
		Name: "sender",
		New: func(string) eventsourcing.Aggregate[Command, Event] {
			s := &sender{probe: p}
			s.Out.Configure(p.settings)
			return s
		},
		Events: codec.Types(codec.Name[Posted]("posted"), codec.Name[Dropped]("dropped")),
	}
}

// take returns what came since the last call, as "number@seconds".
func take(got *[]arrival) (out []string) {
	synctest.Wait()
	for _, a := range *got {
		out = append(out, fmt.Sprintf("%d@%g", a.Nr, a.at.Seconds()))
	}
	*got = nil
	return out
}

func wantArrivals(t *testing.T, what string, got *[]arrival, want ...string) {
	t.Helper()
	if nrs := take(got); !slices.Equal(nrs, want) {
		t.Errorf("%s: %v arrived, want %v", what, nrs, want)
	}
}

// A delivery is sent at once and then again when the last time is an interval
// ago, which is looked for every half interval.
func TestIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBank(t, eventsourcing.Config{Journal: inmem.NewJournal()}, senderType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime, "sink")
		ask(t, b, "a", Post{N: 1})
		wantArrivals(t, "at once", got, "1@0")
		time.Sleep(time.Second)
		ask(t, b, "a", Post{N: 1}) // between two ticks
		wantArrivals(t, "at once", got, "2@1")
		time.Sleep(14 * time.Second)
		wantArrivals(t, "resent", got, "1@5", "2@7.5", "1@10", "2@12.5", "1@15")
		if was := ask(t, b, "a", Drop{Nr: 1}); !was {
			t.Error("delivery 1 is not pending")
		}
		ask(t, b, "a", Drop{Nr: 2})
		time.Sleep(time.Hour)
		wantArrivals(t, "confirmed", got)
		time.Sleep(time.Second)
		ask(t, b, "a", Post{N: 1})
		time.Sleep(6 * time.Second)
		wantArrivals(t, "the next one", got, "3@3616", "3@3621")
	})
}

// Nothing leaves before the event that asks for it is durable, and nothing at
// all when it never is.
func TestNothingLeavesBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := journaltest.NewFaulty(inmem.NewJournal())
		b := openBank(t, eventsourcing.Config{Journal: j}, senderType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime, "sink")
		stall := j.Inject(journaltest.Fault{Do: journaltest.Stall})
		go func() { _, _ = eventsourcing.Ask(context.Background(), b.Ref("a"), Post{N: 1}) }()
		time.Sleep(2 * time.Second)
		wantArrivals(t, "while the write hangs", got)
		stall.Release()
		wantArrivals(t, "stored", got, "1@2")

		j.Inject(journaltest.Fault{Do: journaltest.Reject})
		if _, err := eventsourcing.Ask(context.Background(), b.Ref("a"), Post{N: 1}); err == nil {
			t.Error("the write was to be rejected")
		}
		ask(t, b, "a", Post{N: 2}) // takes the number that was not used, and is another delivery
		synctest.Wait()
		for _, a := range *got {
			if a.Nr == 2 && a.amount != 2 {
				t.Error("a delivery left whose event was rejected")
			}
		}
		wantArrivals(t, "after a rejection", got, "1@2", "2@2", "3@2") // refolded, so all is sent again
	})
}

// A recovery sends what is unconfirmed, in order and in bursts, before anything
// new.
func TestRecoveryAndBursts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		p := &probe{settings: delivery.Settings{Burst: 2}}
		b := openBank(t, eventsourcing.Config{Journal: j}, senderType(p), eventsourcing.HostOptions{})
		got := hostSink(t, b.runtime, "sink")
		ask(t, b, "a", Post{N: 5})
		ask(t, b, "a", Drop{Nr: 2})
		wantArrivals(t, "at once, no burst", got, "1@0", "2@0", "3@0", "4@0", "5@0")
		b.close(t)

		b = openBank(t, eventsourcing.Config{Journal: j}, senderType(p), eventsourcing.HostOptions{})
		defer b.close(t)
		got = hostSink(t, b.runtime, "sink")
		if nr := ask(t, b, "a", Post{N: 1}); nr != 6 {
			t.Errorf("the delivery after the recovery has number %d, want 6", nr)
		}
		wantArrivals(t, "recovered", got, "1@0", "3@0", "6@0")
		time.Sleep(13 * time.Second)
		wantArrivals(t, "bursts", got, "4@2.5", "5@2.5", "1@5", "3@5", "4@7.5", "6@7.5", "1@10", "5@10", "3@12.5", "4@12.5")
	})
}

// A burst goes on where the last one ended.
func TestBurstsReachEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &probe{settings: delivery.Settings{Burst: 2}}
		b := openBank(t, eventsourcing.Config{Journal: inmem.NewJournal()}, senderType(p), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime, "sink")
		ask(t, b, "a", Post{N: 7})
		time.Sleep(13 * time.Second)
		wantArrivals(t, "bursts", got, "1@0", "2@0", "3@0", "4@0", "5@0", "6@0", "7@0",
			"1@5", "2@5", "3@7.5", "4@7.5", "5@10", "6@10", "7@12.5")
	})
}

// The sixth transmission warns, once for each delivery and start.
func TestWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var warned []string
		p := &probe{signal: func(_ string, s eventsourcing.Signal) {
			if u, ok := s.(delivery.Unconfirmed[Credit]); ok {
				for _, d := range u.Deliveries {
					warned = append(warned, fmt.Sprintf("%d to %v (%d) after %d @%g", d.Nr, d.To, d.Message.Amount, d.Attempts, time.Since(began).Seconds()))
				}
			}
		}}
		b := openBank(t, eventsourcing.Config{Journal: inmem.NewJournal()}, senderType(p), eventsourcing.HostOptions{})
		defer b.close(t)
		got := hostSink(t, b.runtime, "sink")
		ask(t, b, "a", Post{N: 2})
		time.Sleep(61 * time.Second)
		if n := len(take(got)); n != 2*13 {
			t.Errorf("%d arrivals, want 26: a warning ends nothing", n)
		}
		want := []string{"1 to sink|1 (2) after 6 @25", "2 to sink|1 (2) after 6 @25"}
		if !slices.Equal(warned, want) {
			t.Errorf("warned about %v, want %v", warned, want)
		}
	})
}

// A destination is looked up at each transmission: it may come later.
func TestDestinationAppearsLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBank(t, eventsourcing.Config{Journal: inmem.NewJournal()}, senderType(&probe{}), eventsourcing.HostOptions{})
		defer b.close(t)
		ask(t, b, "a", Post{N: 1})
		time.Sleep(7 * time.Second)
		got := hostSink(t, b.runtime, "sink")
		time.Sleep(4 * time.Second)
		wantArrivals(t, "later", got, "1@3")
	})
}

// An entity that waits for a confirmation is not idle; one that does not is.
func TestIdleWithUnconfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBank(t, eventsourcing.Config{Journal: inmem.NewJournal()}, senderType(&probe{}), eventsourcing.HostOptions{PassivateAfter: 3 * time.Second})
		defer b.close(t)
		got := hostSink(t, b.runtime, "sink")
		ask(t, b, "a", Post{N: 1})
		time.Sleep(12 * time.Second)
		wantArrivals(t, "resent", got, "1@0", "1@5", "1@10")
		ask(t, b, "a", Drop{Nr: 1})
		time.Sleep(12 * time.Second)
		if n := b.Resident(); n != 0 {
			t.Errorf("%d entities are in memory, want none", n)
		}
	})
}

// A state of the past sends nothing.
func TestPastStateIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := inmem.NewJournal()
		b := openBank(t, eventsourcing.Config{Journal: j}, senderType(&probe{}), eventsourcing.HostOptions{})
		hostSink(t, b.runtime, "sink")
		ask(t, b, "a", Post{N: 1})
		ask(t, b, "a", Drop{Nr: 1})
		b.close(t)

		b = openBank(t, eventsourcing.Config{Journal: j}, senderType(&probe{}), eventsourcing.HostOptions{Recovery: eventsourcing.Recovery{UpTo: 1}})
		defer b.close(t)
		got := hostSink(t, b.runtime, "sink")
		if _, err := eventsourcing.Ask(context.Background(), b.Ref("a"), Post{N: 1}); err == nil {
			t.Error("a past state took an event")
		}
		time.Sleep(time.Minute)
		wantArrivals(t, "from the past", got)
	})
}
