// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/otel"
	"github.com/refold-io/refold/store"
)

// Records the span of a deposit in memory. The zero Config selects the global providers of
// OpenTelemetry.
func Example() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))

	telemetry, err := otel.New(otel.Config{TracerProvider: provider})
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: telemetry.Observer()})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := telemetry.Watch(rt) // for the number of entities in memory
	accounts, err := eventsourcing.Host(rt, accountType(false))
	if err != nil {
		fmt.Println(err)
		return
	}
	balance, err := eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 10})
	fmt.Println(balance, err)

	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name)
		for _, kv := range s.Attributes {
			fmt.Printf("  %s = %s\n", kv.Key, kv.Value.String())
		}
	}
	stop()
	fmt.Println(rt.Close(ctx), telemetry.Close(), provider.Shutdown(ctx))
	// Output:
	// 10 <nil>
	// recover account
	//   refold.entity.type = account
	//   refold.persistence_id = account|42
	//   refold.events = 0
	//   refold.sequence_nr = 0
	//   refold.snapshot_nr = 0
	//   refold.outcome = ok
	// otel_test.Deposit
	//   refold.entity.type = account
	//   refold.command.type = otel_test.Deposit
	//   refold.persistence_id = account|42
	//   refold.events = 1
	//   refold.sequence_nr = 1
	//   refold.outcome = ok
	// <nil> <nil> <nil>
}
