// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
)

// A courier rings bells, at once or at a time. It reports its work on a channel.
type (
	courier struct {
		Rings delivery.Outbox[ring]
		Due   time.Time

		id     string
		report chan<- string
	}
	bell struct {
		Rings delivery.Inbox

		id     string
		report chan<- string
	}

	// dispatch sends a courier to the bell To.
	dispatch struct {
		eventsourcing.Command[courier, eventsourcing.Ack]
		To string
	}
	// schedule sets the deadline of a courier.
	schedule struct {
		eventsourcing.Command[courier, eventsourcing.Ack]
		At time.Time
	}
	// greet has no effect.
	greet struct {
		eventsourcing.Command[courier, eventsourcing.Ack]
	}
	ring struct {
		eventsourcing.Command[bell, eventsourcing.Ack]
		delivery.Header
	}

	courierEvent interface{ isCourierEvent() }
	dispatched   struct{ To string }
	returned     struct{ Nr uint64 }
	scheduled    struct{ At time.Time }
	rung         struct{ Ring delivery.Header }

	courierCtx[R any]      = eventsourcing.Context[courier, courierEvent, R]
	courierDecision[R any] = eventsourcing.Decision[courier, courierEvent, R]
	courierEffect          = eventsourcing.Effect[courier, courierEvent, eventsourcing.None]
)

func (dispatched) isCourierEvent() {}
func (returned) isCourierEvent()   {}
func (scheduled) isCourierEvent()  {}

func (c *courier) dispatch(ctx *courierCtx[eventsourcing.Ack], d dispatch) courierDecision[eventsourcing.Ack] {
	return ctx.Persist(dispatched{d.To}).Reply(eventsourcing.Ack{})
}

func (c *courier) schedule(ctx *courierCtx[eventsourcing.Ack], s schedule) courierDecision[eventsourcing.Ack] {
	return ctx.Persist(scheduled{s.At}).Reply(eventsourcing.Ack{})
}

func (c *courier) greet(ctx *courierCtx[eventsourcing.Ack], _ greet) courierDecision[eventsourcing.Ack] {
	return ctx.Reply(eventsourcing.Ack{})
}

func (c *courier) answered(ctx *courierCtx[eventsourcing.None], a delivery.Answered[ring, eventsourcing.Ack]) courierEffect {
	return ctx.Persist(returned{a.Nr})
}

func (c *courier) timeout(ctx *courierCtx[eventsourcing.None], _ eventsourcing.StateTimeout) courierEffect {
	return ctx.Persist(scheduled{}).Then(func(ctx *courierCtx[eventsourcing.None]) courierEffect {
		c.report <- c.id + " is late"
		return ctx.Effect
	})
}

func (c *courier) apply(event courierEvent) {
	switch e := event.(type) {
	case dispatched:
		c.Rings.Deliver(eventsourcing.Address{Type: "bell", ID: e.To}, ring{})
	case returned:
		c.Rings.Confirm(e.Nr)
	case scheduled:
		c.Due = e.At
	}
}

func couriers(report chan<- string) eventsourcing.Type[courier, courierEvent] {
	return eventsourcing.Type[courier, courierEvent]{
		Name: "courier",
		New:  func(id string) *courier { return &courier{id: id, report: report} },
		Commands: eventsourcing.Commands(
			eventsourcing.On("dispatch", (*courier).dispatch), eventsourcing.On("schedule", (*courier).schedule), eventsourcing.On("greet", (*courier).greet),
		),
		Parts:    eventsourcing.Parts(delivery.Sends("Rings", func(c *courier) *delivery.Outbox[ring] { return &c.Rings }, (*courier).answered)),
		Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*courier).timeout)),
		Apply:    (*courier).apply,
		Deadline: func(c *courier) time.Time { return c.Due },
		Events:   codec.Types(codec.Name[dispatched]("dispatched"), codec.Name[returned]("returned"), codec.Name[scheduled]("scheduled")),
	}
}

func (b *bell) ring(ctx *eventsourcing.Context[bell, rung, eventsourcing.Ack], r ring) eventsourcing.Decision[bell, rung, eventsourcing.Ack] {
	b.report <- b.id + " rings"
	return ctx.Persist(rung{r.Header}).Reply(eventsourcing.Ack{})
}

func bells(report chan<- string) eventsourcing.Type[bell, rung] {
	return eventsourcing.Type[bell, rung]{
		Name:     "bell",
		New:      func(id string) *bell { return &bell{id: id, report: report} },
		Commands: eventsourcing.Commands(delivery.On("ring", func(b *bell) *delivery.Inbox { return &b.Rings }, (*bell).ring)),
		Apply:    func(b *bell, e rung) { b.Rings.Record(e.Ring) },
		Events:   codec.Types(codec.Name[rung]("rung")),
	}
}

// reported waits for a report of couriers and bells.
func (w *world) reported(report <-chan string, want string) {
	w.Helper()
	select {
	case got := <-report:
		if got != want {
			w.Fatalf("the report is %q, want %q", got, want)
		}
	case <-time.After(2 * time.Hour): // in the bubble
		w.Fatalf("no report, want %q", want)
	}
}
