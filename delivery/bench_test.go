// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// BenchmarkDelivery measures one delivery from its event to its confirmation, without a runtime,
// while other deliveries are unconfirmed.
func BenchmarkDelivery(b *testing.B) {
	for _, others := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("beside %d", others), func(b *testing.B) {
			now := time.Unix(1_000_000, 0)
			var o delivery.Outbox[Credit]
			for range others {
				o.Deliver(bob, Credit{})
			}
			o.Recovered(now)
			b.ReportAllocs()
			event := uint64(0)
			for b.Loop() {
				event++
				o.Applying(event, nil)
				nr := o.Deliver(bob, Credit{Amount: 1})
				o.Durable(event, now)
				event++
				o.Applying(event, nil)
				o.Confirm(nr)
				o.Durable(event, now)
			}
		})
	}
}

// BenchmarkTick measures a tick over many deliveries of which none is due.
func BenchmarkTick(b *testing.B) {
	now := time.Unix(1_000_000, 0)
	var o delivery.Outbox[Credit]
	delivery.Configure[int](&o, delivery.Options{Interval: 1000 * time.Hour, Burst: 100_000})
	for range 100_000 {
		o.Deliver(bob, Credit{})
	}
	o.Recovered(now)
	for b.Loop() {
		o.Recovered(now) // examines all deliveries and schedules no other tick
	}
}

// BenchmarkTransfer measures a transfer in a runtime: three events in two accounts.
func BenchmarkTransfer(b *testing.B) {
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{}, 1)
	p := &probe{signal: func(_ string, s eventsourcing.Signal) {
		if _, ok := s.(delivery.Answered[Credit, int]); ok {
			ended <- struct{}{}
		}
	}}
	accounts, err := eventsourcing.Host(rt, accountType(p))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	if _, err := eventsourcing.Ask(ctx, accounts.Ref("alice"), Deposit{Amount: 1 << 30}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := eventsourcing.Ask(ctx, accounts.Ref("alice"), Transfer{To: "bob", Amount: 1}); err != nil {
			b.Fatal(err)
		}
		<-ended
	}
	if err := rt.Close(ctx); err != nil {
		b.Fatal(err)
	}
}
