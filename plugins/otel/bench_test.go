// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/otel"
	"github.com/refold-io/refold/store"
)

// BenchmarkAsk sends a command that is refused and a command that persists an event: without
// telemetry, with metrics, with unsampled spans, and with sampled spans.
func BenchmarkAsk(b *testing.B) {
	var meters metric.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	tracers := func(s sdk.Sampler) trace.TracerProvider {
		return sdk.NewTracerProvider(sdk.WithSampler(s), sdk.WithSpanProcessor(sdk.NewSimpleSpanProcessor(nil)))
	}
	for _, bench := range []struct {
		name string
		cfg  *otel.Config
	}{
		{"observer=none", nil},
		{"observer=metrics", &otel.Config{MeterProvider: meters, TracerProvider: noop.NewTracerProvider()}},
		{"observer=unsampled", &otel.Config{MeterProvider: meters, TracerProvider: tracers(sdk.NeverSample())}},
		{"observer=sampled", &otel.Config{MeterProvider: meters, TracerProvider: tracers(sdk.AlwaysSample())}},
	} {
		var o eventsourcing.Observer
		if bench.cfg != nil {
			o = newTelemetry(b, *bench.cfg).Observer()
		}
		for _, command := range []eventsourcing.Request[Account, int]{Transfer{To: "2", Amount: 1}, Deposit{}} {
			b.Run(fmt.Sprintf("%s/%T", bench.name, command), func(b *testing.B) {
				accounts := openBank(b, eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil), Observer: o}, false)
				ref, ctx := accounts.Ref("1"), b.Context()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := eventsourcing.Ask(ctx, ref, command); err != nil && !errors.Is(err, errPoor) {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
