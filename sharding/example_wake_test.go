// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

type (
	// An Invoice has a deadline.
	Invoice struct {
		Due     time.Time
		overdue chan<- string
	}
	Issue struct {
		eventsourcing.Command[Invoice, eventsourcing.Ack]
		Due time.Time
	}
	InvoiceEvent interface{ isInvoiceEvent() }
	Issued       struct{ Due time.Time }
	Overdue      struct{}
)

func (Issued) isInvoiceEvent()  {}
func (Overdue) isInvoiceEvent() {}

func (*Invoice) issue(ctx *eventsourcing.Context[Invoice, InvoiceEvent, eventsourcing.Ack], c Issue) eventsourcing.Decision[Invoice, InvoiceEvent, eventsourcing.Ack] {
	return ctx.Persist(Issued{c.Due}).Reply(eventsourcing.Ack{})
}

func (i *Invoice) timeout(ctx *eventsourcing.Context[Invoice, InvoiceEvent, eventsourcing.None], _ eventsourcing.StateTimeout) eventsourcing.Effect[Invoice, InvoiceEvent, eventsourcing.None] {
	return ctx.Persist(Overdue{}).Then(func(ctx *eventsourcing.Context[Invoice, InvoiceEvent, eventsourcing.None]) eventsourcing.Effect[Invoice, InvoiceEvent, eventsourcing.None] {
		i.overdue <- ctx.ID() + " is overdue"
		return ctx.Effect
	})
}

func (i *Invoice) apply(event InvoiceEvent) {
	switch e := event.(type) {
	case Issued:
		i.Due = e.Due
	case Overdue:
		i.Due = time.Time{}
	}
}

func invoiceType(overdue chan<- string) eventsourcing.Type[Invoice, InvoiceEvent] {
	return eventsourcing.Type[Invoice, InvoiceEvent]{
		Name:     "invoice",
		New:      func(string) *Invoice { return &Invoice{overdue: overdue} },
		Commands: eventsourcing.Commands(eventsourcing.On("issue", (*Invoice).issue)),
		Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*Invoice).timeout)),
		Apply:    (*Invoice).apply,
		Deadline: func(i *Invoice) time.Time { return i.Due },
		Events:   codec.Types(codec.Name[Issued]("issued"), codec.Name[Overdue]("overdue")),
	}
}

// The only node crashes before a deadline. The next node starts the entity without a command, because
// the entity is in the index of those with pending work.
func ExampleOptions_wake() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	network, journal, overdue := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal(), make(chan string, 1)
	open := func() (*cluster.Node, *eventsourcing.Runtime, *sharding.Region[Invoice], error) {
		self, err := identity.New("a:1")
		if err != nil {
			return nil, nil, nil, err
		}
		node, err := cluster.Join(ctx, cluster.Config{Cluster: "bank", Carrier: network.Carrier(self), Seeds: []string{"a:1"}})
		if err != nil {
			return nil, nil, nil, err
		}
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)}) //nolint:contextcheck // used after the call
		if err != nil {
			return nil, nil, nil, err
		}
		region, err := sharding.Host(ctx, node, rt, invoiceType(overdue), sharding.Options{Shards: 20}) // Wake has its default
		return node, rt, region, err
	}
	node, rt, invoices, err := open()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = eventsourcing.Ask(ctx, invoices.Ref("42"), Issue{Due: time.Now().Add(time.Second)}); err != nil {
		fmt.Println(err)
		return
	}
	node.Stop() // a crash
	<-node.Done()
	_ = rt.Close(ctx)
	if node, rt, _, err = open(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-overdue)
	node.Stop()
	<-node.Done()
	fmt.Println(rt.Close(ctx))
	// Output:
	// 42 is overdue
	// <nil>
}
