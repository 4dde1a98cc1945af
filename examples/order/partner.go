// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	es "github.com/refold-io/refold/eventsourcing"
)

// keep is the time after which a partner forgets an order that has ended for it. It is longer than
// patience by much more than the clocks of two nodes differ.
const keep = 24 * time.Hour

type action string

const (
	hold    action = "hold"    // can be refused until Until
	take    action = "take"    // never refused
	release action = "release" // never refused, the compensation of hold
)

type (
	// Request is delivered by an order to a partner.
	Request[P any] struct {
		es.Command[Partner[P], es.Ack]
		delivery.Header
		Do     action
		Amount int
		Until  time.Time // a later hold is refused
	}
	// Add is answered with the free amount.
	Add[P any] struct {
		es.Command[Partner[P], int]
		Amount int
	}
	// Look is answered with the report.
	Look[P any] struct{ es.Command[Partner[P], Report] }

	Report struct{ Free, Taken, Holds, Orders int }

	PartnerEvent interface{ isPartnerEvent() }
	Added        struct{ Amount int }
	Held         struct {
		Delivery delivery.Header
		Amount   int
	}
	Refused struct{ Delivery delivery.Header }
	Settled struct { // by take or release
		Delivery delivery.Header
		Taken    bool
	}

	// Partner has an amount of P, of which orders hold and take parts. Wallets and stocks are
	// partners.
	Partner[P any] struct {
		Free, Taken int
		Holds       map[string]int // by the sender of the order
		Orders      delivery.Inbox
		Ended       []ended // in the order of time
	}
	ended struct {
		Sender string
		At     time.Time
	}

	money struct{}
	units struct{}

	MoneyRequest = Request[money]
	UnitsRequest = Request[units]
)

func (Added) isPartnerEvent()   {}
func (Held) isPartnerEvent()    {}
func (Refused) isPartnerEvent() {}
func (Settled) isPartnerEvent() {}

var errRefused = es.NewRefusal("order/refused", "the amount is not available in time")

func (p *Partner[P]) request(ctx *es.Context[Partner[P], PartnerEvent, es.Ack], c Request[P]) es.Decision[Partner[P], PartnerEvent, es.Ack] {
	switch {
	case c.Do != hold:
		return ctx.Persist(Settled{c.Header, c.Do == take}).Reply(es.Ack{})
	case c.Amount > p.Free, !ctx.Now().Before(c.Until):
		return ctx.Persist(Refused{c.Header}).Refuse(errRefused)
	}
	return ctx.Persist(Held{c.Header, c.Amount}).Reply(es.Ack{})
}

func (p *Partner[P]) add(ctx *es.Context[Partner[P], PartnerEvent, int], c Add[P]) es.Decision[Partner[P], PartnerEvent, int] {
	return ctx.Persist(Added{c.Amount}).ReplyFunc(func() int { return p.Free })
}

func (p *Partner[P]) look(ctx *es.Context[Partner[P], PartnerEvent, Report], _ Look[P]) es.Decision[Partner[P], PartnerEvent, Report] {
	return ctx.Reply(Report{p.Free, p.Taken, len(p.Holds), p.Orders.Senders()})
}

func (p *Partner[P]) apply(event PartnerEvent, record es.Recorded) {
	switch e := event.(type) {
	case Added:
		p.Free += e.Amount
	case Held:
		p.Free -= e.Amount
		p.Holds[e.Delivery.Sender] = e.Amount
		p.Orders.Record(e.Delivery)
	case Refused:
		p.Orders.RecordRefusal(e.Delivery, errRefused)
		p.end(e.Delivery.Sender, record.Time)
	case Settled:
		if e.Taken {
			p.Taken += p.Holds[e.Delivery.Sender]
		} else {
			p.Free += p.Holds[e.Delivery.Sender]
		}
		delete(p.Holds, e.Delivery.Sender)
		p.Orders.Record(e.Delivery)
		p.end(e.Delivery.Sender, record.Time)
	}
}

// end records that an order sends nothing new to this partner, and forgets the orders that have
// ended long ago. A late copy of a request of a forgotten order changes nothing: a hold is refused,
// because its Until has passed, and the other requests find no hold.
func (p *Partner[P]) end(sender string, now time.Time) {
	p.Ended = append(p.Ended, ended{sender, now})
	for now.Sub(p.Ended[0].At) > keep {
		p.Orders.Forget(p.Ended[0].Sender)
		p.Ended = p.Ended[1:]
	}
}

func (p *Partner[P]) orders() *delivery.Inbox { return &p.Orders }

func partnerType[P any](name string) es.Type[Partner[P], PartnerEvent] {
	return es.Type[Partner[P], PartnerEvent]{
		Name: name,
		New:  func(string) *Partner[P] { return &Partner[P]{Holds: map[string]int{}} },
		Commands: es.Commands(
			delivery.On("request", (*Partner[P]).orders, (*Partner[P]).request),
			es.On("add", (*Partner[P]).add), es.On("look", (*Partner[P]).look),
		),
		ApplyRecorded: (*Partner[P]).apply,
		Snapshots:     es.Snapshots[Partner[P], PartnerEvent]{Every: 20},
		Events:        codec.Types(codec.Name[Added]("added"), codec.Name[Held]("held"), codec.Name[Refused]("refused"), codec.Name[Settled]("settled")),
	}
}
