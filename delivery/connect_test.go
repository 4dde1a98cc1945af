// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

type (
	// Shop sends a bill for each sale.
	Shop struct {
		Bills delivery.Outbox[Bill]

		paid chan<- string `refold:"-"`
	}
	// Customer receives bills.
	Customer struct {
		Debt  int
		Bills delivery.Inbox
	}
	Sell struct {
		eventsourcing.Command[Shop, eventsourcing.Ack]
		Price int
	}
	Bill struct {
		eventsourcing.Command[Customer, eventsourcing.Ack]
		delivery.Header
		Price int
	}
	ShopEvent interface{ isShopEvent() }
	Sold      struct{ Price int }
	Billed    struct{ Nr uint64 }
	Charged   struct {
		Bill  delivery.Header
		Price int
	}
)

func (Sold) isShopEvent()   {}
func (Billed) isShopEvent() {}

func (s *Shop) sell(ctx *eventsourcing.Context[Shop, ShopEvent, eventsourcing.Ack], c Sell) eventsourcing.Decision[Shop, ShopEvent, eventsourcing.Ack] {
	return ctx.Persist(Sold{c.Price}).Reply(eventsourcing.Ack{})
}

func (s *Shop) answered(ctx *eventsourcing.Context[Shop, ShopEvent, eventsourcing.None], a delivery.Answered[Bill, eventsourcing.Ack]) eventsourcing.Effect[Shop, ShopEvent, eventsourcing.None] {
	s.paid <- fmt.Sprintf("%v owes %d", a.To, a.Message.Price)
	return ctx.Persist(Billed{a.Nr})
}

func (s *Shop) unconfirmed(ctx *eventsourcing.Context[Shop, ShopEvent, eventsourcing.None], u delivery.Unconfirmed[Bill]) eventsourcing.Effect[Shop, ShopEvent, eventsourcing.None] {
	s.paid <- fmt.Sprint("unconfirmed: ", errors.Is(u.Deliveries[0].Err, eventsourcing.ErrUnknownType))
	return ctx.Effect
}

func (s *Shop) apply(event ShopEvent) {
	switch e := event.(type) {
	case Sold:
		s.Bills.Deliver(eventsourcing.Address{Type: "customer", ID: "ann"}, Bill{Price: e.Price})
	case Billed:
		s.Bills.Confirm(e.Nr)
	}
}

func (c *Customer) bill(ctx *eventsourcing.Context[Customer, Charged, eventsourcing.Ack], b Bill) eventsourcing.Decision[Customer, Charged, eventsourcing.Ack] {
	return ctx.Persist(Charged{b.Header, b.Price}).Reply(eventsourcing.Ack{})
}

func (c *Customer) apply(e Charged) {
	c.Debt += e.Price
	c.Bills.Record(e.Bill)
}

func shopType(paid chan<- string) eventsourcing.Type[Shop, ShopEvent] {
	return eventsourcing.Type[Shop, ShopEvent]{
		Name:     "shop",
		New:      func(string) *Shop { return &Shop{paid: paid} },
		Commands: eventsourcing.Commands(eventsourcing.On("sell", (*Shop).sell)),
		Parts: eventsourcing.Parts(delivery.SendsWith("Bills", func(s *Shop) *delivery.Outbox[Bill] { return &s.Bills },
			delivery.Options{WarnAfter: 2}, (*Shop).answered)),
		Signals: eventsourcing.Signals(eventsourcing.OnSignal((*Shop).unconfirmed)),
		Apply:   (*Shop).apply,
		Events:  codec.Types(codec.Name[Sold]("sold"), codec.Name[Billed]("billed")),
	}
}

func customerType() eventsourcing.Type[Customer, Charged] {
	return eventsourcing.Type[Customer, Charged]{
		Name:     "customer",
		Commands: eventsourcing.Commands(delivery.On("bill", func(c *Customer) *delivery.Inbox { return &c.Bills }, (*Customer).bill)),
		Apply:    (*Customer).apply,
		Events:   codec.Types(codec.Name[Charged]("charged")),
	}
}

// The shops and the customers have databases of their own, and so runtimes of their own.
func Example_connectedRuntimes() {
	ctx := context.Background()
	paid := make(chan string, 1)
	shopRuntime, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	customerRuntime, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	shops, err := eventsourcing.Host(shopRuntime, shopType(paid))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = eventsourcing.Host(customerRuntime, customerType()); err != nil {
		fmt.Println(err)
		return
	}
	if err = shopRuntime.Connect(customerRuntime); err != nil {
		fmt.Println(err)
		return
	}
	if _, err = eventsourcing.Ask(ctx, shops.Ref("baker"), Sell{Price: 3}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-paid)
	fmt.Println(errors.Join(shopRuntime.Close(ctx), customerRuntime.Close(ctx)))
	// Output:
	// customer|ann owes 3
	// <nil>
}

// A delivery to a type that no runtime has is sent again. It arrives after the runtime that hosts the
// type is connected, and not while the connected runtime is closed.
func TestConnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		paid := make(chan string, 10)
		var log bytes.Buffer // written by one goroutine at a time, see slog.NewTextHandler
		open := func() *eventsourcing.Runtime {
			rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			return rt
		}
		rt, other := open(), open()
		defer rt.Close(context.Background()) //nolint:errcheck // nothing is in flight
		shops, err := eventsourcing.Host(rt, shopType(paid))
		if err != nil {
			t.Fatal(err)
		}
		sell := func(price int) {
			t.Helper()
			if _, asked := eventsourcing.Ask(t.Context(), shops.Ref("baker"), Sell{Price: price}); asked != nil {
				t.Fatal(asked)
			}
		}
		want := func(text string) {
			t.Helper()
			select {
			case got := <-paid:
				if got != text {
					t.Fatalf("the shop got %q, want %q", got, text)
				}
			case <-time.After(time.Hour): // in the bubble
				t.Fatalf("the shop got nothing, want %q", text)
			}
		}
		connect := func() {
			t.Helper()
			if failed := rt.Connect(other); failed != nil {
				t.Fatal(failed)
			}
			if _, failed := eventsourcing.Host(other, customerType()); failed != nil {
				t.Fatal(failed)
			}
		}
		sell(3)
		want("unconfirmed: true")
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "its outbox will send it again") || strings.Contains(text, "dropped") {
			t.Errorf("the log does not say that the delivery is sent again: %s", text)
		}
		connect()
		want("customer|ann owes 3")

		if err = other.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, unusable := range []*eventsourcing.Runtime{nil, rt, other} {
			if err = rt.Connect(unusable); !errors.Is(err, eventsourcing.ErrInvalid) && !errors.Is(err, eventsourcing.ErrClosed) {
				t.Errorf("Connect returned %v, want ErrInvalid or ErrClosed", err)
			}
		}
		sell(4)
		want("unconfirmed: true")
		other = open()
		defer other.Close(context.Background()) //nolint:errcheck // nothing is in flight
		time.Sleep(time.Hour)                   // in the bubble: the type stays unknown
		for len(paid) > 0 {
			want("unconfirmed: true")
		}
		connect()
		want("customer|ann owes 4")
	})
}
