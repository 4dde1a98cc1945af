// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

package order_test

import (
	"testing"

	"github.com/refold-io/refold/docs/tutorial/order"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/eventsourcing/eventsourcingtest"
	"github.com/refold-io/refold/journal/journaltest"
)

// endregion

// Given an order with two units of tea, when a unit of milk is added, then an event is stored and
// the reply is the total.
func TestAdd(t *testing.T) {
	t.Parallel()
	kit := eventsourcingtest.New(t, order.Type)
	kit.Given(order.Added{Product: "tea", Units: 2, Price: 350})
	eventsourcingtest.When(kit, order.Add{Product: "milk", Units: 1, Price: 120}).
		Stores(order.Added{Product: "milk", Units: 1, Price: 120}).
		Answers(820)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	kit := eventsourcingtest.New(t, order.Type)
	eventsourcingtest.When(kit, order.Add{Product: "tea", Units: 0, Price: 350}).Fails(order.ErrNoUnits)
	kit.Given(order.Added{Product: "tea", Units: order.MaxUnits, Price: 350})
	eventsourcingtest.When(kit, order.Add{Product: "milk", Units: 1, Price: 120}).
		Fails(order.ErrFull).
		StoresNothing()
}

// A write that the journal rejects changes nothing. The same command succeeds after a restart.
func TestRejectedWrite(t *testing.T) {
	t.Parallel()
	kit := eventsourcingtest.New(t, order.Type)
	kit.Given(order.Added{Product: "tea", Units: 2, Price: 350})
	kit.Journal().Inject(journaltest.Fault{Do: journaltest.Reject})
	eventsourcingtest.When(kit, order.Add{Product: "milk", Units: 1, Price: 120}).Fails(es.ErrRejected)
	kit.Restart()
	eventsourcingtest.When(kit, order.Add{Product: "milk", Units: 1, Price: 120}).Answers(820)
}
