// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

type (
	seatEvent interface{ isSeatEvent() }

	// reserve is answered with true if the seat was free.
	reserve struct {
		eventsourcing.Command[seat, bool]
		Time time.Duration
	}
	reserved struct{ Until time.Time }
	released struct{}
	seat     struct {
		Until  time.Time // zero when the seat is free
		onFree func()
	}

	seatContext[R any]  = eventsourcing.Context[seat, seatEvent, R]
	seatEffect[R any]   = eventsourcing.Effect[seat, seatEvent, R]
	seatDecision[R any] = eventsourcing.Decision[seat, seatEvent, R]
)

func (reserved) isSeatEvent() {}
func (released) isSeatEvent() {}

func (s *seat) reserve(ctx *seatContext[bool], c reserve) seatDecision[bool] {
	if !s.Until.IsZero() {
		return ctx.Reply(false)
	}
	return ctx.Persist(reserved{Until: ctx.Now().Add(c.Time)}).Reply(true)
}

func (s *seat) timedOut(ctx *seatContext[eventsourcing.None], _ eventsourcing.StateTimeout) seatEffect[eventsourcing.None] {
	return ctx.Persist(released{}).Then(func(ctx *seatContext[eventsourcing.None]) seatEffect[eventsourcing.None] {
		s.onFree()
		return ctx.Effect
	})
}

func (s *seat) apply(event seatEvent) {
	switch e := event.(type) {
	case reserved:
		s.Until = e.Until
	case released:
		s.Until = time.Time{}
	}
}

func (s *seat) deadline() time.Time { return s.Until }

// A reservation that ends at a deadline. Type.Deadline computes the deadline from the state, so it
// survives a restart of the process.
func ExampleOnSignal() {
	ctx := context.Background()
	free := make(chan struct{})
	rt, seats := hosted(eventsourcing.Type[seat, seatEvent]{
		Name: "seat",
		New: func(string) *seat {
			return &seat{onFree: func() { close(free) }}
		},
		Commands: eventsourcing.Commands(eventsourcing.On("reserve", (*seat).reserve)),
		Deadline: (*seat).deadline,
		Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*seat).timedOut)),
		Apply:    (*seat).apply,
		Events:   codec.Types(codec.Name[reserved]("reserved"), codec.Name[released]("released")),
	})
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	got, err := eventsourcing.Ask(ctx, seats.Ref("7A"), reserve{Time: 5 * time.Millisecond})
	fmt.Println(got, err)
	<-free
	got, err = eventsourcing.Ask(ctx, seats.Ref("7A"), reserve{Time: time.Hour})
	fmt.Println(got, err)
	// Output:
	// true <nil>
	// true <nil>
}
