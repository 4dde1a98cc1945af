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
	seatCommand interface {
		eventsourcing.Target[seatCommand]
	}
	seatEvent  interface{ isSeatEvent() }
	seatCtx    = eventsourcing.Context[seatCommand, seatEvent]
	seatEffect = eventsourcing.Effect[seatCommand, seatEvent]

	reserve struct { // is answered with whether the seat was free
		eventsourcing.For[seatCommand, bool]
		Time time.Duration
	}
	reserved struct{ Until time.Time }
	released struct{}
	seat     struct {
		Until  time.Time // zero when the seat is free
		onFree func()
	}
)

func (reserved) isSeatEvent() {}
func (released) isSeatEvent() {}

func (s *seat) HandleCommand(ctx *seatCtx, cmd seatCommand) seatEffect {
	switch c := cmd.(type) {
	case reserve:
		if !s.Until.IsZero() {
			return ctx.Reply(c.With(false))
		}
		return ctx.Persist(reserved{Until: ctx.Now().Add(c.Time)}).Reply(c.With(true))
	}
	return ctx.Unhandled()
}

func (s *seat) ApplyEvent(event seatEvent) {
	switch e := event.(type) {
	case reserved:
		s.Until = e.Until
	case released:
		s.Until = time.Time{}
	}
}

// Deadline makes the seat eventsourcing.Timed.
func (s *seat) Deadline() time.Time { return s.Until }

// HandleSignal makes it an eventsourcing.SignalHandler.
func (s *seat) HandleSignal(ctx *seatCtx, signal eventsourcing.Signal) seatEffect {
	if _, ok := signal.(eventsourcing.StateTimeout); !ok {
		return ctx.Unhandled()
	}
	return ctx.Persist(released{}).Then(func(ctx *seatCtx) seatEffect {
		s.onFree()
		return ctx.None()
	})
}

// A reservation that ends by itself. The deadline is folded from events, so it
// outlives the process.
func ExampleTimed() {
	ctx := context.Background()
	free := make(chan struct{})
	rt, seats := hosted(eventsourcing.Type[seatCommand, seatEvent]{
		Name: "seat",
		New: func(string) eventsourcing.Aggregate[seatCommand, seatEvent] {
			return &seat{onFree: func() { close(free) }}
		},
		Events: codec.Types(codec.Name[reserved]("reserved"), codec.Name[released]("released")),
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
