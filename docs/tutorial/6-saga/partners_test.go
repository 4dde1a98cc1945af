// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing/eventsourcingtest"
)

// A delivery that arrives again receives the same refusal, also when the units would suffice now.
func TestRefusedDelivery(t *testing.T) {
	t.Parallel()
	kit := eventsourcingtest.New(t, stockType) // three units
	first := delivery.Header{Sender: "order|o1#stock", Nr: 1, Floor: 1}
	second := delivery.Header{Sender: "order|o2#stock", Nr: 1, Floor: 1}
	reserve := Reserve{Header: second, Units: 2}
	kit.Given(UnitsReserved{first, 2})
	eventsourcingtest.When(kit, reserve).Stores(UnitsRefused{second}).Fails(errOutOfStock)
	first.Nr = 2
	eventsourcingtest.When(kit, Release{Header: first, Units: 2}).Stores(UnitsReleased{first, 2}).Succeeds()
	eventsourcingtest.When(kit, reserve).Fails(errOutOfStock)
}
