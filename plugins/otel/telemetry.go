// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/refold-io/refold/eventsourcing"
)

// Telemetry reports on any number of runtimes. It is safe for concurrent use.
type Telemetry struct {
	instruments instruments
	tracer      trace.Tracer
	metadata    metadata
	attributes  attributes

	mu      sync.Mutex
	watched []*eventsourcing.Runtime
}

// Observer returns the observer for eventsourcing.Config; see eventsourcing.Tee for more than one.
func (t *Telemetry) Observer() eventsourcing.Observer {
	i := &t.instruments
	return eventsourcing.Observer{
		Begin:           t.begin,
		Command:         t.command,
		Stashed:         t.stashed,
		Commit:          t.commit,
		RecoveryStarted: func(id string) { t.count(i.recoveryActive, id, nil) },
		Recovery:        t.recovery,
		Snapshot:        t.snapshot,
		Failure:         func(id string, cause error) { t.count(i.failures, id, cause) },
		Fence:           func(id string, _ uint64) { t.count(i.fences, id, nil) },
		Dropped:         func(d eventsourcing.DroppedInfo) { t.count(i.dropped, d.PersistenceID, d.Err) },
		Stopped:         func(id string) { t.count(i.stopped, id, nil) },
		Inject:          t.metadata.inject,
		Extract:         t.metadata.extract,
	}
}

// Watch reports the number of entities of a runtime in memory until stop is called.
func (t *Telemetry) Watch(rt *eventsourcing.Runtime) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched = append(t.watched, rt)
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if i := slices.Index(t.watched, rt); i >= 0 {
			t.watched = slices.Delete(t.watched, i, i+1)
		}
	})
}

// Close ends the reports of watched runtimes. The providers belong to the caller: flush them and
// shut them down after the runtimes.
func (t *Telemetry) Close() error {
	if err := t.instruments.registration.Unregister(); err != nil {
		return fmt.Errorf("otel: close: %w", err)
	}
	return nil
}

// observeResident runs at each collection.
func (t *Telemetry) observeResident(_ context.Context, o metric.Observer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := make(map[string]int)
	for _, rt := range t.watched {
		for name, n := range rt.Resident() {
			sum[name] += n
		}
	}
	for name, n := range sum {
		o.ObserveInt64(t.instruments.resident, int64(n), metric.WithAttributes(entityTypeKey.String(name)))
	}
	return nil
}

// scope is the name of the instrumentation.
const scope = "github.com/refold-io/refold/plugins/otel"

// Config configures a Telemetry. The zero value selects the defaults.
type Config struct {
	// MeterProvider creates the instruments. Defaults to the global one of OpenTelemetry.
	MeterProvider metric.MeterProvider
	// TracerProvider creates the spans. Defaults to the global one of OpenTelemetry.
	TracerProvider trace.TracerProvider
	// Propagator adds data to the trace context that is stored with events, for example
	// propagation.Baggage{}. Events are permanent, so it must not add data that has to be deleted
	// later. Defaults to none.
	Propagator propagation.TextMapPropagator
}

// New returns a Telemetry. It returns the error of a MeterProvider that cannot create an
// instrument.
func New(cfg Config) (*Telemetry, error) {
	cfg.MeterProvider = cmp.Or(cfg.MeterProvider, global.GetMeterProvider())
	cfg.TracerProvider = cmp.Or(cfg.TracerProvider, global.GetTracerProvider())
	t := &Telemetry{
		tracer:   cfg.TracerProvider.Tracer(scope),
		metadata: metadata{cfg.Propagator},
	}
	if err := t.instruments.make(cfg.MeterProvider.Meter(scope), t.observeResident); err != nil {
		return nil, fmt.Errorf("otel: create instruments: %w", err)
	}
	return t, nil
}
