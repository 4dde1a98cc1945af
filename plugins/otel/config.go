// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"fmt"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope names the instrumentation.
const scope = "github.com/refold-io/refold/plugins/otel"

// Config configures a Telemetry. The zero value holds the defaults.
type Config struct {
	// MeterProvider makes the instruments. Defaults to the global one of
	// OpenTelemetry.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Defaults to the global one of
	// OpenTelemetry.
	TracerProvider trace.TracerProvider
	// Propagator says what is stored with events besides the trace context,
	// propagation.Baggage{} for example. Events stay for good, so it must be
	// nothing that has to be forgotten. Defaults to nothing.
	Propagator propagation.TextMapPropagator
}

func (c Config) withDefaults() Config {
	if c.MeterProvider == nil {
		c.MeterProvider = global.GetMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = global.GetTracerProvider()
	}
	return c
}

// New returns a Telemetry. It fails if the MeterProvider does not make an
// instrument.
func New(cfg Config) (*Telemetry, error) {
	cfg = cfg.withDefaults()
	t := &Telemetry{
		tracer:   cfg.TracerProvider.Tracer(scope),
		metadata: metadata{cfg.Propagator},
	}
	if err := t.instruments.make(cfg.MeterProvider.Meter(scope), t.observeResident); err != nil {
		return nil, fmt.Errorf("otel: make instruments: %w", err)
	}
	return t, nil
}
