// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
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

// Reports a node of a cluster, and reads its metrics as an exporter does.
func ExampleTelemetry_WatchNode() {
	ctx := context.Background()
	reader := metric.NewManualReader() // a program passes the reader of an exporter
	telemetry, err := otel.New(otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		fmt.Println(err)
		return
	}
	self, err := identity.New("bank-0")
	if err != nil {
		fmt.Println(err)
		return
	}
	node, err := cluster.Join(ctx, cluster.Config{
		Cluster: "bank", Carrier: inmem.NewNetwork(inmem.NetworkConfig{}).Carrier(self), Seeds: []string{"bank-0"}, Observer: telemetry.ClusterObserver(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := telemetry.WatchNode(node)
	fmt.Println(node.AwaitUp(ctx))

	var all metricdata.ResourceMetrics
	if err = reader.Collect(ctx, &all); err != nil {
		fmt.Println(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "refold.cluster.node.ready" {
			fmt.Println(m.Name, sum.DataPoints[0].Value)
		}
	}
	stop()
	fmt.Println(node.Shutdown(ctx), telemetry.Close())
	// Output:
	// <nil>
	// refold.cluster.node.ready 1
	// <nil> <nil>
}
