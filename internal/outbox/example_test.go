// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/internal/outbox"
)

func Example() {
	now := time.Unix(0, 0)
	out := outbox.NewOutgoing[string](outbox.Config{Interval: 10 * time.Second, Burst: 100, WarnAfter: 5})
	out.Recovered(now)

	var in outbox.Incoming[bool]
	receive := func(e outbox.Effects[string]) {
		for _, s := range e.Sends {
			fmt.Printf("%s, transmission %d, seen: %v\n", s.Item, s.Attempt, in.Seen(s.Nr))
			in.Record(s.Nr, e.Floor, true)
		}
	}

	out.Add(1, "a letter") // requested by event 1
	fmt.Println("a tick is scheduled:", !out.Next().IsZero())
	receive(out.Durable(1, now)) // now event 1 is stored
	for range 2 {
		receive(out.Tick(out.Next()))
	}
	out.Confirm(2, 1)
	fmt.Println("unconfirmed:", out.Open(), "floor:", out.Floor())
	out.Durable(2, now)
	fmt.Println("unconfirmed:", out.Open(), "floor:", out.Floor())
	// Output:
	// a tick is scheduled: false
	// a letter, transmission 1, seen: false
	// a letter, transmission 2, seen: true
	// unconfirmed: 0 floor: 1
	// unconfirmed: 0 floor: 2
}
